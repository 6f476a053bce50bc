"""Owns the screen of `tuner explain`; plain text."""

from __future__ import annotations

import textwrap

from tuner import units
from tuner.cli.table import cut, params_text
from tuner.insight.curve import Curve
from tuner.insight.cycle import Cycle
from tuner.insight.leverage import Explanation
from tuner.insight.levers import Lever
from tuner.store.stored import StoredStudy

BAR = 40
"""Columns of a full bar."""

WIDTH = 100
"""Columns of sentences that go to a file or pipe."""


def explanation_lines(study: StoredStudy, found: Explanation, width: int | None) -> list[str]:
    """One screen: the cycle, the acceptance, the levers, the crossover, what to do next."""
    lines = [study.title]
    if study.is_simulated:
        lines.append("Simulated: the numbers are replayed or scripted, nothing was measured.")
    if found.trial is not None and found.trial.is_synthetic:
        lines.append("Synthetic acceptance: the engine was told what to accept.")
    if found.trial is not None:
        versus = found.versus
        gain = f", {units.ratio(versus)} baseline" if versus else ""
        lines.append(f"trial {found.trial.number}: {params_text(found.trial.params)}{gain}")
    sections = (
        _cycle(found.cycle),
        _acceptance(found.curve),
        _levers(found, width),
        _what_if(found, width),
        _remarks(found, width),
    )
    for section in sections:
        lines += ["", *(cut(line, width) for line in section)] if section else []
    return [*lines, "", *_wrapped(found.sentence, width)]


def _cycle(cycle: Cycle | None) -> list[str]:
    if cycle is None:
        return ["Cycle: not known; the engine reported too few counts."]
    lines = [f"Cycle of {_ms(cycle.seconds)} ({cycle.basis})"]
    seconds = {"draft": cycle.draft, "verify": cycle.verify, "other": cycle.other}
    for name, share in cycle.shares.items():
        bar = "━" * round(share * BAR)
        lines.append(f"  {name:<8}{_ms(seconds[name]):>10}{share:>6.0%}  {bar}".rstrip())
    return lines + [f"  {note}" for note in cycle.notes]


def _ms(seconds: float) -> str:
    return f"{units.number(seconds * 1000)} ms"


def _acceptance(curve: Curve | None) -> list[str]:
    if curve is None:
        return []
    lines = [f"Acceptance length {curve.length:.2f} tokens per step"]
    for each in curve.positions:
        span = f" [{each.low:.0%}, {each.high:.0%}]" if curve.drafts else ""
        bar = "━" * round(each.share * BAR)
        lines.append(f"  {each.number:>2}  {each.share:>4.0%}{span:<14}  {bar}".rstrip())
    if curve.by_category:
        parts = sorted(curve.by_category.items(), key=lambda item: -item[1])
        lines.append("  by category: " + ", ".join(f"{name} {v:.2f}" for name, v in parts))
    return lines


def _levers(found: Explanation, width: int | None) -> list[str]:
    if not found.levers or found.trial is None:
        return []
    name_width = max(len(lever.name) for lever in found.levers) + 2
    lines = [f"Levers, largest first, as ratios to trial {found.trial.number}"]
    for lever in found.levers:
        lines += _lever(lever, name_width, width or WIDTH)
    return lines


def _lever(lever: Lever, name_width: int, width: int) -> list[str]:
    span = units.interval(lever.low, lever.high)
    head = (
        f"  {lever.name:<{name_width}}{units.ratio(lever.ratio):>6} {span:<13} {lever.basis:<10}"
    )
    room = max(24, width - len(head))
    wrapped = textwrap.wrap(lever.change, room, break_on_hyphens=False)
    lines = [f"{head}{wrapped[0]}", *(" " * len(head) + line for line in wrapped[1:])]
    if lever.simulated is not None:
        ratio, low, high = lever.simulated
        pad = " " * (name_width + 2)
        span = units.interval(low, high)
        lines.append(f"{pad}{units.ratio(ratio):>6} {span:<13} simulated on the server")
    return lines


def _what_if(found: Explanation, width: int | None) -> list[str]:
    if found.what_if is None:
        return []
    head, *rest = found.what_if.lines()
    return [
        *_wrapped(head, width),
        *(line for text in rest for line in _wrapped(f"  {text}", width)),
    ]


def _remarks(found: Explanation, width: int | None) -> list[str]:
    texts = [found.crossover.sentence] if found.crossover else []
    texts += [found.published.sentence] if found.published else []
    texts += [f"{each.sentence}." for each in found.inert]
    return [line for text in texts for line in _wrapped(text, width)]


def _wrapped(text: str, width: int | None) -> list[str]:
    return textwrap.wrap(
        text,
        width or WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
