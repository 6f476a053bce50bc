"""Which trials may be confirmed on demand, and what is said of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.study import ConfirmConfig
from tuner.errors import UsageError
from tuner.search.history import History
from tuner.search.reconfirm import campaign_of


@pytest.fixture
def session(objective: Any, trial: Any) -> Any:
    records = [
        trial(0, "baseline"),
        trial(1, vs_baseline=1.2),
        trial(2, "failed", value=None),
        trial(3, "reused", twin_of=1, digest="d1"),
        trial(4, vs_baseline=1.1),
        trial(5, "baseline"),
    ]
    candidates = SimpleNamespace(baseline=ServerArgs({}), args_of=ServerArgs)
    return SimpleNamespace(
        history=History(objective, records),
        opened=SimpleNamespace(name="demo"),
        candidates=candidates,
        bench=None,
        loaded=SimpleNamespace(config=SimpleNamespace(confirm=ConfirmConfig())),
        suggester=object(),
    )


@pytest.mark.parametrize(
    ("named", "servers"),
    [
        ([4], [0, 4]),
        ([4, 1], [0, 4, 1]),
        ([0, 4], [0, 4]),
        ([5, 4], [0, 4]),  # the baseline, launched again
        ([1, 3], [0, 1]),  # the same server twice
        ([3], [0, 3]),
        ([], [0, 1, 4]),
    ],
)
def test_what_is_launched(session: Any, named: list[int], servers: list[int]) -> None:
    assert list(campaign_of(session, named).servers) == servers


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ([99], "study demo: trial 99 must be one that was measured, got no such trial."),
        ([1, 2], "study demo: trial 2 must be one that was measured, got one that is failed."),
        ([0, 5], "study demo: must name a trial beside the baseline, got 0 5."),
    ],
)
def test_what_is_refused(session: Any, named: list[int], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        campaign_of(session, named)
    assert refused.value.message == message


def test_without_a_baseline_nothing_can_be_confirmed(session: Any) -> None:
    session.history.records = session.history.records[1:2]
    with pytest.raises(UsageError, match="must have a measured baseline"):
        campaign_of(session, [])
