"""Owns the end of a search that several workers share: who confirms, and when.

The first worker that finds the search ended and gets the study's confirmation lock confirms, once
the others have ended their trials. The lock is the database's own and dies with its holder: the
next one to get it goes on after the last launch that was stored.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from optuna.trial import FrozenTrial

from tuner.events import Notice
from tuner.search.recovery import owner_of
from tuner.search.session import Session
from tuner.store.presence import try_lock

POLL_S = 0.5


@contextlib.contextmanager
def confirming(session: Session, *, wait: bool) -> Iterator[bool]:
    """Hold the right to confirm for the life of the block; False: another worker has it.

    Args:
        session: the study.
        wait: wait for the other worker to end.
    """
    name = f"confirm {session.opened.name}"
    told = False
    while True:
        with try_lock(session.opened.store, name) as is_mine:
            if is_mine or not wait:
                yield is_mine
                return
        if not told:
            told = True
            session.bench.observer(Notice("info", "another worker confirms; waiting for it"))
        time.sleep(POLL_S)


def await_others(session: Session, may_go_on: Callable[[], bool]) -> bool:
    """Wait until nobody measures a trial any more; True when there is something to run again.

    Args:
        session: the study.
        may_go_on: whether a trial that a dead worker gave back may still be launched.
    """
    told = False
    while session.opened.store.is_shared:
        session.opened.give_back()
        session.refresh()
        if session.opened.is_queue_filled() and may_go_on():
            return True
        others = session.opened.running()
        if not others:
            break
        if not told:
            told = True
            session.bench.observer(Notice("info", f"waiting for the trials of {_owners(others)}"))
        time.sleep(POLL_S)
    return False


def _owners(trials: Sequence[FrozenTrial]) -> str:
    labels = {owner.label for trial in trials if (owner := owner_of(trial))}
    return ", ".join(sorted(labels)) or "an unknown process"
