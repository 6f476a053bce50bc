"""Command lines that people run become studies that the loader accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.cli.command_line import read_command
from tuner.cli.init import Wish, write_starter
from tuner.cli.migration import starter_from
from tuner.config.loader import LoadedStudy, load_study
from tuner.errors import UsageError
from tuner.space import build_space

SGLANG = """\
SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 NCCL_ALGO=Ring python3 -m sglang.launch_server \\
    --model-path /models/Llama-3.1-8B --tp 2 --host 0.0.0.0 --port 30000 \\
    --speculative-algorithm EAGLE3 --speculative-draft-model-path /models/eagle3 \\
    --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 \\
    --mem-fraction-static 0.75 --cuda-graph-max-bs=16 --trust-remote-code --dtype float16
"""
VLLM = (
    "/opt/venv/bin/vllm serve meta-llama/Llama-3.3-70B -tp 4 --max-num-seqs 64 --api-key secret "
    '--speculative_config \'{"method": "eagle3", "model": "yuhuili/E3", '
    '"num_speculative_tokens": 12, "draft_tensor_parallel_size": 1}\' --no-enable-prefix-caching'
)
LLAMA = (
    "docker run -e GGML_X=1 image /app/llama-server -m /models/q.gguf -md /models/draft.gguf "
    "-c 8192 -np 4 --draft-max 16 --jinja -ngl 99"
)


def loaded(folder: Path, command: str) -> LoadedStudy:
    paths = write_starter(Wish(folder, command=command))
    study = load_study(paths[0])
    space = build_space(study)
    assert all(point in list(space.points()) for point in space.start)
    return study


@pytest.mark.parametrize(
    ("command", "engine", "executable", "flags"),
    [
        ("python -m sglang.launch_server --tp 2", "sglang", "", {"tp-size": 2}),
        (
            "/v/bin/python -m vllm.entrypoints.cli.main serve m",
            "vllm",
            "/v/bin/python",
            {"model": "m"},
        ),
        ("python3.11 -m vllm.entrypoints.openai.api_server --model m", "vllm", "", {"model": "m"}),
        ("/v/bin/vllm serve m", "vllm", "/v/bin/python", {"model": "m"}),
        ("sglang serve --model-path m", "sglang", "", {"model-path": "m"}),
        ("python -m tuner.embedded -m q.gguf", "llamacpp", "bundled", {"model": "q.gguf"}),
        ("/v/bin/python -m tuner.embedded -c 8", "llamacpp", "/v/bin/python", {"ctx-size": 8}),
        ("/l/llama-server -m q.gguf", "llamacpp", "/l/llama-server", {"model": "q.gguf"}),
    ],
)
def test_what_starts_a_server(
    command: str, engine: str, executable: str, flags: dict[str, Any]
) -> None:
    found = read_command(command)
    assert (found.engine, found.executable, found.flags) == (engine, executable, flags)


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("--a.b 1 --a.c 2", {"a": {"b": 1, "c": 2}}),
        ("--a '{\"b\": 1}' --a.c 2", {"a": {"b": 1, "c": 2}}),
        ("--a.b.c 1 --a.b.d 2", {"a": {"b": {"c": 1, "d": 2}}}),
        ("--a 3 --a.b 4", {"a": {"b": 4}}),  # as argparse does: the last word counts
        ("--a.b.c 1 --a.b 2", {"a": {"b": 2}}),
        ("--a.b 2 --a.b.c 1", {"a": {"b": {"c": 1}}}),
        ("--x_y-z 1 --k=v --on --off false", {"x-y-z": 1, "k": "v", "on": True, "off": False}),
        ("--n -5 --f 0.25 --z 007 --l 1 2 3", {"n": -5, "f": 0.25, "z": "007", "l": [1, 2, 3]}),
    ],
)
def test_flags_and_their_values(words: str, flags: dict[str, Any]) -> None:
    assert read_command(f"vllm serve m {words}").flags == {"model": "m", **flags}


def test_sglang(tmp_path: Path) -> None:
    study = loaded(tmp_path, SGLANG)
    engine = study.config.engine
    assert (engine.kind, engine.model) == ("sglang", "/models/Llama-3.1-8B")
    assert engine.draft_model == "/models/eagle3"
    assert engine.executable is None
    assert engine.args == {
        "tp-size": 2,
        "speculative-algorithm": "EAGLE3",
        "mem-fraction-static": 0.75,
        "cuda-graph-max-bs": 16,
        "trust-remote-code": True,
        "dtype": "float16",
    }
    assert engine.env == {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1", "NCCL_ALGO": "Ring"}
    assert study.config.space.start == [{"steps": 5, "topk": 8, "draft_tokens": 64}]
    assert study.parameters["draft_tokens"].values() == (4, 8, 16, 32, 64)
    assert "# Left out: --host; the tuner sets or needs none." in study.text


def test_sglang_with_one_branch_has_no_draft_tokens_to_search(tmp_path: Path) -> None:
    command = SGLANG.replace("topk 8", "topk 1").replace("tokens 64", "tokens 6")
    assert loaded(tmp_path, command).config.space.start == [{"steps": 5, "topk": 1}]


def test_vllm(tmp_path: Path) -> None:
    study = loaded(tmp_path, VLLM)
    engine = study.config.engine
    assert (engine.kind, engine.model) == ("vllm", "meta-llama/Llama-3.3-70B")
    assert engine.executable == "/opt/venv/bin/python"
    assert engine.draft_model == "yuhuili/E3"
    assert engine.args == {
        "tensor-parallel-size": 4,
        "max-num-seqs": 64,
        "speculative-config": {"method": "eagle3", "draft_tensor_parallel_size": 1},
        "no-enable-prefix-caching": True,
    }
    assert study.config.space.start == [{"depth": 12}]
    assert study.parameters["depth"].values() == tuple(range(1, 13))
    assert "secret" not in study.text


def test_llamacpp(tmp_path: Path) -> None:
    study = loaded(tmp_path, LLAMA)
    engine = study.config.engine
    assert (engine.kind, engine.model) == ("llamacpp", "/models/q.gguf")
    assert engine.draft_model == "/models/draft.gguf"
    assert engine.executable == "/app/llama-server"
    assert engine.env == {"GGML_X": "1"}
    assert engine.args == {
        "ctx-size": 8192,
        "parallel": 4,
        "jinja": True,
        "n-gpu-layers": 99,
        "spec-type": "draft-simple",
    }
    assert study.config.space.start == [{"depth": 16, "p_min": 0.0}]


@pytest.mark.parametrize(
    ("command", "args", "start"),
    [
        (
            "llama-server -m q.gguf --spec-type ngram-simple --spec-ngram-simple-size-n 6",
            {},
            [{"method": "ngram-simple", "simple_n": 6, "simple_m": 48}],
        ),
        ("llama-server -m q.gguf --spec-type ngram-mod", {}, [{"method": "ngram-mod"}]),
        ("llama-server -m q.gguf", {}, []),
        (
            "vllm serve q --speculative-config.method ngram "
            "--speculative-config.num_speculative_tokens 5 "
            "--speculative-config.prompt_lookup_max 4",
            {"speculative-config": {"method": "ngram"}},
            [{"depth": 5, "lookup_max": 4}],
        ),
        (
            "python -m vllm.entrypoints.openai.api_server --model q --quantization fp8",
            {"quantization": "fp8", "speculative-config": {"method": "ngram"}},
            [],
        ),
        (
            "sglang serve --model-path q --speculative-algorithm NGRAM "
            "--speculative-num-draft-tokens 20",
            {"speculative-algorithm": "NGRAM"},
            [{"draft_tokens": 20, "breadth": 10}],
        ),
    ],
)
def test_other_methods(
    tmp_path: Path, command: str, args: dict[str, Any], start: list[dict[str, Any]]
) -> None:
    study = loaded(tmp_path, command)
    assert study.config.engine.args == args
    assert study.config.space.start == start


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python -m http.server", "must start sglang, vllm or llama-server"),
        ("", "must start sglang, vllm or llama-server"),
        ("vllm serve 'open", "must be a shell command, got: No closing quotation"),
        ("python -m sglang.launch_server --tp 2", "must name the model"),
    ],
)
def test_other_texts_are_refused(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        starter_from(command)


def test_repeated_values_and_signs() -> None:
    found = read_command(
        "sglang serve --model-path m --lora-paths a=/x b=/y --bias -0.5 --name -1x --flag"
    )
    assert found.flags == {
        "model-path": "m",
        "lora-paths": ["a=/x", "b=/y"],
        "bias": -0.5,
        "name": "-1x",
        "flag": True,
    }


@given(st.text(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        starter_from(f"vllm serve model {text}")
    except UsageError:
        return
