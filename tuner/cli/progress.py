"""Owns what a run's screen says, as text: events go in, lines come out. No terminal here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tuner import units
from tuner.cli.output import fold
from tuner.cli.table import (
    cut,
    header,
    params_text,
    running_line,
    trial_line,
    unit_of,
)
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

LABEL = 17
"""Columns before the bars of the live region."""

HOUR = 3600.0
MOST_WARNINGS = 2


class Progress:
    """The state of a run's screen: `take` gives lines that stay, `live` those that change."""

    def __init__(self, metric: str, now: Callable[[], float]) -> None:
        self._metric = metric
        self._now = now
        self._opened = StudyOpened("", False, 0, 0, 0, None)
        self._opened_s = now()
        self._running: TrialFinished | None = None
        self._running_s = now()
        self._beside: dict[int, tuple[TrialFinished, float]] = {}
        self._stage = "preparing"
        self._requests: RequestsProgressed | None = None
        self._best: TrialFinished | None = None
        self._launches = 0
        self._seconds = 0.0
        self._new_launches = 0
        self._has_header = False
        self._is_confirming = False

    def recall(self, records: Iterable[TrialRecord], width: int | None) -> list[str]:
        """The lines of trials that an earlier run of the study measured."""
        lines: list[str] = []
        for record in records:
            finished = as_finished(record)
            self._consider(finished)
            lines += [*self._header(width), trial_line(finished, width)]
        return lines

    def take(self, event: Event, width: int | None = None) -> list[str]:
        """Note one event; the permanent lines that it adds."""
        match event:
            case StudyOpened():
                return self._open(event)
            case TrialStarted():
                self._start(event.number, params_text(event.params), event.is_baseline)
            case StageChanged():
                self._enter(event)
            case RequestsProgressed():
                if self._is_shown(event.number):
                    self._requests = event
            case BlockMeasured():
                self._note_block(event)
            case TrialFinished():
                return self._finish(event, width)
            case ConfirmationProgressed():
                return [*self._header(width), self._confirmation(event, width)]
            case Notice():
                return notice_lines(event, width)
            case RunFinished():
                spent = f"{_count(event.launches)}, {units.clock(event.wall_s)}"
                return [f"Ended: {event.why} ({spent})."]
        return []

    def live(self, width: int) -> list[str]:
        """The live region: at most four lines that fit the width."""
        bar = 42 if width >= 100 else 22
        lines = [] if self._running is None else [self._now_line(self._running, width)]
        if self._requests is not None:
            lines.append(self._requests_line(bar))
        if self._opened.max_launches and not self._is_confirming:
            lines.append(self._study_line(bar))
        if self._best is not None:
            lines.append(self._best_line(self._best))
        return [cut(line, width) for line in lines]

    # ---- events ----------------------------------------------------------------------------
    def _open(self, event: StudyOpened) -> list[str]:
        self._opened, self._opened_s = event, self._now()
        self._launches = event.launches
        done = f"{event.finished_trials} trials are stored, "
        budget = f"{_count(event.launches)} of {event.max_launches} done"
        verb = f"Resuming {event.name}: {done}{budget}." if event.resumed else ""
        first = verb or f"Study {event.name}: at most {_count(event.max_launches)}."
        return [first, *(f"  {note}" for note in event.notes)]

    def _start(self, number: int, text: str, is_baseline: bool) -> None:
        """Show a trial; one that starts beside it waits to be shown until that one ends."""
        words = "speculation off" if is_baseline else text
        started = TrialFinished(number, "complete", {}, reason=words)
        if self._running is None:
            self._show(started, self._now())
        else:
            self._beside[number] = (started, self._now())

    def _show(self, trial: TrialFinished, since_s: float) -> None:
        self._running, self._running_s = trial, since_s
        self._stage, self._requests = "preparing", None
        self._is_confirming = False

    def _is_shown(self, number: int) -> bool:
        return self._running is None or self._running.number == number

    def _enter(self, event: StageChanged) -> None:
        if not self._is_shown(event.number):
            return
        self._stage = event.stage.replace("_", " ")
        self._requests = None
        if self._running is None:  # a launch of the confirmation belongs to no new trial
            words = event.detail or "confirmation, held-out prompts"
            self._running = TrialFinished(event.number, "complete", {}, reason=words)
            self._running_s = self._now()
            self._is_confirming = True

    def _note_block(self, event: BlockMeasured) -> None:
        if self._running is not None and self._is_shown(event.number):
            self._running = replace(
                self._running, value=event.value, vs_baseline=event.vs_baseline
            )

    def _finish(self, event: TrialFinished, width: int | None) -> list[str]:
        if self._beside.pop(event.number, None) is None:
            self._running, self._requests = None, None
            if self._beside:
                self._show(*self._beside.pop(min(self._beside)))
        if event.state not in ("infeasible", "reused"):
            self._launches += 1
            self._new_launches += 1
            self._seconds += event.seconds
        self._consider(event)
        return [*self._header(width), trial_line(event, width), *warning_lines(event, width)]

    def _consider(self, trial: TrialFinished) -> None:
        if trial.state not in ("baseline", "complete") or trial.vs_baseline is None:
            return
        if trial.broken and trial.state != "baseline":
            return
        if self._best is None or trial.vs_baseline > (self._best.vs_baseline or 0.0):
            self._best = trial

    # ---- lines -----------------------------------------------------------------------------
    def _header(self, width: int | None) -> list[str]:
        if self._has_header:
            return []
        self._has_header = True
        return [header(self._metric, width)]

    def _confirmation(self, event: ConfirmationProgressed, width: int | None) -> str:
        self._running, self._requests = None, None
        line = TrialFinished(event.trial, "complete", {}, value=event.value)
        words = "baseline" if event.trial == 0 else f"trial {event.trial}"
        state = f"confirm {event.round + 1}/{event.rounds}"
        return running_line(line, state, f"{words}, held-out prompts", width, clock="-")

    def _now_line(self, running: TrialFinished, width: int) -> str:
        elapsed = replace(running, seconds=self._now() - self._running_s)
        return running_line(elapsed, self._stage, elapsed.reason, width)

    def _requests_line(self, bar: int) -> str:
        event = self._requests
        assert event is not None
        share = (event.block + event.done / max(1, event.total)) / max(1, event.blocks)
        label = f"      block {event.block + 1}/{event.blocks}"
        errors = f"{event.errors} error{'' if event.errors == 1 else 's'}"
        text = f"{event.done}/{event.total} requests, {errors}"
        return f"{label:<{LABEL}}{_bar(share, bar)}   {text}"

    def _study_line(self, bar: int) -> str:
        launches, most = self._launches, self._opened.max_launches
        label = f"study {launches}/{most}"
        return f"{label:<{LABEL}}{_bar(launches / most, bar)}   {self._time_left()}"

    def _time_left(self) -> str:
        elapsed, wall = self._now() - self._opened_s, self._opened.wall_s
        expected = None
        if self._new_launches:
            mean = self._seconds / self._new_launches
            expected = (self._opened.max_launches - self._launches) * mean
        left = [s for s in (expected, None if wall is None else wall - elapsed) if s is not None]
        longest = max([elapsed, *left, wall or 0.0])
        text = span(elapsed, longest) + ("" if wall is None else f" of {span(wall, longest)}")
        return f"{text}, about {span(min(left), longest)} left" if expected is not None else text

    def _best_line(self, best: TrialFinished) -> str:
        label = f"{'best so far':<{LABEL}}"
        value = f"{units.number(best.value or 0.0)} {unit_of(self._metric)}".rstrip()
        if best.state == "baseline":
            return f"{label}the baseline: {value}"
        versus = f"{units.ratio(best.vs_baseline or 0.0)} baseline"
        return f"{label}trial {best.number}: {value}, {versus} (one measurement, not confirmed)"


def warning_lines(event: TrialFinished, width: int | None) -> list[str]:
    """The first warnings of a trial; the others are counted."""
    lines = [f"      warning: {text}" for text in event.warnings[:MOST_WARNINGS]]
    more = len(event.warnings) - len(lines)
    rest = [f"      {more} more warning{'' if more == 1 else 's'}"] if more > 0 else []
    return [*(cut(line, width) for line in lines), *rest]


def notice_lines(event: Notice, width: int | None = None) -> list[str]:
    """A notice and its hint, folded to the width: neither is cut; warnings say so."""
    prefix = "warning: " if event.level == "warning" else ""
    lines = [f"{prefix}{event.message}", *([f"  {event.hint}"] if event.hint else [])]
    return [part for line in lines for part in fold(line, width)]


def span(seconds: float, longest: float | None = None) -> str:
    """Time as h:mm where anything beside it lasts an hour or more, else as m:ss."""
    if (seconds if longest is None else longest) < HOUR:
        return units.clock(seconds)
    minutes = max(0, round(seconds / 60))
    return f"{minutes // 60}:{minutes % 60:02d}"


def _bar(share: float, width: int) -> str:
    filled = min(width - 1, max(0, int(min(1.0, max(0.0, share)) * width)))
    return "━" * filled + "╸" + "━" * (width - 1 - filled)


def _count(launches: int) -> str:
    return f"{launches} launch{'' if launches == 1 else 'es'}"
