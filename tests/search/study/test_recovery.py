"""Files, tables and Optuna are brought into step; dead trials end, living ones stay."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tuner.errors import StoreError
from tuner.search.recovery import is_dead
from tuner.search.sampling import make_suggester
from tuner.store.owner import Owner, current_owner, process_start


def ask(workshop: Any, opened: Any) -> Any:
    ground = workshop.ground(opened.setup)
    return opened.ask(ground, make_suggester(ground))


def snapshot(workshop: Any) -> Path:
    """A sound copy of the database as it is now."""
    target = workshop.folder / "older.db"
    with (
        closing(sqlite3.connect(workshop.folder / "demo/study.db")) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
    return target


def put_back(workshop: Any, copy: Path) -> None:
    """The database as a power cut may leave it: the last transactions are gone."""
    for path in (workshop.folder / "demo").glob("study.db*"):
        path.unlink()
    shutil.copy(copy, workshop.folder / "demo/study.db")


def test_transactions_lost_with_the_power_come_back_from_the_files(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=2)
        ask(workshop, opened)  # trial 2 runs when the last surviving page is written
        older = snapshot(workshop)
        opened.finish(workshop.record(ask(workshop, opened)))  # trial 3
        opened.finish(workshop.record(ask(workshop, opened)))  # trial 4
        records = opened.records()
    put_back(workshop, older)
    with workshop.opened() as opened:
        assert [r for r in opened.records() if r.number in (0, 1, 3, 4)] == records
        states = [t.state.name for t in opened.study.get_trials()]
        assert states == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE", "COMPLETE", "WAITING"]
        assert opened.records()[2].failure == "interrupted"
        retried = ask(workshop, opened)
        assert (retried.number, retried.retry_of) == (5, 2)


def test_a_start_point_measured_before_the_power_went_is_not_measured_again(
    workshop: Any,
) -> None:
    setup = workshop.setup(start="[{steps: 3, topk: 4, draft: 8, nccl: Ring}]")
    with workshop.opened(setup) as opened:
        older = snapshot(workshop)  # baseline and start point wait
        workshop.run(opened, limit=2)
        records = opened.records()
    put_back(workshop, older)
    with workshop.opened(setup) as opened:
        assert opened.records() == records
        trials = opened.study.get_trials()
        assert [t.state.name for t in trials] == ["COMPLETE", "COMPLETE"]
        assert trials[1].params == {"steps": 3, "topk": 4, "draft": 8, "nccl": "Ring"}
        assert trials[1].value == records[1].value
        assert ask(workshop, opened).number == 2


def test_trials_that_optuna_never_heard_of_are_numbered_as_before(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=2)
        older = snapshot(workshop)
        ask(workshop, opened)
        opened.finish(workshop.record(ask(workshop, opened)))  # trial 3; 2 leaves no trace
        kept = opened.records()[-1]
    put_back(workshop, older)
    with workshop.opened() as opened:
        trials = opened.study.get_trials()
        assert [t.state.name for t in trials] == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]
        assert "lost with the database" in trials[2].user_attrs["reason"]
        assert (trials[3].value, trials[3].params) == (kept.value, kept.params)
        assert ask(workshop, opened).number == 4


def test_a_trial_whose_tuner_died_ends_and_is_queued(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        asked = ask(workshop, opened)
        trial = opened.study.get_trials()[asked.number]
        dead = replace(opened.owner, proc_start="1")
        opened.study._storage.set_trial_user_attr(trial._trial_id, "owner", dead.to_json())
    with workshop.opened() as opened:
        assert opened.notes == (f"trial {asked.number} was interrupted and is queued again",)
        record = opened.records()[asked.number]
        assert (record.failure, record.params) == ("interrupted", asked.params)
        assert dead.label in record.reason
        again = ask(workshop, opened)
        assert (again.params, again.retry_of) == (asked.params, asked.number)


def test_a_trial_of_a_living_process_is_left_alone(workshop: Any) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = process_start(child.pid)
        assert start is not None
        with workshop.opened() as opened:
            workshop.run(opened, limit=1)
            asked = ask(workshop, opened)
            trial = opened.study.get_trials()[asked.number]
            living = replace(opened.owner, pid=child.pid, proc_start=start)
            opened.study._storage.set_trial_user_attr(trial._trial_id, "owner", living.to_json())
        with workshop.opened() as opened:
            assert opened.notes == (
                f"trial {asked.number} is still run by {living.label} and was left alone",
            )
            assert opened.study.get_trials()[asked.number].state is TrialState.RUNNING
        child.communicate(b"\n")


@pytest.fixture
def me() -> Owner:
    return current_owner(os.getpid())


@pytest.mark.parametrize(
    ("change", "alone", "shared"),
    [
        ({}, True, False),  # an earlier run of this process gave the lock back
        ({"proc_start": "1"}, True, True),
        ({"boot_id": "b"}, True, True),
        ({"boot_id": "b", "host": "h"}, True, False),  # a container moved, or another worker
        ({"pid_namespace": "p"}, True, False),
    ],
)
def test_the_run_lock_decides_where_the_process_cannot_be_seen(
    me: Owner, change: dict[str, str], alone: bool, shared: bool
) -> None:
    owner = replace(me, **change)
    assert is_dead(owner, is_shared=False) == alone
    assert is_dead(owner, is_shared=True) == shared


def test_a_running_trial_without_an_owner_is_dead_under_the_run_lock() -> None:
    assert is_dead(None, is_shared=False)
    assert not is_dead(None, is_shared=True)


@pytest.mark.parametrize("owner", ["text", {}, {"host": "h", "pid": "x"}])
def test_a_garbled_owner_is_none(workshop: Any, owner: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        asked = ask(workshop, opened)
        trial = opened.study.get_trials()[asked.number]
        opened.study._storage.set_trial_user_attr(trial._trial_id, "owner", owner)
    with workshop.opened() as opened:
        assert opened.records()[asked.number].failure == "interrupted"


def test_an_unreadable_record_counts_as_interrupted(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        asked = ask(workshop, opened)
        path = opened.results.trial_folder(asked.number) / "record.json"
        path.write_text('{"number": ')
    with workshop.opened() as opened:
        assert "cannot be read back and counts as interrupted" in opened.notes[0]
        assert opened.records()[asked.number].failure == "interrupted"
        assert path.with_name("record.json.damaged").is_file()
        assert ask(workshop, opened).retry_of == asked.number


def test_damaged_blocks_do_not_cost_the_trial(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        record = workshop.record(ask(workshop, opened))
        opened.results.write_trial(record)
        path = opened.results.trial_folder(record.number) / "blocks.jsonl.gz"
        path.write_bytes(gzip.compress(b"{}\n"))
    with workshop.opened() as opened:
        assert opened.records()[-1] == record
        assert "without its blocks" in opened.notes[0]
        assert opened.study.get_trials()[-1].value == record.value


def test_a_results_folder_deleted_while_running_costs_what_was_in_it(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=3)
        asked = ask(workshop, opened)
        shutil.rmtree(workshop.folder / "demo")
        with pytest.raises(StoreError, match="must stay while a study runs"):
            opened.finish(workshop.record(asked))
    with workshop.opened() as opened:
        assert [r.number for r in opened.records()] == [3]
        trials = opened.study.get_trials()
        assert [t.state.name for t in trials[:4]] == ["FAIL", "FAIL", "FAIL", "COMPLETE"]
        following = workshop.run(opened, limit=2)
        assert [(a.number, a.is_baseline) for a in following] == [(4, True), (5, False)]


def test_confirmation_launches_are_read_back_too(workshop: Any) -> None:
    from tuner.store.record import ConfirmationLaunch

    launch = ConfirmationLaunch(round=0, order=0, trial=0, digest="base", value=99.0)
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        opened.results.write_confirmation(launch)
    with workshop.opened() as opened:
        assert opened.launches() == [launch]
        assert opened.notes == ("confirmation launch 0 was read back from its folder",)
    with workshop.opened() as opened:
        assert opened.notes == ()
