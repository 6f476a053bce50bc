"""Owns a run seen from the command line: earlier trials, the live view, the interruption."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator

import typer

from tuner.cli.hook import TrialHook
from tuner.cli.output import error_lines, narrate, say_json
from tuner.cli.show import study_document
from tuner.cli.view import RunView, run_view
from tuner.config.loader import LoadedStudy, load_study
from tuner.errors import Interrupted, NoFeasibleServer, StoreError, UsageError
from tuner.events import Notice, Observer
from tuner.insight.filling import filling_dashboard
from tuner.insight.sentences import recommendation_lines
from tuner.search.loop import RunResult, join_study, run_study
from tuner.search.reconfirm import confirm_study
from tuner.search.schedule import schedule_study
from tuner.store.record import TrialRecord
from tuner.store.stored import SIMULATED_KINDS, StoredStudy, read_study, study_path


def run_shown(study: str, *, new: bool, verbose: bool, on_trial: str = "") -> StoredStudy:
    """Run a study under a view; the stored study as it is afterwards."""

    def observer(view: RunView) -> Observer:
        return TrialHook(on_trial, view) if on_trial else view

    return _shown(
        study,
        lambda loaded, view: run_study(loaded, observer=observer(view), new=new),
        recalls=not new,
        verbose=verbose,
    )


def confirm_shown(study: str, trials: tuple[int, ...], *, verbose: bool) -> StoredStudy:
    """Confirm trials of a study under a view; the stored study as it is afterwards."""
    return _shown(
        study,
        lambda loaded, view: confirm_study(loaded, trials, observer=view),
        recalls=True,
        verbose=verbose,
    )


def join_shown(study: str, *, verbose: bool) -> bool:
    """Work on a shared study under a view; False when another worker confirms it."""
    ended: list[RunResult | None] = []
    _shown(
        study,
        lambda loaded, view: ended.append(join_study(loaded, observer=view)),
        recalls=False,
        verbose=verbose,
    )
    return ended[0] is not None


def schedule_shown(study: str, trials: tuple[int, ...], *, verbose: bool) -> StoredStudy:
    """Confirm a depth per load under a view; the stored study as it is afterwards.

    Raises:
        UsageError: trials were named, which the loads choose themselves.
    """
    if trials:
        raise UsageError(
            f"--schedule: must come without trials, got {' '.join(map(str, trials))}.",
            "Leave them out: the best depth at each load is confirmed.",
        )
    return _shown(
        study,
        lambda loaded, view: schedule_study(loaded, observer=view),
        recalls=True,
        verbose=verbose,
    )


def ending_lines(done: StoredStudy) -> list[str]:
    """What a run prints at its end; there is a next step only for what was really measured."""
    lines, found = recommendation_lines(done.recommendation), done.recommendation
    if done.is_simulated or found is None or not found.constraints_met:
        return lines
    verb = "export" if found.verdict == "use" else "explain"
    return [*lines, f"Next: tuner {verb} {done.name}"]


@contextlib.contextmanager
def documented(study: str, as_json: bool) -> Iterator[None]:
    """A study that ends without a feasible server prints its document too, not the error's."""
    try:
        yield
    except NoFeasibleServer as error:
        if not as_json:
            raise
        say_json(study_document(read_study(study)))
        narrate(*error_lines(error))
        raise typer.Exit(error.exit_code) from error


def _shown(
    study: str,
    action: Callable[[LoadedStudy, RunView], object],
    *,
    recalls: bool,
    verbose: bool,
) -> StoredStudy:
    loaded = load_study(study_path(study))
    objective = loaded.config.objective
    view = run_view(objective.maximize or objective.minimize or "", verbose=verbose)
    with view, _resumable(study), filling_dashboard(loaded):
        if loaded.config.engine.kind in SIMULATED_KINDS:
            view(Notice("warning", "Simulated: no real server is measured, only a stand-in."))
        if recalls:
            view.recall(_earlier(study))
        action(loaded, view)
    return read_study(study)


def _earlier(study: str) -> list[TrialRecord]:
    with contextlib.suppress(StoreError):
        return read_study(study).trials
    return []


@contextlib.contextmanager
def _resumable(study: str) -> Iterator[None]:
    """An interruption that says how to go on."""
    hint = f"Go on with: tuner run {shlex.quote(study)}"
    try:
        yield
    except Interrupted as error:
        raise Interrupted(error.message, hint) from error
    except KeyboardInterrupt:
        raise Interrupted("interrupted; everything measured is stored.", hint) from None
