"""Owns the report of a study: one self-contained HTML file that opens without a network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tuner import __version__, units
from tuner.errors import UsageError
from tuner.insight.crossover import concurrency_of
from tuner.insight.evidence import speed_noise
from tuner.insight.figure import Figure
from tuner.insight.figures import study_figures
from tuner.insight.leverage import Explanation
from tuner.insight.levers import Lever
from tuner.insight.nccl import nccl_effects
from tuner.insight.page import (
    Cell,
    Raw,
    card,
    listing,
    paragraph,
    plot,
    render_page,
    section,
    table,
    text,
)
from tuner.store.record import ArgsRecord, TrialRecord
from tuner.store.stored import StoredStudy


def plotly_script() -> str:
    """plotly.js itself; raises UsageError when plotly is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UsageError(
            "tuner report: must have plotly installed, got none.",
            "Install it: pip install 'speculative-tuner[report]'.",
        ) from error
    return str(get_plotlyjs())


def render_report(
    study: StoredStudy, found: Explanation, verdict: Sequence[str], script: str
) -> str:
    """The report as HTML.

    Args:
        study: the stored study.
        found: its explanation.
        verdict: the sentences that end the study, the answer first.
        script: plotly.js, inlined.
    """
    figures = study_figures(study, found)
    body = [*_head(study), _cards(found, verdict), *_sections(study, found, figures)]
    return render_page(f"{study.name}: tuner report", [part for part in body if part], script)


def _head(study: StoredStudy) -> Iterator[str]:
    yield Raw(f"<h1>{text(study.title)}</h1>")
    counts = Counter(trial.state for trial in study.trials)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    load = _load_in_words(study.load)
    yield paragraph(f"{len(study.trials)} trials: {states}.{load}", "soft")
    if study.is_simulated:
        mark = "Simulated: the numbers are replayed or scripted, nothing was measured."
        yield paragraph(mark, "mark")
    if any(trial.is_synthetic for trial in study.trials):
        yield paragraph("Some trials ran with synthetic acceptance: never recommended.", "mark")


def _load_in_words(load: str) -> str:
    """What a load's short name means; nothing for a request rate."""
    at_once = concurrency_of(load)
    if at_once is None:
        return ""
    return f" {load}: {at_once:.0f} request{'s' if at_once > 1 else ''} at a time."


def _cards(found: Explanation, verdict: Sequence[str]) -> Raw:
    largest = found.largest
    if largest is None:
        lever = card("Largest lever", "none found", [found.sentence])
    else:
        number = found.trial.number if found.trial else 0
        big = f"{largest.name}: {units.ratio(largest.ratio)} of trial {number}"
        span = f"95 % interval {units.interval(largest.low, largest.high)}, {largest.basis}"
        next_step = found.sentence.rpartition("Next: ")[2]
        lines = [
            largest.change, *_against_baseline(found), span, *_against_flags(found),
            f"Next: {next_step}",
        ]  # fmt: skip
        lever = card("Largest lever", big, lines)
    answer = card("Verdict", verdict[0], [line.strip() for line in verdict[1:]])
    return Raw(f'<div class="cards">{answer}{lever}</div>')


def _against_baseline(found: Explanation) -> list[str]:
    """What the lever makes of the whole, and whether it is worth it."""
    largest, versus = found.largest, found.versus
    if largest is None or not versus:
        return []
    reached = versus * largest.ratio
    line = f"{units.ratio(reached)} baseline with it, {units.ratio(versus)} now"
    if reached >= 1:
        return [line]
    even = found.break_even
    if even is None or even > found.most:
        return [f"{line}: no draft of this depth would pay"]
    return [f"{line}: a draft would pay from acceptance length {even:.2f}"]


def _against_flags(found: Explanation) -> list[str]:
    largest, flags = found.largest, found.flags
    if largest is None or flags is None:
        return []
    word = "more" if largest.ratio > flags.ratio else "less"
    return [f"{word} than all flags together ({units.ratio(flags.ratio)})"]


def _sections(
    study: StoredStudy, found: Explanation, figures: Mapping[str, Figure]
) -> Iterator[Raw]:
    yield _figure(figures, "levers", _lever_table(found))
    notes = [paragraph(note, "soft") for note in (found.cycle.notes if found.cycle else ())]
    yield _figure(figures, "cycle", *notes)
    published = paragraph(found.published.sentence) if found.published else ""
    yield _figure(figures, "acceptance", _categories(found), published)
    yield _figure(figures, "trials")
    yield _figure(figures, "shape")
    yield _figure(figures, "crossover")
    yield section("NCCL settings", _nccl(study))
    inert = [paragraph(f"{each.sentence}.") for each in found.inert]
    yield section("Parameters without effect", *inert)
    yield _figure(figures, "noise")
    yield section("Failures", _failures(study.trials))
    yield section("The server to run", _server(study, found))
    yield section("All trials", _trial_table(study))
    yield section("Where this was measured", _fingerprint(study))
    yield paragraph(f"Written by tuner {__version__}.", "soft")


def _figure(figures: Mapping[str, Figure], key: str, *more: str) -> Raw:
    figure = figures.get(key)
    if figure is None:
        return Raw("")
    caption = paragraph(figure.caption, "soft")
    return section(figure.title, caption, plot(key, figure.document()), *more)


def _basis(lever: Lever) -> str:
    if lever.simulated is None:
        return lever.basis
    ratio, low, high = lever.simulated
    return f"{lever.basis}; simulated {units.ratio(ratio)} {units.interval(low, high)}"


def _lever_table(found: Explanation) -> Raw:
    rows = [
        (each.name, each.change, units.ratio(each.ratio), units.interval(each.low, each.high),
         _basis(each))
        for each in found.levers
    ]  # fmt: skip
    number = found.trial.number if found.trial else 0
    return table(("lever", "change", f"of trial {number}", "95 %", "basis"), rows, (2, 3))


def _categories(found: Explanation) -> Raw:
    by_category = found.curve.by_category if found.curve else {}
    rows = sorted(by_category.items(), key=lambda item: -item[1])
    return table(("prompts", "acceptance length"), [(n, f"{v:.2f}") for n, v in rows], (1,))


def _nccl(study: StoredStudy) -> Raw:
    effects = nccl_effects(study.trials, speed_noise(study))
    rows: list[Sequence[Cell]] = [
        (each.variable, f"{each.before} to {each.after}", units.ratio(each.ratio),
         str(each.pairs), Raw('<span class="soft">inert</span>') if each.is_inert else "effect")
        for each in effects
    ]  # fmt: skip
    return table(("variable", "change", "speed", "pairs", ""), rows, (2, 3))


def _failures(trials: Sequence[TrialRecord]) -> Raw:
    """Failed and infeasible trials, grouped by what happened and why."""
    groups: dict[tuple[str, str], list[TrialRecord]] = {}
    for trial in trials:
        if trial.failure:
            groups.setdefault((trial.failure, trial.reason), []).append(trial)
    rows = [
        (failure, ", ".join(str(t.number) for t in group), reason, group[0].hint)
        for (failure, reason), group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    return table(("failure", "trials", "reason", "what to do"), rows)


def _server(study: StoredStudy, found: Explanation) -> Raw:
    recommendation = study.recommendation
    if recommendation is None:
        return Raw("")
    if recommendation.verdict == "keep_baseline" or found.trial is None:
        baseline = study.baseline
        args = baseline.requested_args if baseline else ArgsRecord()
        return Raw(paragraph("Keep the baseline.") + listing(args_text(args)))
    args = recommendation.server_args
    args = args if args.flags else found.trial.requested_args
    how = paragraph(f"Write the files with: tuner export {study.name}", "soft")
    return Raw(how + listing(args_text(args)))


def args_text(args: ArgsRecord) -> str:
    """A server's environment and flags, one a line, as in YAML."""
    flags = [f"  {n}: {json.dumps(v, ensure_ascii=False)}" for n, v in sorted(args.flags.items())]
    env = [
        f"  {name}: {'null' if value is None else json.dumps(value, ensure_ascii=False)}"
        for name, value in sorted(args.env.items())
    ]
    return "\n".join(["args:", *flags, *(["env:", *env] if env else [])])


def _trial_table(study: StoredStudy) -> Raw:
    rows = []
    for trial in study.trials:
        value = "-" if trial.value is None else units.plus_minus(trial.value, trial.half_width)
        versus = "-" if trial.vs_baseline is None else units.ratio(trial.vs_baseline)
        length = "-" if trial.acceptance_length is None else f"{trial.acceptance_length:.2f}"
        params = " ".join(f"{name}={value}" for name, value in trial.params.items())
        params = params or ("speculation off" if trial.state == "baseline" else "")
        rows.append((str(trial.number), trial.state, value, versus, length, params))
    head = ("trial", "state", study.metric, "vs base", "accepted", "parameters")
    return table(head, rows, (0, 2, 3, 4))


def _fingerprint(study: StoredStudy) -> Raw:
    found = study.document.get("fingerprint", {})
    rows = [(str(name).replace("_", " "), str(value)) for name, value in found.items()]
    return table(("", ""), rows)
