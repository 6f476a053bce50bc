"""One study whose servers fail in the ways that servers fail in the field: each is told by its
kind, costs a bounded time and one launch, and the good one wins all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tuner = Callable[..., Any]
StudyYaml = Callable[..., str]
COMBINATION = "ValueError: Speculative decoding is not supported with this attention backend"


def planted(steps: int, **then: Any) -> dict[str, Any]:
    return {"when": {"spec-steps": [steps]}, "then": then}


FAULTS = [
    planted(1, exit_code=1, exit_log=COMBINATION),
    planted(2, exit_code=1, exit_log="torch.OutOfMemoryError: CUDA out of memory"),
    planted(3, silent_after=3),
    planted(4, worker_dies_at_request=5),
    planted(5, die_at_request=6, die_signal="SIGABRT", exit_log="GGML_ASSERT(n <= size)"),
    planted(6, reject_share=0.5),
]
KINDS = {1: "launch_crash", 2: "out_of_memory", 3: "stalled", 4: "died", 5: "died",
         6: "request_errors"}  # fmt: skip


@pytest.fixture
def study(work: Path, tuner: Tuner, study_yaml: StudyYaml) -> Callable[..., Any]:
    """Run a study to its end; typer's result and the JSON document."""

    def go(behaviour: dict[str, Any], parameters: dict[str, Any], **sections: Any) -> Any:
        common = {"step_ms": 8, "acceptance": [1] * 8, "answer_tokens": 8, **behaviour}
        engine = {"behaviour": common, **sections.pop("engine", {})}
        text = study_yaml(engine=engine, space={"parameters": parameters}, **sections)
        (work / "demo.yaml").write_text(text)
        result = tuner("run", "demo.yaml", "--json")
        assert result.exit_code == 0, result.stderr
        return result, json.loads(result.stdout)

    return go


def test_bad_servers_cost_one_launch_each_and_the_good_one_wins(
    study: Callable[..., Any], work: Path
) -> None:
    """`keep_going` is not needed: the failures differ, so the host is not at fault."""
    _, document = study(
        {"overrides": FAULTS},
        {"steps": {"flag": "spec-steps", "choices": [1, 2, 3, 4, 5, 6, 7]}},
        search={"baseline_every": 0},
        workload={"timeouts": {"first_token": 2, "between_chunks": 2}},
    )
    trials = {t["params"]["steps"]: t for t in document["trials"] if t["params"]}
    found = {steps: trials[steps]["failure"] for steps in KINDS}
    assert found.pop(4) in ("died", "stalled"), "whichever of two watchers is first"
    assert found == {steps: kind for steps, kind in KINDS.items() if steps != 4}
    assert all(trials[steps]["state"] == "failed" for steps in KINDS)
    assert all(trials[steps]["value"] is None for steps in KINDS)
    assert trials[1]["reason"].endswith(COMBINATION)
    assert "SIGABRT" in trials[5]["reason"]
    assert "GGML_ASSERT" in trials[5]["reason"]
    assert all(t["seconds"]["total"] < 30 for t in trials.values())
    assert trials[7]["state"] == "complete"
    found = document["recommendation"]
    assert (found["verdict"], found["trial"]) == ("use", trials[7]["number"])
    assert len([*work.glob("results/*/trials/*/server.log")]) == 8, "the baseline and each once"


def test_a_forced_protocol_that_garbles_answers_is_never_recommended(
    study: Callable[..., Any],
) -> None:
    """NCCL issue 740: LL128 where 128-byte stores are not ordered; fastest, wrong, no error."""
    garbled = {"when": {"env:NCCL_PROTO": "LL128"},
               "then": {"garbage": True, "garbage_speedup": 3.0}}  # fmt: skip
    _, document = study(
        {"overrides": [garbled]},
        {
            "steps": {"flag": "spec-steps", "choices": [3]},
            "proto": {"env": "NCCL_PROTO", "choices": ["unset", "LL128"]},
        },
        confirm={"finalists": 2, "rounds": 2, "max_rounds": 2},
        fidelity={"compare": "greedy_text"},
    )
    by_proto = {t["params"]["proto"]: t for t in document["trials"] if t["params"]}
    assert by_proto["LL128"]["vs_baseline"] > by_proto["unset"]["vs_baseline"]
    found = document["recommendation"]
    assert found["trial"] != by_proto["LL128"]["number"]
    assert any("changes the answers (output_mismatch)" in text for text in found["reasons"])


def test_a_draft_that_decays_or_falls_short_is_told(study: Callable[..., Any]) -> None:
    """Acceptance length 4, less with every request; its paper says 5."""
    _, document = study(
        {"acceptance": [1.0] * 3, "acceptance_loss_per_request": 0.02, "answer_tokens": 40},
        {"steps": {"flag": "spec-steps", "choices": [3]}},
        engine={"args": {"draft-model": "/d"}},
        workload={"blocks": 5, "block_size": 4, "output_tokens": {"max": 40}},
        search={"expected_acceptance_length": 5.0},
    )
    (trial,) = (t for t in document["trials"] if t["params"])
    assert any(text.startswith("acceptance length fell from 3") for text in trial["warnings"])
    (said,) = (r for r in document["recommendation"]["reasons"] if "were expected" in r)
    assert said.startswith("Acceptance length is ")
    assert "5.00 were expected: the draft may be wired wrongly" in said
