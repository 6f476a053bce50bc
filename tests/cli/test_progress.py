"""The screen of a run as text: permanent lines and the live region, from events."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuner.cli.progress import Progress, span
from tuner.cli.table import trial_text
from tuner.events import (
    BlockMeasured,
    ConfirmationProgressed,
    Event,
    Notice,
    RequestsProgressed,
    RunFinished,
    StageChanged,
    StudyOpened,
    TrialFinished,
    TrialStarted,
)
from tuner.store.announcing import as_finished
from tuner.store.record import TrialRecord

Golden = Callable[[str, str], None]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def played(progress: Progress, trials: list[TrialRecord], width: int | None) -> list[str]:
    opened = StudyOpened("kimi-k2.5", False, 0, 0, 30, 7200.0, ("512 distinct servers",))
    lines = progress.take(opened, width)
    for record in trials:
        lines += progress.take(TrialStarted(record.number, record.params), width)
        lines += progress.take(as_finished(record), width)
    return lines


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_running_study(width: int, trials: list[TrialRecord], golden: Golden) -> None:
    clock = Clock()
    progress = Progress("output_tokens_per_s", clock)
    lines = played(progress, trials, width)
    clock.seconds = 1080.0
    events: list[Event] = [
        TrialStarted(7, {"steps": 5, "topk": 1}),
        StageChanged(7, "measuring"),
        BlockMeasured(7, 3, 6, 2610.0, 1.37),
        RequestsProgressed(7, 3, 6, 113, 192, 0),
    ]
    for event in events:
        assert progress.take(event, width) == []
    clock.seconds = 1080.0 + 151.0
    live = progress.live(width)
    assert len(live) == 4
    assert max(len(line) for line in [*lines, *live]) <= width
    golden(f"run-{width}", "\n".join([*lines, "---- live", *live]) + "\n")


def test_without_a_width_nothing_is_cut(trials: list[TrialRecord], golden: Golden) -> None:
    lines = played(Progress("output_tokens_per_s", Clock()), trials, None)
    golden("run-plain", "\n".join(lines) + "\n")


def test_the_confirmation(golden: Golden) -> None:
    progress = Progress("output_tokens_per_s", Clock())
    lines = []
    for trial, value in ((0, 1909.0), (5, 2640.0), (1, None)):
        assert progress.take(StageChanged(trial, "launching")) == []
        assert progress.live(100)[0].split()[:2] == [str(trial), "launching"]
        assert progress.live(100)[0].endswith("confirmation, held-out prompts")
        lines += progress.take(ConfirmationProgressed(1, 4, trial, value))
        assert progress.live(100) == []
    lines += progress.take(Notice("warning", "GPU 3 throttled", "Check its cooling."))
    lines += progress.take(RunFinished("budget spent", 42, 10_800.0))
    golden("confirm", "\n".join(lines) + "\n")


def test_a_resumed_study_says_so_and_shows_what_it_has(
    trials: list[TrialRecord], golden: Golden
) -> None:
    progress = Progress("output_tokens_per_s", Clock())
    lines = progress.recall(trials, 100)
    lines += progress.take(StudyOpened("kimi-k2.5", True, 7, 5, 30, None), 100)
    lines += progress.take(TrialFinished(7, "complete", {"steps": 2}, 2001.0, 9.0, 1.05), 100)
    live = progress.live(100)
    golden("resume", "\n".join([*lines, "---- live", *live]) + "\n")


def test_reused_and_infeasible_trials_are_not_launches(trials: list[TrialRecord]) -> None:
    progress = Progress("output_tokens_per_s", Clock())
    played(progress, trials, 100)
    assert progress.live(100)[0].startswith("study 5/30 ")


def test_the_best_so_far_is_the_highest_ratio(trials: list[TrialRecord]) -> None:
    progress = Progress("output_tokens_per_s", Clock())
    played(progress, trials, 100)
    assert progress.live(100)[-1] == (
        "best so far      trial 5: 2,661 tok/s, 1.39x baseline (one measurement, not confirmed)"
    )


def test_what_breaks_a_constraint_is_never_the_best_so_far(trials: list[TrialRecord]) -> None:
    """It may not be recommended, so it must not look as if it would be."""
    limit = "ttft_p95_ms <= 1.10 * baseline"
    broken = trials[5].model_copy(update={"constraints": {limit: 0.1, "error_rate == 0": 0.0}})
    progress = Progress("output_tokens_per_s", Clock())
    lines = played(progress, [*trials[:5], broken], 160)
    assert progress.live(160)[-1].startswith("best so far      trial 1: 2,574 tok/s, 1.35x")
    (line,) = [line for line in lines if line.lstrip().startswith("5 ")]
    assert "steps=4 topk=1, breaks ttft_p95_ms <= 1.10 * baseline" in line
    assert "error_rate" not in line
    unmet = trials[0].model_copy(update={"constraints": {limit: 0.1}})
    alone = Progress("output_tokens_per_s", Clock())
    alone.recall([unmet], 100)
    alone.take(StudyOpened("kimi-k2.5", True, 1, 1, 30, None), 100)
    assert alone.live(100)[-1] == "best so far      the baseline: 1,912 tok/s"


def test_the_baseline_is_best_until_something_beats_it(trials: list[TrialRecord]) -> None:
    progress = Progress("ttft_p95_ms", Clock())
    played(progress, trials[:1], 100)
    assert progress.live(100)[-1] == "best so far      the baseline: 1,912 ms"


def test_nothing_is_shown_before_the_study_opens() -> None:
    assert Progress("output_tokens_per_s", Clock()).live(80) == []


def test_warnings_of_a_trial_follow_its_line() -> None:
    texts = ("clocks fell", "page size fell", "odd", "odder")
    finished = TrialFinished(1, "complete", {"a": True}, 10.0, warnings=texts)
    lines = Progress("output_tokens_per_s", Clock()).take(finished)
    assert lines[1].endswith("a=on")
    assert lines[2:] == [
        "      warning: clocks fell",
        "      warning: page size fell",
        "      2 more warnings",
    ]


@pytest.mark.parametrize(
    ("seconds", "longest", "text"),
    [(1080, 7200, "0:18"), (1080, None, "18:00"), (7265, None, "2:01"), (90, 600, "1:30")],
)
def test_span(seconds: float, longest: float | None, text: str) -> None:
    assert span(seconds, longest) == text


def test_of_trials_side_by_side_one_is_shown_until_it_ends() -> None:
    progress = Progress("output_tokens_per_s", lambda: 0.0)
    progress.take(TrialStarted(4, {"steps": 1}))
    progress.take(TrialStarted(5, {"steps": 2}))
    progress.take(StageChanged(4, "measuring"))
    progress.take(StageChanged(5, "launching"))
    progress.take(BlockMeasured(5, 1, 2, 99.0, 1.5))
    (line,) = progress.live(100)
    assert "measuring" in line
    assert "steps=1" in line
    (finished,) = progress.take(TrialFinished(5, "complete", {"steps": 2}, value=9.0))[1:]
    assert finished.split()[:2] == ["5", "complete"]
    assert "steps=1" in progress.live(100)[0]
    progress.take(TrialStarted(6, {"steps": 3}))
    progress.take(TrialFinished(4, "complete", {"steps": 1}, value=9.0))
    assert "steps=3" in progress.live(100)[0]


def test_a_confirmation_shows_no_time_of_the_search() -> None:
    progress = Progress("output_tokens_per_s", Clock())
    progress.take(StudyOpened("kimi", False, 0, 0, 30, None))
    assert [line.split()[0] for line in progress.live(100)] == ["study"]
    progress.take(StageChanged(5, "launching"))
    (line,) = progress.live(100)
    assert line.split()[:2] == ["5", "launching"]
    assert line.endswith("confirmation, held-out prompts")


def test_a_prediction_stands_beside_what_was_measured() -> None:
    record = TrialRecord(
        number=4, state="complete", params={"steps": 3}, value=130.0, vs_baseline=1.3,
        predicted=1.27,
    )  # fmt: skip
    assert trial_text(as_finished(record)) == "steps=3, predicted 1.27x"
    pruned = record.model_copy(update={"state": "pruned", "reason": "after block 2/6"})
    assert trial_text(as_finished(pruned)) == "steps=3, after block 2/6"
