"""The start-up log of a real server, and lines that only GPU servers write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.engines.vllm.startup import drifts, read_startup

NGRAM = {
    "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
}  # fmt: skip
ASKED = ServerArgs(
    {"model": "models/smollm2", "dtype": "bfloat16", "max-model-len": 2048, "enforce-eager": True,
     "speculative-config": NGRAM}
)  # fmt: skip
GPU = (
    "(Worker_TP0 pid=7) INFO 12-01 13:10:07 [cuda_communicator.py:353] Using ['CUSTOM', "
    "'SYMM_MEM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0' out of "
    "potential backends: ['NCCL_SYMM_MEM', 'CUSTOM', 'SYMM_MEM', 'PYNCCL'].\n"
    "(APIServer pid=1) WARNING 12-01 13:10:01 [vllm.py:1049] Dynamic speculative decoding changes "
    "the target verification length at runtime. Overriding cudagraph_mode from FULL_AND_PIECEWISE "
    "to PIECEWISE for reliability.\n"
    "(APIServer pid=1) WARNING 12-01 13:10:01 [vllm.py:2276] max_num_scheduled_tokens is set to "
    "7936 based on the speculative decoding settings.\n"
)


def test_a_real_log(log: Callable[[str], str]) -> None:
    found = read_startup(log("ngram.txt"))
    assert found["version"] == "0.32.0"
    assert {k: v for k, v in found.items() if k.startswith("speculative-config.")} == {
        f"speculative-config.{key}": value for key, value in NGRAM.items()
    }
    wanted = {
        "async-scheduling": False, "max-num-scheduled-tokens": 2048, "dtype": "bfloat16",
        "max-model-len": 2048, "tensor-parallel-size": 1, "enforce-eager": True,
        "enable-prefix-caching": True, "enable-chunked-prefill": True, "seed": 0,
        "cudagraph-mode": "NONE", "quantization": None, "kv-cache-dtype": "auto",
    }  # fmt: skip
    assert {key: found[key] for key in wanted} == wanted
    assert not {"port", "host"} & found.keys()


def test_the_same_server_reads_the_same_on_another_port(log: Callable[[str], str]) -> None:
    text = log("ngram.txt")
    other = text.replace("18311", "18312").replace("pid=8353", "pid=99").replace("13:1", "14:2")
    assert read_startup(other) == read_startup(text)


def test_gpu_lines() -> None:
    assert read_startup(GPU) == {
        "all-reduce-backends": ["CUSTOM", "SYMM_MEM", "PYNCCL"],
        "cudagraph-mode-override": "PIECEWISE",
        "max-num-scheduled-tokens": 7936,
    }


def test_text_without_facts() -> None:
    assert read_startup("") == {}
    assert read_startup("non-default args: {'model': <object at 0x1>}\n") == {}
    assert drifts(ASKED, {}) == []


def test_a_server_as_asked_differs_only_by_what_ngram_costs(log: Callable[[str], str]) -> None:
    found = drifts(ASKED, read_startup(log("ngram.txt")))
    assert [(d.name, d.effective, d.is_confounder) for d in found] == [
        ("async-scheduling", "off", True)
    ]
    assert found[0].message.startswith("ngram works only without asynchronous scheduling")
    quiet = ASKED.replace({"async-scheduling": False})
    assert drifts(quiet, read_startup(log("ngram.txt"))) == []


@pytest.mark.parametrize(
    ("effective", "name", "is_confounder"),
    [
        ({"speculative-config.method": "none"}, "speculative-config.method", False),
        ({"speculative-config.num_speculative_tokens": 2},
         "speculative-config.num_speculative_tokens", False),
        ({"schedule-dropped": True}, "schedule", False),
        ({"max-model-len": 1024}, "max-model-len", True),
        ({"enforce-eager": False}, "enforce-eager", True),
        ({"max-num-scheduled-tokens": 7936}, "max-num-scheduled-tokens", True),
        ({"cudagraph-mode-override": "PIECEWISE"}, "cudagraph-mode", True),
    ],
)  # fmt: skip
def test_drift(effective: dict[str, Any], name: str, is_confounder: bool) -> None:
    args = ASKED.replace({"max-num-batched-tokens": 8192})
    found = drifts(args, effective)
    assert [(d.name, d.is_confounder) for d in found] == [(name, is_confounder)]
    assert found[0].message


def test_a_full_batch_that_outgrows_a_limit_is_said() -> None:
    args = ASKED.replace({"max-num-seqs": 128, "max-num-batched-tokens": 512})
    found = drifts(args, {"max-cudagraph-capture-size": 256, "async-scheduling": True})
    assert [(d.name, d.requested, d.effective) for d in found] == [
        ("max-cudagraph-capture-size", "640", "256"), ("max-num-batched-tokens", "640", "512"),
    ]  # fmt: skip
    fits = ASKED.replace({"max-num-seqs": 64})
    assert drifts(fits, {"max-cudagraph-capture-size": 512}) == []
    line = "Initializing a V1 LLM engine (v0.12.0) with config: 'max_cudagraph_capture_size': 512}"
    assert read_startup(line)["max-cudagraph-capture-size"] == 512


def test_two_spellings_of_one_value_are_no_drift() -> None:
    args = ServerArgs({"dtype": "half", "max-model-len": "8k", "kv-cache-dtype": "auto"})
    same = {"dtype": "float16", "max-model-len": 8192, "kv-cache-dtype": "fp8"}
    assert drifts(args, same) == []


def test_a_baseline_that_speculates_is_seen() -> None:
    bare = ServerArgs({"model": "m"})
    assert [d.effective for d in drifts(bare, {"speculative-config.method": "ngram"})] == ["ngram"]
    assert drifts(bare, {"speculative-config.method": "none", "async-scheduling": False}) == []
