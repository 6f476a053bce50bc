"""`tuner check-regression`: held against the study's best, or against its own confirmed gain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.regression import RegressionReport, regression_lines
from tuner.errors import Difference
from tuner.measure.statistics import Interval

Tuner = Callable[..., Any]
ENGINE = {"behaviour": {"step_ms": 4, "acceptance": [0.95], "answer_tokens": 20}}
ALLOW = ("--unconfirmed", "--allow", "simulated")


@pytest.fixture(scope="module")
def fleet_yaml(study_yaml: Callable[..., str]) -> Callable[..., str]:
    """The study's text, its engine changed."""

    def write(**engine: Any) -> str:
        parameters = {"steps": {"flag": "spec-steps", "choices": [4]}}
        return study_yaml(
            name="fleet", engine={**ENGINE, **engine}, space={"parameters": parameters},
            workload={"output_tokens": {"max": 20}},
        )  # fmt: skip

    return write


@pytest.fixture(scope="module")
def fleet(
    tuner: Tuner,
    tmp_path_factory: pytest.TempPathFactory,
    at_work_in: Callable[..., AbstractContextManager[Path]],
    fleet_yaml: Callable[..., str],
) -> Iterator[Path]:
    """A study whose best is trial 1, with bundles of the best and of the baseline."""
    with at_work_in(tmp_path_factory.mktemp("fleet")) as folder:
        (folder / "fleet.yaml").write_text(fleet_yaml())
        assert tuner("run", "fleet.yaml").exit_code == 0
        for name, number in (("best", "1"), ("slow", "0")):
            done = tuner("export", "fleet", "--trial", number, "--out", name, *ALLOW)
            assert done.exit_code == 0, done.stderr
        manifest = json.loads((folder / "best" / "manifest.json").read_text())
        manifest["confirmed"] = {"ratio": 1.5, "low": 1.4, "high": 1.6}
        (folder / "best" / "manifest.json").write_text(json.dumps(manifest))
        _recommend(folder)
        yield folder


def _recommend(folder: Path) -> None:
    """Make trial 1 the recommended one, whatever this machine's noise made of it."""
    from tuner.store.database import open_store
    from tuner.store.place import find_place

    with open_store(find_place("fleet").url, create=True) as store:
        found = store.recommendation("fleet")
        trial = store.trial("fleet", 1)
        assert found is not None
        assert trial is not None
        chosen = {"verdict": "use", "trial": 1, "server_args": trial.requested_args}
        store.save_recommendation("fleet", found.model_copy(update=chosen))


def test_the_recommended_server_itself_needs_no_launch(tuner: Tuner, fleet: Path) -> None:
    done = tuner("check-regression", "best", "--against", "fleet", "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["ok"], document["launches"]) == (0, True, 0)
    assert document["against"] == "fleet's trial 1, the same server"


def test_a_bundle_that_fell_behind_fails(tuner: Tuner, fleet: Path) -> None:
    done = tuner("check-regression", "slow", "--against", "fleet.yaml", "--rounds", "3", "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["ok"]) == (1, False), document
    assert document["ratio"] < 0.6
    assert document["launches"] == 3


def test_without_a_study_todays_gain_is_held_against_the_confirmed_one(
    tuner: Tuner, fleet: Path
) -> None:
    done = tuner("check-regression", "best", "--rounds", "2", "--json")
    document = json.loads(done.stdout)
    assert document["against"] == "its confirmed gain"
    assert done.exit_code == 0, document
    assert document["ratio"] > 1.2  # 1.5 is written there; the fake gains threefold


def test_what_cannot_be_compared_is_refused(
    tuner: Tuner, fleet: Path, fleet_yaml: Callable[..., str]
) -> None:
    refused = tuner("check-regression", "slow")
    assert refused.exit_code == 2
    assert "must have a confirmed gain over the baseline" in refused.stderr
    (fleet / "other.yaml").write_text(fleet_yaml(model="other"))
    other = tuner("check-regression", "slow", "--against", "other.yaml")
    assert other.exit_code == 2
    assert "--against: must be a study of fake fake, got fake other" in other.stderr


@pytest.mark.parametrize(
    ("ratio", "low", "high", "ok", "words"),
    [
        (1.01, 0.99, 1.03, True, "within 3%"),
        (0.98, 0.97, 0.99, True, "within 3%"),
        (0.90, 0.75, 1.08, True, "slower, but by no more than the noise"),
        (0.90, 0.88, 0.92, False, "no longer within 3%"),
    ],
)
def test_the_verdict(ratio: float, low: float, high: float, ok: bool, words: str) -> None:
    change = Difference("engine", "vllm 0.32.0", "vllm 0.33.0")
    report = RegressionReport(Interval(ratio, low, high, 4), "big's trial 5", 0.03, (change,))
    first, second = regression_lines(report)
    assert report.ok is ok
    assert (
        first == f"The bundle is {ratio:.2f}x [{low:.2f}, {high:.2f}] of big's trial 5: {words}."
    )
    assert second == "  engine: confirmed with vllm 0.32.0, now vllm 0.33.0"
