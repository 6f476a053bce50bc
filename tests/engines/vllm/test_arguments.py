"""Names, merging, argv, and the round trip through server.yaml."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuner.args import ServerArgs
from tuner.engines.vllm.arguments import argv, canonical, flag_name, merge, parse, render


def merged(*pairs: tuple[str, Any]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for name, value in pairs:
        merge(flags, name, value)
    return flags


@pytest.mark.parametrize(
    ("written", "name"),
    [("--max_model_len", ("max-model-len", "")), ("tp", ("tensor-parallel-size", "")),
     ("speculative_config.method", ("speculative-config", "method")),
     ("spec-tokens", ("speculative-config", "num_speculative_tokens")),
     ("ngram_prompt_lookup_max", ("speculative-config", "prompt_lookup_max")),
     ("compilation-config.pass_config.fuse", ("compilation-config", "pass_config.fuse"))],
)  # fmt: skip
def test_names(written: str, name: tuple[str, str]) -> None:
    assert flag_name(written) == name


def test_dotted_names_and_mappings_become_one_mapping() -> None:
    flags = merged(
        ("speculative-config", '{"method": "ngram", "prompt-lookup-max": 4}'),
        ("speculative-config.num_speculative_tokens", 3),
        ("spec-model", "/d"),
        ("compilation-config", {"mode": 3}),
        ("compilation-config.pass_config.fuse_norm", True),
    )
    assert flags == {
        "speculative-config": {
            "method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 3, "model": "/d",
        },
        "compilation-config": {"mode": 3, "pass_config": {"fuse_norm": True}},
    }  # fmt: skip


def test_merging_does_not_change_what_was_merged() -> None:
    fixed = {"pass_config": {"a": 1}}
    flags = merged(("compilation-config", fixed), ("compilation-config.pass_config.b", 2))
    assert flags["compilation-config"] == {"pass_config": {"a": 1, "b": 2}}
    assert fixed == {"pass_config": {"a": 1}}


def test_negative_switches_are_the_switch_off() -> None:
    flags = merged(("no-enable-prefix-caching", True), ("no_async_scheduling", False))
    assert flags == {"enable-prefix-caching": False, "async-scheduling": True}


def test_unset_takes_out() -> None:
    flags = merged(("max-num-seqs", 64), ("max-num-seqs", "unset"), ("hf-overrides.x", 1),
                   ("hf-overrides.x", "unset"))  # fmt: skip
    assert flags == {"hf-overrides": {}}


def test_where_a_server_listens_is_not_which_server_it_is() -> None:
    args = canonical({"model": "m", "port": 8000, "host": "0.0.0.0"}, {}, None)
    assert args.flags == {"model": "m"}


def test_false_switches_without_a_negative_form_are_left_out() -> None:
    args = canonical({"disable-log-stats": False, "enable-prefix-caching": False}, {}, None)
    assert args.flags == {"enable-prefix-caching": False}


def test_flags_that_need_speculation_go_with_it() -> None:
    flags = {"per-request-spec-decode-metrics": "summary", "speculative-config": {"method": False}}
    assert canonical(flags, {}, None).flags == {}


def test_argv_has_the_model_first_and_json_by_an_encoder() -> None:
    flags: dict[str, Any] = {
        "model": "/models/a b", "enforce-eager": True, "enable-prefix-caching": False,
        "served-model-name": ["x", "y"], "middleware": ["a.B", "c.D"], "max-num-seqs": 64,
        "speculative-config": {"method": "eagle3", "parallel_drafting": True, "revision": "v'1"},
        "logits-processors": [], "chat-template": "-x",
    }  # fmt: skip
    assert argv(flags) == [
        "/models/a b", "--chat-template=-x", "--no-enable-prefix-caching", "--enforce-eager",
        "--max-num-seqs", "64", "--middleware", "a.B", "--middleware", "c.D",
        "--served-model-name", "x", "y", "--speculative-config",
        '{"method": "eagle3", "parallel_drafting": true, "revision": "v\'1"}',
    ]  # fmt: skip


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
) | st.lists(st.text(max_size=8) | st.integers(), max_size=3)
NAMES = st.from_regex(r"[a-z]{2,6}(-[a-z]{2,6}){0,2}", fullmatch=True).filter(
    lambda name: not name.startswith("no-")
)
ENV = st.dictionaries(
    st.from_regex(r"[A-Z_]{1,8}", fullmatch=True),
    st.none() | st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])),
    max_size=3,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4), ENV)
def test_what_is_rendered_is_read_back(flags: dict[str, Any], env: dict[str, Any]) -> None:
    args = ServerArgs(flags, env)
    assert parse(render(args)).to_json() == args.to_json()


def test_false_is_written_so_that_vllm_reads_it() -> None:
    args = ServerArgs({"enable-prefix-caching": False, "speculative-config": {"a": False}})
    files = render(args)
    assert files["server.yaml"] == (
        "no-enable-prefix-caching: true\nspeculative-config:\n  a: false\n"
    )
    assert parse(files) == args


def test_the_file_is_what_vllm_reads() -> None:
    args = ServerArgs(
        {"model": "/m", "speculative-config": {"method": "ngram", "num_speculative_tokens": 2},
         "enforce-eager": True, "served-model-name": ["a", "b"]},
        {"NCCL_PROTO": "LL", "NCCL_ALGO": None},
    )  # fmt: skip
    files = render(args)
    assert yaml.safe_load(files["server.yaml"]) == dict(args.flags)
    assert files["server.env"] == '# unset NCCL_ALGO\nNCCL_PROTO="LL"\n'


@pytest.mark.parametrize("flags", [{"middleware": ["a"]}, {"lora-modules": [{"name": "x"}]}])
def test_lists_that_the_file_cannot_hold_are_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be a list in vLLM's file"):
        render(ServerArgs(flags))


@pytest.mark.parametrize(
    ("files", "place"),
    [({"server.yaml": "a: [1"}, "server.yaml: must be YAML"),
     ({"server.yaml": "- a"}, "server.yaml: must be a mapping"),
     ({}, "server.yaml: must be a mapping"),
     ({"server.yaml": "a: 1", "server.env": "FOO"}, "server.env: line 1")],
)  # fmt: skip
def test_unreadable_files_name_their_place(files: dict[str, str], place: str) -> None:
    with pytest.raises(ValueError, match=place):
        parse(files)
