"""Why a search ends: budget, host, draft."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tuner.search.history import History
from tuner.search.stopping import (
    draft_trouble,
    drift_words,
    host_trouble,
    spent_budget,
    unfit_host,
)

MODEL = SimpleNamespace(draft_source=lambda args: "model")
LOOKUP = SimpleNamespace(draft_source=lambda args: "lookup")


def test_budget_in_launches_and_in_time() -> None:
    assert spent_budget(29, 30, None) is None
    assert spent_budget(30, 30, None).why == "the budget of 30 launches is used up"
    assert "wall-time" in spent_budget(3, 30, -1.0).why
    assert spent_budget(3, 30, 5.0) is None


def failures(trial, *reasons: str, kind: str = "launch_crash"):
    return [
        trial(i + 1, "failed", failure=kind, reason=reason) for i, reason in enumerate(reasons)
    ]


def test_the_same_words_three_times_in_a_row_are_the_hosts_fault(objective, trial) -> None:
    history = History(objective, failures(trial, "no shm", "no shm"))
    assert host_trouble(history) is None
    history.add(trial(3, "failed", failure="launch_crash", reason="no shm"))
    stop = host_trouble(history)
    assert "no shm" in stop.why


def test_different_failures_are_the_servers_own(objective, trial) -> None:
    history = History(objective, failures(trial, "topk 2", "topk 4", "topk 8"))
    assert host_trouble(history) is None


def test_three_faults_of_ours_stop_the_run_whatever_their_words(objective, trial) -> None:
    history = History(objective, failures(trial, "a", "b", "c", kind="unexpected"))
    assert "unexpected" in host_trouble(history).why


def test_a_draft_that_is_never_accepted_stops_speculation(objective, trial, accepted) -> None:
    history = History(objective, [trial(1, acceptance=accepted(0, 200))])
    stop = draft_trouble(MODEL, history, keep_going=False)
    assert "never accepted" in stop.why
    assert "tuner draft inspect" in stop.hint
    assert draft_trouble(MODEL, history, keep_going=True) is None
    assert draft_trouble(LOOKUP, history, keep_going=False) is None, "another n may find matches"


@pytest.mark.parametrize(("taken", "drafted"), [(1, 200), (0, 7)])
def test_little_evidence_stops_nothing(objective, trial, accepted, taken, drafted) -> None:
    history = History(objective, [trial(1, acceptance=accepted(taken, drafted))])
    assert draft_trouble(MODEL, history, keep_going=False) is None


def test_a_draft_the_engine_refuses_stops_speculation_whatever_keep_going_says(
    objective, trial
) -> None:
    refused = trial(1, "failed", failure="launch_crash", reason="vocab", is_draft_fault=True)
    stop = draft_trouble(MODEL, History(objective, [refused]), keep_going=True)
    assert stop.why == "the draft model cannot be used: vocab"


def test_a_host_on_which_nothing_can_be_told_apart_is_unfit(objective, trial) -> None:
    speeds = (100.0, 150.0, 90.0)
    launches = [trial(n, "baseline", (speed, speed)) for n, speed in enumerate(speeds)]
    stop = unfit_host(History(objective, launches), newest=3)
    assert stop.why.startswith("this host is unfit to compare servers: launches of the baseline")
    assert "search.keep_going" in stop.hint
    assert unfit_host(History(objective, launches), newest=2) is None, "two say nothing"


def test_an_unfit_host_that_was_put_right_may_be_measured_on_again(objective, trial) -> None:
    speeds = (100.0, 150.0, 90.0, 120.0, 121.0, 119.0)
    launches = [trial(n, "baseline", (speed, speed)) for n, speed in enumerate(speeds)]
    assert unfit_host(History(objective, launches), newest=6) is not None
    assert unfit_host(History(objective, launches), newest=3) is None
    assert unfit_host(History(objective, launches), newest=0) is None, "this run measured none"


def test_drift_is_told_per_launch_and_in_all(objective, trial) -> None:
    launches = [trial(n, "baseline", (100 * 0.98**n, 110 * 0.98**n)) for n in range(5)]
    why, what = drift_words(History(objective, launches), 3)
    assert why == "the baseline drifts by -2.0% per launch (-8% so far)"
    assert what.startswith("3 trials were compared again, each with the baseline interpolated")


@pytest.mark.parametrize(
    ("drafted", "steps", "ends"),
    [
        (8, 4, True),
        (7, 100, False),
        (None, 8, True),
        (None, 7, False),
        (0, 8, True),
        (0, 0, False),
    ],
)
def test_enough_must_be_drafted_before_nothing_means_something(
    objective, trial, accepted, drafted, steps, ends
) -> None:
    """Where an engine does not count drafts, its verification steps stand for them."""
    record = trial(1, acceptance=accepted(0, drafted, steps))
    assert (draft_trouble(MODEL, History(objective, [record]), False) is not None) is ends


def test_one_accepted_token_is_something(objective, trial, accepted) -> None:
    history = History(objective, [trial(1, acceptance=accepted(1, 900))])
    assert draft_trouble(MODEL, history, False) is None


def test_an_acceptance_of_nothing_that_was_asked_for_is_no_finding(
    objective, trial, accepted
) -> None:
    """Synthetic acceptance at rate 0 shows the cost of drafting; the draft is not to blame."""
    asked = trial(1, acceptance=accepted(0, 900), is_synthetic=True)
    assert draft_trouble(MODEL, History(objective, [asked]), False) is None


@pytest.mark.parametrize(
    ("hint", "log_path", "said"),
    [
        ("Mount /dev/shm.", "trials/0003/server.log", "Mount /dev/shm."),
        ("", "trials/0003/server.log", "Read trials/0003/server.log and run `tuner doctor`."),
        ("", "", "Read the server logs and run `tuner doctor`."),
    ],
)
def test_the_way_out_is_the_failures_own_hint_or_its_log(
    objective, trial, hint, log_path, said
) -> None:
    records = failures(trial, "no shm", "no shm")
    records.append(
        trial(3, "failed", failure="launch_crash", reason="no shm", hint=hint, log_path=log_path)
    )
    assert host_trouble(History(objective, records)).hint == said


def test_only_the_last_three_count(objective, trial) -> None:
    history = History(objective, failures(trial, "other", "no shm", "no shm", "no shm"))
    assert "the last 3 launches all failed with launch_crash: no shm" in host_trouble(history).why


@pytest.mark.parametrize(
    ("launches", "most", "left", "ends"),
    [(0, 0, None, True), (5, 4, 9.0, True), (3, 4, 0.0, True), (3, 4, 0.001, False)],
)
def test_where_the_budget_ends(launches, most, left, ends) -> None:
    assert (spent_budget(launches, most, left) is not None) is ends
