"""A finished study with one trial of every state, and comparison with golden screens."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.store.database import StudyMeta, open_store
from tuner.store.place import note_place, place_of
from tuner.store.record import (
    AcceptanceRecord,
    ArgsRecord,
    FinalistRecord,
    LoadPointRecord,
    PruneDecision,
    RecommendationRecord,
    Seconds,
    TrialRecord,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "screens"

Golden = Callable[[str, str], None]


@pytest.fixture
def golden() -> Golden:
    """Compare a screen with its golden file; TUNER_WRITE_GOLDEN=1 rewrites the files."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if os.environ.get("TUNER_WRITE_GOLDEN") == "1":
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8")
        shown = difflib.unified_diff(expected.splitlines(), text.splitlines(), lineterm="")
        assert text == expected, f"{name} changed:\n" + "\n".join(shown)

    return compare


def _measured(number: int, params: dict[str, object], value: float, half: float) -> TrialRecord:
    versus = value / 1912.0
    length = 1 + 1.19 * versus
    return TrialRecord(
        number=number,
        state="complete",
        params=params,
        requested_args=ArgsRecord(
            flags={"model-path": "/models/big", "speculative-num-steps": params["steps"]},
            env={"NCCL_ALGO": "Ring", "CUDA_LAUNCH_BLOCKING": None},
        ),
        effective_args={"speculative-num-steps": params["steps"], "page-size": 1},
        digest=f"{number:016x}",
        effective_digest=f"{number + 100:016x}",
        value=value,
        half_width=half,
        vs_baseline=versus,
        predicted=versus * 0.98,
        acceptance_length=length,
        acceptance_per_position=[0.71, 0.52, 0.38],
        acceptance=AcceptanceRecord(length=length, rate=0.54, basis="/server_info"),
        metrics={"output_tokens_per_s": value, "ttft_p95_ms": 176.0, "tpot_p50_ms": 3.14},
        load_points=[
            LoadPointRecord(
                load="c1",
                metrics={"output_tokens_per_s": value, "ttft_p95_ms": 176.0, "tpot_p50_ms": 3.14},
                per_block={"output_tokens_per_s": [value - 40, value, value + 40]},
                requests=48,
            ),
            LoadPointRecord(
                load="c8",
                metrics={"output_tokens_per_s": value * 4, "ttft_p95_ms": 402.0},
                per_block={"output_tokens_per_s": [value * 4 - 90, value * 4, value * 4 + 90]},
                requests=48,
                errors=1,
            ),
        ],
        cycle={"draft": 0.0031, "verify": 0.0192, "other": 0.0007},
        seconds=Seconds(launch=96.0, warm_up=11.0, measure=125.0, stop=6.0, total=238.0),
        started_utc="2026-11-02T09:14:03Z",
        finished_utc="2026-11-02T09:18:01Z",
        log_path="trials/1/server.log",
    )


@pytest.fixture
def trials() -> list[TrialRecord]:
    """One trial of every state."""
    baseline = TrialRecord(
        number=0,
        state="baseline",
        value=1912.0,
        half_width=14.0,
        vs_baseline=1.0,
        metrics={"output_tokens_per_s": 1912.0, "ttft_p95_ms": 182.0},
        load_points=[
            LoadPointRecord(
                load="c1",
                metrics={"output_tokens_per_s": 1912.0, "ttft_p95_ms": 182.0},
                per_block={"output_tokens_per_s": [1900.0, 1912.0, 1924.0]},
                requests=48,
            )
        ],
        seconds=Seconds(launch=90.0, warm_up=10.0, measure=116.0, stop=5.0, total=221.0),
    )
    pruned = TrialRecord(
        number=2,
        state="pruned",
        params={"steps": 7, "topk": 1},
        value=1684.0,
        half_width=52.0,
        vs_baseline=0.88,
        acceptance_length=1.42,
        prune=PruneDecision(
            after_block=4, blocks=6, ratio=0.88, upper=0.93, margin=0.02, reference=0
        ),
        seconds=Seconds(total=178.0),
    )
    failed = TrialRecord(
        number=3,
        state="failed",
        failure="out_of_memory",
        reason="CUDA out of memory at graph capture",
        hint="Lower mem-fraction-static or cuda-graph-max-bs-decode.",
        params={"steps": 5, "topk": 8},
        seconds=Seconds(total=48.0),
    )
    infeasible = TrialRecord(
        number=4,
        state="infeasible",
        failure="infeasible",
        reason="draft 8 > 3 for steps=1 topk=2",
        params={"steps": 1, "topk": 2, "draft_tokens": 8},
    )
    reused = _measured(6, {"steps": 3, "topk": 1, "draft_tokens": 4}, 2574.0, 31.0)
    return [
        baseline,
        _measured(1, {"steps": 3, "topk": 1}, 2574.0, 31.0),
        pruned,
        failed,
        infeasible,
        _measured(5, {"steps": 4, "topk": 1}, 2661.0, 28.0),
        reused.model_copy(
            update={
                "state": "reused",
                "twin_of": 1,
                "reason": "same server as trial 1",
                "seconds": Seconds(),
            }
        ),
    ]


@pytest.fixture
def recommendation() -> RecommendationRecord:
    """Trial 5, confirmed."""
    return RecommendationRecord(
        verdict="use",
        trial=5,
        server_args=ArgsRecord(
            flags={"model-path": "/models/big", "speculative-num-steps": 4},
            env={"NCCL_ALGO": "Ring"},
        ),
        digest=f"{5:016x}",
        ratio=1.38,
        low=1.36,
        high=1.40,
        fidelity="98 % of answers identical, as often as the baseline with itself",
        smallest_detectable=1.02,
        reasons=[
            "Trials 5 and 1 differ by less than the noise (0.3% < 1.1%); "
            "the simpler server is preferred."
        ],
        finalists=[
            FinalistRecord(
                trial=5, digest=f"{5:016x}", ratio=1.38, low=1.36, high=1.40, launches=4
            ),
            FinalistRecord(
                trial=1, digest=f"{1:016x}", ratio=1.34, low=1.31, high=1.37, launches=4
            ),
        ],
        objective="maximize output_tokens_per_s",
        load="c1",
        finished_utc="2026-11-02T11:40:00Z",
    )


@pytest.fixture
def keep_baseline() -> RecommendationRecord:
    """No finalist beat the baseline."""
    return RecommendationRecord(
        verdict="keep_baseline",
        ratio=1.0,
        low=1.0,
        high=1.0,
        smallest_detectable=1.02,
        reasons=["Acceptance length is 1.08: the draft is almost never accepted."],
        finalists=[
            FinalistRecord(trial=9, digest="9" * 16, ratio=1.01, low=0.99, high=1.03, launches=4)
        ],
        objective="maximize output_tokens_per_s",
        load="c1",
    )


@pytest.fixture
def document() -> dict[str, object]:
    """What a study's row holds about how it was made."""
    return {"fields": {"objective": "maximize output_tokens_per_s", "objective.at": "c1"}}


@pytest.fixture
def stored(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trials: list[TrialRecord],
    recommendation: RecommendationRecord,
    document: dict[str, object],
) -> str:
    """The name of a finished study under results/ of the current folder."""
    monkeypatch.chdir(tmp_path)
    place = place_of("kimi", None)
    with open_store(place.url, create=True) as store:
        store.save_study_meta(StudyMeta("kimi", "kimi", 1, "2026-11-02T09:00:00Z", document))
        for trial in trials:
            store.save_trial("kimi", trial)
        store.save_recommendation("kimi", recommendation)
    note_place(place)
    return "kimi"
