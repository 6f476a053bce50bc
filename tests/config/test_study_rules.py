"""Rules between sections: objective and load, engine and space, files, includes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.loader import load_study
from tuner.errors import ConfigError


def problems(
    folder: Path,
    *,
    engine: str = "{kind: fake}",
    space: str = "{}",
    workload: str = "{prompts: {builtin: mixed}}",
    objective: str = "{maximize: output_tokens_per_s}",
) -> list[str]:
    """Each problem as `path: message`; [] for a study that loads."""
    path = folder / "study.yaml"
    path.write_text(
        f"name: rules\nengine: {engine}\nspace: {space}\nworkload: {workload}\n"
        f"objective: {objective}\n"
    )
    try:
        load_study(path)
    except ConfigError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


TWO_LOADS = "{prompts: {builtin: mixed}, load: [{concurrency: 1}, {rate: 2}]}"


@pytest.mark.parametrize(
    ("workload", "at", "found"),
    [
        ("{prompts: {builtin: mixed}}", "", []),
        ("{prompts: {builtin: mixed}}", ", at: {concurrency: 1}", []),
        (
            "{prompts: {builtin: mixed}}",
            ", at: {concurrency: 2}",
            ["objective.at: must be one of the load points, got concurrency 2"],
        ),
        (TWO_LOADS, "", ["objective.at: must name one of the 2 load points, got none"]),
        (TWO_LOADS, ", at: {rate: 2.0}", []),
        (
            TWO_LOADS,
            ", at: {rate: 2.0, arrivals: constant}",
            ["objective.at: must be one of the load points, got rate 2/s constant"],
        ),
    ],
)
def test_the_load_point_of_the_objective(
    tmp_path: Path, workload: str, at: str, found: list[str]
) -> None:
    objective = f"{{maximize: output_tokens_per_s{at}}}"
    assert problems(tmp_path, workload=workload, objective=objective) == found


def test_the_same_load_twice_by_another_spelling(tmp_path: Path) -> None:
    workload = "{prompts: {builtin: mixed}, load: [{rate: 2}, {rate: 2.0, arrivals: poisson}]}"
    objective = "{maximize: output_tokens_per_s, at: {rate: 2}}"
    assert problems(tmp_path, workload=workload, objective=objective) == [
        "workload.load[1]: must be distinct, got rate 2/s again"
    ]


@pytest.mark.parametrize("text", ["goodput_per_s >= 1", "goodput_per_s > 0.5 * baseline"])
def test_goodput_needs_limits(tmp_path: Path, text: str) -> None:
    objective = f"{{maximize: output_tokens_per_s, constraints: ['{text}']}}"
    assert problems(tmp_path, objective=objective) == [
        "workload.limits: must be given for goodput_per_s"
    ]
    limited = "{prompts: {builtin: mixed}, limits: {ttft_ms: 300}}"
    assert problems(tmp_path, objective=objective, workload=limited) == []


NCCL = "{parameters: {p: {env: NCCL_ALGO, choices: [unset, Ring]}}}"
IDLE = "space.parameters.p.env: must not be searched on one GPU, where NCCL is idle, got NCCL_ALGO"


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        ("{kind: sglang, model: m}", [IDLE]),
        ("{kind: sglang, model: m, args: {tp-size: 1}}", [IDLE]),
        ("{kind: sglang, model: m, args: {tp-size: 8}}", []),
        ("{kind: sglang, model: m, args: {tp: 2}}", []),
        ("{kind: vllm, model: m}", [IDLE]),
        ("{kind: vllm, model: m, args: {pipeline-parallel-size: 2}}", []),
        ("{kind: llamacpp, model: m}", []),
        ("{kind: fake}", []),
    ],
)
def test_nccl_on_one_gpu(tmp_path: Path, engine: str, found: list[str]) -> None:
    assert problems(tmp_path, engine=engine, space=NCCL) == found


def test_nccl_where_the_number_of_gpus_is_searched(tmp_path: Path) -> None:
    space = NCCL.replace("{p:", "{tp: {flag: tp-size, choices: [1, 2]}, p:")
    assert problems(tmp_path, engine="{kind: sglang, model: m}", space=space) == []


STEPS, TOPK, DRAFT = (
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
)


@pytest.mark.parametrize(
    ("args", "parameters", "found"),
    [
        ("", "", []),
        (f", {STEPS}: 3, {TOPK}: 1, {DRAFT}: 4", "", []),
        (f", {STEPS}: 3, {TOPK}: 1", "", []),
        (
            f", {STEPS}: 3, {TOPK}: 2",
            "",
            [
                f"engine.args.{STEPS}: must be given together, got {STEPS} and {TOPK} "
                f"without {DRAFT}"
            ],
        ),
        (
            "",
            f"d: {{flag: {DRAFT}, int: [2, 4]}}",
            [
                f"space.parameters.d.flag: must be given together, got {DRAFT} without "
                f"{STEPS}, {TOPK}"
            ],
        ),
        (f", {TOPK}: 1", f"s: {{flag: {STEPS}, int: [1, 4]}}", []),
    ],
)
def test_eagle_takes_its_three_numbers_together(
    tmp_path: Path, args: str, parameters: str, found: list[str]
) -> None:
    engine = f"{{kind: sglang, model: m, args: {{speculative-algorithm: EAGLE3{args}}}}}"
    assert problems(tmp_path, engine=engine, space=f"{{parameters: {{{parameters}}}}}") == found
    searched = (
        f"{{parameters: {{a: {{flag: speculative-algorithm, choices: [EAGLE]}}, {parameters}}}}}"
    )
    engine = f"{{kind: sglang, model: m, args: {{{args.removeprefix(', ')}}}}}"
    assert problems(tmp_path, engine=engine, space=searched) == found
    ngram = engine.replace("args: {", "args: {speculative-algorithm: NGRAM, ")
    assert problems(tmp_path, engine=ngram, space=f"{{parameters: {{{parameters}}}}}") == []


def test_one_flag_searched_twice_only_as_alternatives(tmp_path: Path) -> None:
    twice = "{parameters: {a: {flag: x, int: [1, 2]}, b: {flag: x, int: [3, 4]}}}"
    assert problems(tmp_path, space=twice) == [
        "space.parameters.b.flag: must not be searched twice, flag x is also a"
    ]
    alternatives = (
        "{parameters: {k: {flag: k, choices: [1, 2]}, a: {flag: x, int: [1, 2], when: k == 1}, "
        "b: {flag: x, int: [3, 4], when: k == 2}}}"
    )
    assert problems(tmp_path, space=alternatives) == []


def test_nothing_is_fixed_and_searched(tmp_path: Path) -> None:
    engine = "{kind: fake, args: {x: 1}, env: {Y: a}}"
    space = "{parameters: {a: {flag: x, int: [1, 2]}, b: {env: Y, choices: [a, b]}}}"
    assert problems(tmp_path, engine=engine, space=space) == [
        "space.parameters.a.flag: must not be searched and fixed, flag x is in engine.args",
        "space.parameters.b.env: must not be searched and fixed, variable Y is in engine.env",
    ]


def test_files_exist_and_a_similar_name_is_offered(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "x"}\n')
    found = tmp_path / "study.yaml"
    assert problems(tmp_path, workload="{prompts: {file: prompts.jsonl}}") == []
    assert problems(tmp_path, workload="{prompts: {file: prompt.jsonl}}") == [
        "workload.prompts.file: must be a prompt file that exists, got prompt.jsonl"
    ]
    with pytest.raises(ConfigError) as caught:
        load_study(found)
    assert caught.value.problems[0].hint == "Did you mean prompts.jsonl?"


def test_space_files_may_include_others(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "one.yaml").write_text(
        "include: [deep/two.yaml]\nparameters:\n  b: {flag: b, int: [1, 2], when: a == 1}\n"
    )
    (tmp_path / "deep" / "two.yaml").write_text("parameters:\n  a: {flag: a, int: [1, 2]}\n")
    assert problems(tmp_path, space="{include: [one.yaml]}") == []
    assert list(load_study(tmp_path / "study.yaml").parameters) == ["a", "b"]
    assert [path.name for path in load_study(tmp_path / "study.yaml").included] == [
        "two.yaml",
        "one.yaml",
    ]


def test_an_unreadable_space_file_is_a_problem_of_that_file(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("parameters: [\n")
    assert problems(tmp_path, space="{include: [space.yaml]}") == [
        ": must be YAML, got a syntax error: expected the node content, but found '<stream end>'"
    ]


def test_a_broken_section_hides_nothing_in_another(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        engine="{kind: nonsense}",
        space="{constraints: ['a >'], parameters: 3}",
        workload="{prompts: 4, load: [{concurrency: 1}, {concurrency: 1}]}",
        objective="{maximize: speed, constraints: [speed]}",
    )
    assert [line.split(": ")[0] for line in found] == [
        "engine.kind",
        "space.constraints[0]",
        "space.parameters",
        "workload.prompts",
        "workload.load[1]",
        "objective.at",
        "objective.maximize",
        "objective.constraints[0]",
    ]


@pytest.mark.parametrize(
    ("kind", "mode", "refused"),
    [
        ("vllm", "flush", "must be a way that vllm has, got flush: only sglang empties its "
         "prompt cache on request"),
        ("vllm", "'off'", "must be a way that vllm has, got off: only llamacpp lets a request go "
         "without a cache"),
        ("sglang", "'off'", "must be a way that sglang has, got off: only llamacpp lets a "
         "request go without a cache"),
        ("llamacpp", "flush", "must be a way that llamacpp has, got flush: only sglang empties "
         "its prompt cache on request"),
        ("sglang", "flush", ""), ("llamacpp", "'off'", ""), ("vllm", "unique", ""),
        ("fake", "flush", ""), ("vllm", "auto", ""),
    ],
)  # fmt: skip
def test_a_way_around_the_cache_that_does_nothing_is_refused(
    tmp_path: Path, kind: str, mode: str, refused: str
) -> None:
    found = problems(
        tmp_path,
        engine=f"{{kind: {kind}, model: m}}",
        workload=f"{{prompts: {{builtin: mixed}}, cache: {mode}}}",
    )
    assert found == ([f"workload.cache: {refused}"] if refused else [])


@pytest.mark.parametrize("metric", ["acceptance_length", "acceptance_rate", "error_rate"])
def test_what_a_baseline_does_not_have_is_no_objective(tmp_path: Path, metric: str) -> None:
    """It would run to its end and call "no gain" what nobody could compare."""
    word = "minimize" if metric == "error_rate" else "maximize"
    assert problems(tmp_path, objective=f"{{{word}: {metric}}}") == [
        f"objective.{word}: must name a metric that the baseline has too, got {metric!r}"
    ]
    bounded = f"{{maximize: output_tokens_per_s, constraints: ['{metric} <= 5']}}"
    assert problems(tmp_path, objective=bounded) == []
