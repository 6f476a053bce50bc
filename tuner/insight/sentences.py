"""Owns the sentences that end a study and a comparison: what to do, and how sure that is."""

from __future__ import annotations

import math

from tuner import units
from tuner.store.record import (
    FinalistRecord,
    RecommendationRecord,
    ScheduleRecord,
    ScheduleStep,
)


def recommendation_lines(recommendation: RecommendationRecord | None) -> list[str]:
    """The verdict in one line, what supports it below, indented."""
    if recommendation is None:
        return ["Nothing is recommended yet: no finalist was confirmed on held-out prompts."]
    lines = [_verdict(recommendation), *_support(recommendation)]
    for reason in recommendation.reasons:
        if reason not in " ".join(lines):
            lines.append(reason)
    schedule = recommendation.schedule
    further = schedule_lines(schedule) if schedule else []
    return [lines[0], *(f"  {line}" for line in lines[1:]), *further]


def schedule_lines(schedule: ScheduleRecord) -> list[str]:
    """The verdict on the table of depths, and the depth confirmed at each load."""
    single = f"depth {schedule.single_depth} everywhere" if schedule.single_depth else "baseline"
    first = f"Schedule: keep one depth ({single})."
    if schedule.verdict == "use":
        first = f"Schedule: use the table, {_ratio(schedule)} of {single} under the moving load."
    elif schedule.ratio is not None:
        first = f"{first} The table: {_ratio(schedule)} of it."
    steps = [
        f"  {step.load:<6} depth {step.depth:<3} {_ratio(step)} baseline"
        for step in schedule.steps
    ]
    return [first, *steps, *(f"  {reason}" for reason in schedule.reasons)]


def _ratio(found: ScheduleRecord | ScheduleStep) -> str:
    low, high = found.low or 0.0, found.high or math.inf
    return f"{units.ratio(found.ratio or 0.0)} {units.interval(low, high)}"


def finalist_line(finalist: FinalistRecord) -> str:
    """`trial 9, 1.01x [0.99, 1.03]`, and what disqualifies it."""
    text = f"trial {finalist.trial}, {units.ratio(finalist.ratio)} "
    text += units.interval(finalist.low, finalist.high)
    return text if finalist.constraints_met else f"{text}, breaks a constraint"


def _verdict(recommendation: RecommendationRecord) -> str:
    if not recommendation.constraints_met:
        return "Nothing is recommended: not even the baseline satisfies the constraints."
    label = "Recommended (simulated)" if recommendation.is_simulated else "Recommended"
    if recommendation.verdict == "keep_baseline":
        beaten = any(finalist.low > 1.0 for finalist in recommendation.finalists)
        why = "" if beaten else " No server beat it by more than the noise."
        return f"{label}: keep the baseline.{why}"
    gain = f"{units.ratio(recommendation.ratio or 0.0)} baseline"
    if recommendation.low is not None and recommendation.high is not None:
        gain += f" {units.interval(recommendation.low, recommendation.high)}"
    return f"{label}: trial {recommendation.trial}, {gain}."


def _support(recommendation: RecommendationRecord) -> list[str]:
    lines = []
    if recommendation.verdict == "keep_baseline" and recommendation.finalists:
        best = max(recommendation.finalists, key=lambda finalist: finalist.ratio)
        text = f"Best finalist: {finalist_line(best)}."
        if recommendation.smallest_detectable is not None:
            least = units.ratio(recommendation.smallest_detectable)
            text += f" Smallest gain this study could have seen: {least}."
        lines.append(text)
    if recommendation.is_simulated:
        lines.append(
            "Simulated: the numbers are replayed or scripted; no real server was measured."
        )
    return lines
