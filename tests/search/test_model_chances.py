"""What is expected of a launch beside its speed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tuner.search.model_chances import NOISE, launch_noise

METRIC = "output_tokens_per_s"


def baselines(trial: Any, logs: list[float]) -> list[Any]:
    """The baseline launched again and again, a trial between; its own ratio says nothing."""
    made = []
    for place, log in enumerate(logs):
        speed = 100.0 * math.exp(log)
        made.append(trial(2 * place, "baseline", (speed, 1.1 * speed), vs_baseline=1.0))
        made.append(trial(2 * place + 1))
    return made


def test_launch_noise_is_that_of_the_baselines_repeats(trial: Any) -> None:
    records = baselines(trial, [0.0, 0.06, -0.06, 0.02])
    assert launch_noise(records, METRIC, "c1") == pytest.approx(0.0503, rel=0.01)
    assert launch_noise(records, METRIC, "") == launch_noise(records, METRIC, "c1")


def test_a_drift_is_no_noise(trial: Any) -> None:
    records = baselines(trial, [0.0, 0.0501, 0.1, 0.15, 0.2])
    assert launch_noise(records, METRIC, "c1") == 0.005


@pytest.mark.parametrize(
    ("metric", "load", "logs"),
    [(METRIC, "c1", [0.0, 0.5]), ("ttft_ms", "c1", [0.0, 0.1, 0.2]), (METRIC, "c8", [0.0] * 4)],
)
def test_what_is_not_known_is_assumed(
    trial: Any, metric: str, load: str, logs: list[float]
) -> None:
    assert launch_noise(baselines(trial, logs), metric, load) == NOISE
