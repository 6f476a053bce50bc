"""What is legal in a study and probably not meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.loader import load_study

STUDY = """
name: cautious
engine: {{kind: sglang, model: m, args: {{tp-size: 8{args}}}, env: {{{env}}}}}
space: {{parameters: {{{parameters}}}}}
workload: {{prompts: {{builtin: mixed}}{workload}}}
objective: {{maximize: {metric}}}
"""


def cautions(
    folder: Path,
    *,
    parameters: str = "steps: {flag: x, int: [1, 2]}",
    args: str = "",
    env: str = "",
    workload: str = "",
    metric: str = "output_tokens_per_s",
) -> list[str]:
    path = folder / "study.yaml"
    path.write_text(
        STUDY.format(parameters=parameters, args=args, env=env, workload=workload, metric=metric)
    )
    prefix = f"{path}:"
    warnings = load_study(path).warnings
    assert all(warning.startswith(prefix) for warning in warnings)
    return [warning.removeprefix(prefix) for warning in warnings]


def test_a_plain_study_has_none(tmp_path: Path) -> None:
    assert cautions(tmp_path) == []


def test_ll128_offered(tmp_path: Path) -> None:
    found = cautions(tmp_path, parameters="p: {env: NCCL_PROTO, choices: [unset, 'LL,LL128']}")
    assert found == [
        "4:22: space.parameters.p: LL128 gives wrong data on some links without an error; "
        "outputs must be compared"
    ]
    assert cautions(tmp_path, parameters="p: {env: NCCL_PROTO, choices: [unset, ^LL128]}") == []


def test_an_nccl_variable_without_unset(tmp_path: Path) -> None:
    (found,) = cautions(tmp_path, parameters="p: {env: NCCL_ALGO, choices: [Ring, Tree]}")
    assert found.endswith(
        "NCCL_ALGO has no choice `unset`; NCCL's own selection is never measured"
    )


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (
            "{flag: speculative-accept-threshold-acc, choices: [0.9, 1.0]}",
            "would not have written; a server that uses it is marked lossy",
        ),
        (
            "{flag: max-running-requests, choices: [8, 16]}",
            "limits how many requests run at once; the load belongs to workload",
        ),
        ("{flag: x, choices: [1]}", "has only one value; it is a fixed setting"),
        (
            "{env: NCCL_WARP_SPEED, choices: [unset, 1]}",
            "NCCL_WARP_SPEED is in no NCCL documentation; NCCL may ignore it",
        ),
        (
            "{env: NCCL_DEBUG, choices: [unset, INFO]}",
            "NCCL_DEBUG writes logs while servers are measured",
        ),
    ],
)
def test_parameters(tmp_path: Path, parameter: str, text: str) -> None:
    (found,) = cautions(tmp_path, parameters=f"p: {parameter}")
    assert found.startswith("4:22: space.parameters.p: ")
    assert found.endswith(text)


def test_the_rest_of_the_study(tmp_path: Path) -> None:
    found = cautions(
        tmp_path,
        parameters="",
        args=", kv-cache-dtype: fp8_e5m2",
        env="NCCL_WARP_SPEED: 1",
        workload=", held_out: 0, temperature: 0.7, cache: keep",
    )
    assert [line.split(": ", 2)[1:] for line in found] == [
        ["space", "has no parameters; only the baseline is measured"],
        ["workload.held_out", "is 0; nothing can be confirmed, so nothing is recommended"],
        [
            "workload.temperature",
            "is above 0; answers are compared as distributions",
        ],
        [
            "workload.cache",
            "keeps the prompt cache; repeated prompts make ttft look better than it is",
        ],
        ["engine.args.kv-cache-dtype", "changes what the model writes, in the baseline as well"],
        ["engine.env.NCCL_WARP_SPEED", "is in no NCCL documentation; NCCL may ignore it"],
    ]


@pytest.mark.parametrize(("env", "said"), [("NCCL_DEBUG: INFO", 1), ("NCCL_DEBUG: null", 0)])
def test_debugging_while_servers_are_measured(tmp_path: Path, env: str, said: int) -> None:
    found = cautions(tmp_path, env=env)
    assert [text.partition(": engine")[2] for text in found] == [
        ".env.NCCL_DEBUG: writes logs while servers are measured"
    ] * said


@pytest.mark.parametrize(
    ("args", "topk", "is_told"),
    [
        (", page-size: 64", "[1, 4]", True),
        (", page-size: 64", "[1]", False),
        (", page-size: 1", "[1, 4]", False),
        ("", "[1, 4]", False),
        (", page-size: 64, attention-backend: fa3", "[1, 4]", False),
    ],
)
def test_pages_and_trees_with_a_backend_that_the_server_chooses(
    tmp_path: Path, args: str, topk: str, is_told: bool
) -> None:
    numbers = "s: {flag: speculative-num-steps, choices: [3, 4]}, "
    numbers += "d: {flag: speculative-num-draft-tokens, choices: [4, 8]}, "
    numbers += f"k: {{flag: speculative-eagle-topk, choices: {topk}, note: meant}}"
    found = cautions(tmp_path, parameters=numbers, args=args)
    told = [text for text in found if "page-size: is above 1 and topk may be too" in text]
    assert len(told) == is_told
