"""Effective values, drift and confounders, from server information of real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.engines.sglang.effective import (
    CHANGED_BY_SPECULATION,
    drift_of,
    effective_flags,
    parse_server_info,
    same_value,
)

DATA = Path(__file__).parent / "data" / "sglang"
ASKED = {
    "model-path": "models/tiny",
    "speculative-algorithm": "EAGLE3",
    "speculative-draft-model-path": "models/tiny-eagle3",
    "speculative-num-steps": 2,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 3,
    "enable-metrics": True,
}


def info(name: str) -> dict[str, Any]:
    return parse_server_info((DATA / f"server_info_{name}.json").read_text())


def names(flags: dict[str, Any], effective: dict[str, Any]) -> dict[str, bool]:
    return {d.name: d.is_confounder for d in drift_of(ServerArgs(flags), effective)}


def test_a_real_servers_values_are_read_by_flag_name() -> None:
    values = info("eagle3")
    assert values["speculative-num-steps"] == 2
    assert values["max-running-requests"] == 48
    assert values["attention-backend"] == "triton"
    assert values["effective-max-running-requests-per-dp"] == 48
    assert info("off")["max-running-requests"] is None
    assert info("off")["effective-max-running-requests-per-dp"] > 1000


def test_what_changes_by_itself_or_is_secret_is_left_out() -> None:
    values = info("eagle3")
    by_itself = {"port", "random-seed", "launch-command", "startup-time", "memory-usage"}
    not_ours = {"api-key", "watermark-key", "internal-states", "max-total-num-tokens"}
    assert not (by_itself | not_ours) & values.keys()
    again = json.loads((DATA / "server_info_eagle3.json").read_text())
    again |= {"port": 1, "random_seed": 2, "max_total_num_tokens": 3, "status": "x"}
    assert parse_server_info(json.dumps(again)) == values


def test_speculations_silent_changes_are_drift_and_confound() -> None:
    assert names(ASKED, info("eagle3")) == {
        "max-running-requests": True, "disable-overlap-schedule": True,
    }  # fmt: skip
    pinned = {**ASKED, "max-running-requests": 48, "disable-overlap-schedule": True}
    assert names(pinned, info("eagle3")) == {}
    assert names({"model-path": "models/tiny"}, info("off")) == {}


def test_what_was_asked_and_is_otherwise_is_drift() -> None:
    effective = {**info("eagle3"), "page-size": 1, "attention-backend": "triton"}
    asked = {
        **ASKED,
        "max-running-requests": 16,
        "page-size": 64,
        "speculative-num-draft-tokens": 8,
        "disable-overlap-schedule": True,
    }
    assert names(asked, effective) == {
        "max-running-requests": True, "page-size": True, "speculative-num-draft-tokens": False,
    }  # fmt: skip


def test_a_server_that_does_not_speculate_although_asked_is_named() -> None:
    found = drift_of(ServerArgs(ASKED), info("off"))
    assert any("without speculation" in drift.message for drift in found)


def test_baseline_and_trial_differ_in_what_speculation_changes() -> None:
    off, on = info("off"), info("eagle3")
    assert {name for name in CHANGED_BY_SPECULATION if off.get(name) != on.get(name)} == {
        "max-running-requests", "disable-overlap-schedule",
        "effective-max-running-requests-per-dp",
    }  # fmt: skip


def test_layouts_of_other_versions_are_read() -> None:
    nested = {"server_args": {"model_path": "/m", "tp_size": 8}, "internal_states": []}
    assert parse_server_info(json.dumps(nested))["tp-size"] == 8
    old = {"model_path": "/m", "cuda_graph_max_bs": 160, "internal_states": [{"page_size": 64}]}
    assert parse_server_info(json.dumps(old)) == {
        "model-path": "/m", "cuda-graph-max-bs-decode": 160, "page-size": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "3", '{"detail": "Not Found"}', "{", '{"internal_states": 3}', "\0"],
)
def test_other_texts_tell_nothing(text: str) -> None:
    assert parse_server_info(text) == {}
    assert drift_of(ServerArgs(ASKED), parse_server_info(text)) == []


@pytest.mark.parametrize("states", [None, 3, "x", [], [None], [[1]], {"a": 1}])
def test_odd_internal_states_are_tolerated(states: Any) -> None:
    text = json.dumps({"model_path": "/m", "internal_states": states})
    assert parse_server_info(text) == {"model-path": "/m"}


@pytest.mark.parametrize(
    ("asked", "found", "same"),
    [
        (1, 1.0, True), (0.8, "0.8", True), (True, True, True), (True, 1, True),
        ("true", True, False), ({"a": 1}, '{"a": 1}', True), ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False), ([1, 2], ["1", "2"], True), ("/m/", "/m", True),
        ("NEXTN", "EAGLE", False), (3, None, False), ({"a": 1}, "not json", False),
    ],
)  # fmt: skip
def test_spellings_of_one_value_are_the_same(asked: Any, found: Any, same: bool) -> None:
    assert same_value(asked, found) is same


def test_private_fields_are_no_flags() -> None:
    assert effective_flags({"_x": 1, "tp_size": 2}) == {"tp-size": 2}


def launches_of(version: str) -> list[dict[str, Any]]:
    """Two launches of one server as other versions report it: layouts, old names, what changes."""
    shared = {"model_path": "/m", "tp_size": 4, "speculative_algorithm": "EAGLE3",
              "speculative_num_steps": 3, "speculative_eagle_topk": 1,
              "speculative_num_draft_tokens": 4, "attention_backend": "fa3",
              "version": version}  # fmt: skip
    return [
        {
            **shared, "port": 30000 + n, "nccl_port": 4000 + n, "random_seed": 77 * n,
            "disaggregation_bootstrap_port": 8998 + n, "tokenizer_ipc_name": f"ipc:///tmp/{n}",
            "startup_time": 61.2 + n, "server_start_timestamp": 1.7e9 + n, "main_pid": 900 + n,
            "max_total_num_tokens": 120_000 + n, "api_key": f"secret-{n}", "hf_token": f"hf_{n}",
            "internal_states": [{
                "last_gen_throughput": 88.1 + n, "avg_spec_accept_length": 2.1 + n,
                "memory_usage": {"weight": 12.1 + n}, "effective_max_running_requests_per_dp": 48,
            }],
        }
        for n in (0, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("layout", ["flat", "nested", "states only"])
@pytest.mark.parametrize("version", ["0.5.10", "0.5.14.post1", "0.5.23", "0.6.0rc1"])
def test_two_launches_of_one_server_are_one_server_in_every_version(
    version: str, layout: str
) -> None:
    found = []
    for launch in launches_of(version):
        states = launch.pop("internal_states")
        document: dict[str, Any] = {**launch, "internal_states": states}
        if layout == "nested":
            document = {"server_args": launch, "internal_states": states, "version": version}
        elif layout == "states only":
            model = {"model_path": launch.pop("model_path")}
            document = {**model, "internal_states": [{**launch, **states[0]}]}
        found.append(parse_server_info(json.dumps(document)))
    assert found[0] == found[1]
    assert found[0]["speculative-num-draft-tokens"] == 4
    assert found[0]["effective-max-running-requests-per-dp"] == 48
    assert not [name for name in found[0] if "token" in name and "secret" in str(found[0][name])]
    assert not {"api-key", "hf-token", "port", "main-pid"} & found[0].keys()
    asked = {"model-path": "/m", "tp-size": 4, "speculative-algorithm": "EAGLE3",
             "speculative-num-steps": 3, "speculative-eagle-topk": 1,
             "speculative-num-draft-tokens": 4, "attention-backend": "fa3"}  # fmt: skip
    assert names(asked, found[0]) == {}


def test_what_a_flag_is_called_decides_and_not_that_it_ends_alike() -> None:
    kept = {"watchdog_timeout": 300, "speculative_token_map": "/x", "max_prefill_tokens": 16384,
            "stream_interval": 1, "decode_log_interval": 40, "import_path": "/y"}  # fmt: skip
    assert len(effective_flags(kept)) == len(kept)
