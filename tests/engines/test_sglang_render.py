"""Flags as words and as `--config` YAML, judged by an independent merger of SGLang's rules."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuner.args import ServerArgs
from tuner.engines.sglang import flags as F
from tuner.engines.sglang.render import (
    ENV_NAME,
    YAML_NAME,
    argv_of,
    flag_words,
    further_flags,
    parse_files,
    parse_yaml,
    render_files,
    render_yaml,
)

SWITCHES = ("enable-metrics", "trust-remote-code", "disable-radix-cache")


def parser() -> argparse.ArgumentParser:
    """Options of every kind that SGLang's parser has."""
    made = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=True)
    for name in SWITCHES:
        made.add_argument(f"--{name}", action="store_true")
    made.add_argument("--tp-size", "--tensor-parallel-size", type=int)
    made.add_argument("--mem-fraction-static", type=float)
    made.add_argument("--model-path", "--model")
    made.add_argument("--chat-template")
    made.add_argument("--cuda-graph-bs-decode", type=int, nargs="+")
    made.add_argument("--custom-weight-loader", nargs="*")
    made.add_argument("--cuda-graph-config", type=json.loads)
    made.add_argument("--enable-tf32-matmul", action=argparse.BooleanOptionalAction)
    made.add_argument("--disable-cuda-graph", action="store_const", const=True)
    return made


def merged(text: str, further: list[str]) -> list[str]:
    """What SGLang's merger makes of a file and the words after it, written from its rules."""
    words: list[str] = []
    for key, value in (yaml.safe_load(text) or {}).items():
        assert key not in F.NOT_IN_YAML, f"Unsupported config option {key}"
        if isinstance(value, bool):
            words += [f"--{key}"] if value else []  # every boolean here is a switch
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            words += [f"--{key}", json.dumps(value)]
        else:
            words += [f"--{key}", str(value)]
    return words + further


def deployed(args: ServerArgs) -> dict[str, Any]:
    further = [w for name, value in further_flags(args).items() for w in flag_words(name, value)]
    return vars(parser().parse_args(merged(render_yaml(args), further)))


TEXTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), min_size=1
)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.just(True) for name in SWITCHES},
        "tp-size": st.integers(1, 64),
        "mem-fraction-static": st.floats(0.01, 0.99),
        "model-path": TEXTS,
        "chat-template": st.one_of(
            TEXTS, st.sampled_from(["off", "null", "3", "-x", "--tp", "~"])
        ),
        "cuda-graph-bs-decode": st.lists(st.integers(1, 512), min_size=1, max_size=4),
        "custom-weight-loader": st.lists(TEXTS.filter(lambda t: not t.startswith("-"))),
        "cuda-graph-config": st.dictionaries(
            TEXTS, st.one_of(TEXTS, st.integers(), st.booleans())
        ),
        "enable-tf32-matmul": st.booleans(),
        "disable-cuda-graph": st.just(True),
    },
)


@given(FLAGS)
def test_the_deployed_server_is_the_measured_one(flags: dict[str, Any]) -> None:
    args = ServerArgs(flags)
    assert deployed(args) == vars(parser().parse_args(argv_of(args)))


@given(FLAGS, st.dictionaries(st.from_regex(r"[A-Z_]{1,9}", fullmatch=True), st.none() | TEXTS))
def test_files_give_the_server_back(flags: dict[str, Any], env: dict[str, str | None]) -> None:
    args = ServerArgs(flags, env)
    files = render_files(args)
    assert set(files) == {YAML_NAME, ENV_NAME}
    assert parse_files(files) == args


def test_the_file_is_what_sglang_wants() -> None:
    text = render_yaml(
        ServerArgs({
            "model-path": "/m", "tp-size": 8, "trust-remote-code": True, "log-level": "off",
            "mem-fraction-static": 0.85, "cuda-graph-bs-decode": [1, 2],
            "cuda-graph-config": {"decode": {"backend": "full"}}, "disable-cuda-graph": True,
            "disable-radix-cache": False, "enable-tf32-matmul": False,
        })
    )  # fmt: skip
    assert text.splitlines() == [
        "cuda-graph-bs-decode:",
        "- 1",
        "- 2",
        "cuda-graph-config:",
        "  decode:",
        "    backend: full",
        "log-level: 'off'",
        "mem-fraction-static: 0.85",
        "model-path: /m",
        "tp-size: 8",
        "trust-remote-code: true",
        '# further arguments: {"disable-cuda-graph": true, "enable-tf32-matmul": false}',
    ]


def test_words_of_every_kind() -> None:
    assert flag_words("a", True) == ["--a"]
    assert flag_words("a", False) == []
    assert flag_words("dllm-fdfo", False) == ["--no-dllm-fdfo"]
    assert flag_words("a", []) == []
    assert flag_words("a", [1, "b"]) == ["--a", "1", "b"]
    assert flag_words("a", {"b": True}) == ["--a", '{"b": true}']
    assert flag_words("a", "-x") == ["--a=-x"]
    assert flag_words("a", 1.0) == ["--a", "1.0"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 1", "must be a mapping of flags"),
        ("a: [", "must be YAML"),
        ("tp_size: 8", "tp_size: must be a hyphenated flag name"),
        ("tp-size: null", "tp-size: must have a value"),
        ("3: 4", "3: must be a hyphenated"),
        ("disable-cuda-graph: true", "disable-cuda-graph: must follow --config"),
        ("day: 2026-01-01", "day: must be plain data"),
    ],
)
def test_what_sglang_would_refuse_is_refused_with_its_key(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_yaml(text)


def test_missing_and_broken_files_are_named() -> None:
    with pytest.raises(ValueError, match=r"server\.yaml: must exist"):
        parse_files({"x": ""})
    with pytest.raises(ValueError, match=r"server\.env: line 1"):
        parse_files({YAML_NAME: "", ENV_NAME: "3"})
    with pytest.raises(ValueError, match="must be a JSON object"):
        parse_files({YAML_NAME: "# further arguments: {\n"})
    assert parse_files({YAML_NAME: ""}) == ServerArgs()
