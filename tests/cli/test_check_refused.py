"""`tuner check` where SGLang would refuse: every illegal server is counted under its rule's name,
and a space without any legal server is an answer, not a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.cli.check import check_lines, check_study
from tuner.config.loader import load_study
from tuner.errors import ConfigError

CHAIN = {"speculative-algorithm": "EAGLE3", "speculative-eagle-topk": 1}
TREE = {"speculative-algorithm": "EAGLE3", "speculative-eagle-topk": 4,
        "speculative-num-draft-tokens": 8}  # fmt: skip
STEPS = {"steps": {"flag": "speculative-num-steps", "int": [2, 3]}}
PROTO = {"proto": {"env": "NCCL_PROTO", "choices": ["LL", "Simple"]}}


def study(work: Path, args: dict[str, Any], parameters: dict[str, Any], **engine: Any) -> Path:
    document = {
        "name": "refused",
        "engine": {"kind": "sglang", "model": "/m", "executable": "/nowhere/python",
                   "draft_model": "/d", "args": args, **engine},
        "space": {"parameters": parameters},
        "workload": {"prompts": {"builtin": "mixed"}},
        "objective": {"maximize": "output_tokens_per_s"},
    }  # fmt: skip
    path = work / "refused.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("args", "parameters", "env", "rule"),
    [
        ({**CHAIN, "speculative-algorithm": "EAGEL3"}, STEPS, {}, "algorithm-known"),
        ({**TREE, "attention-backend": "trtllm_mha"}, STEPS, {}, "chain-only-backend"),
        ({**TREE, "attention-backend": "fa4", "page-size": 64}, STEPS, {}, "paged-tree"),
        ({**TREE, "attention-backend": "torch_native"}, STEPS, {}, "draft-backend"),
        ({**TREE, "speculative-use-rejection-sampling": True}, STEPS, {}, "rejection-sampling"),
        ({**TREE, "nnodes": 2}, STEPS, {}, "one-node"),
        ({**TREE, "pp-size": 2}, STEPS, {}, "pipeline"),
        ({**TREE, "chunked-prefill-size": 1000, "page-size": 64}, STEPS, {}, "chunk-of-pages"),
        ({"speculative-algorithm": "DFLASH", "device": "cpu"}, STEPS, {}, "device"),
        ({**TREE, "tp-size": 2}, STEPS, {"NCCL_PROTO": "Fast"}, "nccl-value"),
        ({**TREE, "tp-size": 2}, STEPS, {"NCCL_PROTO": "LL\n"}, "nccl-value"),
        ({**TREE, "tp-size": 2}, STEPS, {"NCCL_MAX_NCHANNELS": "0"}, "nccl-value"),
        ({"tp-size": 2, "enable-deterministic-inference": True},
         {"algo": {"env": "NCCL_ALGO", "choices": ["Ring", "Tree"]}}, {}, "nccl-deterministic"),
    ],
)  # fmt: skip
def test_a_space_without_a_legal_server_is_answered(
    work: Path, args: dict[str, Any], parameters: dict[str, Any], env: dict[str, str], rule: str
) -> None:
    report = check_study(study(work, args, parameters, env=env))
    document = report.to_json()
    assert document["space"]["distinct"] == 0
    assert document["ok"] is False
    (error,) = document["errors"]
    assert error["path"] == "space"
    assert f"all infeasible: {document['space']['points']} by {rule} (" in error["message"]
    text = "\n".join(check_lines(report))
    assert rule in text
    assert "0 distinct servers" in text


def test_one_gpu_has_nothing_to_reduce(work: Path) -> None:
    path = study(work, {"tp-size": 1}, PROTO)
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    assert "must not be searched on one GPU" in str(caught.value.problems[0])


def test_a_space_without_a_legal_server_is_never_launched(
    work: Path, study_yaml: Callable[..., str], tuner: Callable[..., Any]
) -> None:
    """Its baseline alone would cost a launch and tell nothing."""
    tree = {
        "steps": {"flag": "spec-steps", "choices": [1]},
        "topk": {"flag": "spec-topk", "choices": [2]},
        "tokens": {"flag": "spec-draft-tokens", "choices": [32, 64]},
    }
    (work / "none.yaml").write_text(study_yaml(space={"parameters": tree}))
    checked, ran = tuner("check", "none.yaml"), tuner("run", "none.yaml")
    assert (checked.exit_code, ran.exit_code) == (2, 2)
    for found in (checked, ran):
        assert "must hold a server that may be launched, got 2 points" in found.stderr
        assert "all infeasible: 2 by " in found.stderr
    assert not [*work.glob("results/*/trials/*")]
