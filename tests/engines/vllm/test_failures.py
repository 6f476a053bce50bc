"""Logs of real failures of vLLM 0.32.0, and texts of GPU servers, become one line and a kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuner.engines.vllm.failures import classify, root_cause
from tuner.errors import FailureKind

K = FailureKind
CORE = "(EngineCore pid=41) ERROR 12-01 13:17:28 [core.py:1510] "
WRAPPED = (
    "RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {'EngineCore': 1}\n"
)


@pytest.mark.parametrize(
    ("name", "code", "kind", "reason"),
    [
        ("badflag", 2, K.REJECTED_FLAG, "unrecognized arguments: --speculatve-config {}"),
        ("notjson", 2, K.REJECTED_FLAG, "argument --speculative-config/-sc: Value {'method': "),
        ("badkey", 1, K.REJECTED_FLAG, "promt_lookup_max Unexpected keyword argument"),
        ("badmethod", 1, K.REJECTED_FLAG, "method Input should be 'ngram', 'medusa', "),
        ("suffix", 1, K.REJECTED_FLAG, "ImportError: Arctic Inference is required for suffix"),
        ("schedule", 1, K.LAUNCH_CRASH, "The first batch-size range must start at 1 so every"),
        ("port", 1, K.PORT_IN_USE, "OSError: [Errno 98] Address already in use"),
        ("kvoom", 1, K.OUT_OF_MEMORY, "Available memory on node 0 (9.43/11.46 GiB) on kv cache"),
        ("nomodel", 1, K.LAUNCH_CRASH, "HFValidationError: Repo id must be in the form "),
        ("nodraft", 1, K.LAUNCH_CRASH, "Invalid repository ID or local directory specified: "),
        ("eagle3", 1, K.LAUNCH_CRASH, "Cannot find any model weights with `models/tiny-eagle3`"),
    ],
)
def test_real_logs(
    log: Callable[[str], str], name: str, code: int, kind: FailureKind, reason: str
) -> None:
    failure = classify(code, log(f"{name}.txt"), None)
    assert failure.kind is kind
    assert failure.reason.startswith(reason)
    assert failure.hint
    assert "\n" not in failure.reason
    assert len(failure.reason) <= 300


@pytest.mark.parametrize(
    ("name", "draft"), [("nodraft", "/models/missing-draft"), ("eagle3", "models/tiny-eagle3")]
)
def test_a_draft_that_is_not_there_is_the_drafts_fault(
    log: Callable[[str], str], name: str, draft: str
) -> None:
    failure = classify(1, log(f"{name}.txt"), draft)
    assert failure.is_draft_fault
    assert failure.hint == "Check the path or name of the draft model."
    assert not classify(1, log("nomodel.txt"), draft).is_draft_fault


def test_a_stopped_server_did_not_fail(log: Callable[[str], str]) -> None:
    text = log("stopped.txt")
    assert classify(0, text, None).kind is K.INTERRUPTED
    dead = text + (
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
        "See stack trace (above) for the root cause.\n"
    )
    assert classify(-15, dead, None).kind is K.INTERRUPTED


@pytest.mark.parametrize(
    ("line", "kind", "is_draft_fault"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
         K.OUT_OF_MEMORY, False),
        ("ValueError: No available memory for the cache blocks. Try increasing "
         "`gpu_memory_utilization` when initializing the engine.", K.OUT_OF_MEMORY, False),
        ("ValueError: To serve at least one request with the models's max seq len (131072), "
         "(16.0 GiB KV cache is needed, which is larger than the available KV cache memory "
         "(9.1 GiB).", K.OUT_OF_MEMORY, False),
        ("ValueError: Free memory on device (10.1/79.1 GiB) on startup is less than desired GPU "
         "memory utilization (0.9, 71.2 GiB).", K.UNEXPECTED, False),
        ("RuntimeError: Failed to infer device type", K.UNEXPECTED, False),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", K.UNEXPECTED, False),
        ("RuntimeError: NCCL error: unhandled system error", K.LAUNCH_CRASH, False),
        ("ValueError: Target and draft model should have the same vocabulary size. "
         "Target model vocab_size=128256.", K.LAUNCH_CRASH, True),
        ("NotImplementedError: Unsupported speculative method: 'eagle9'", K.REJECTED_FLAG, False),
        ("RuntimeError: size mismatch for lm_head.weight", K.LAUNCH_CRASH, True),
        ("KeyError: 'model.layers.0.fc.weight'", K.LAUNCH_CRASH, False),
    ],
)  # fmt: skip
def test_the_core_says_why(line: str, kind: FailureKind, is_draft_fault: bool) -> None:
    failure = classify(
        1, f"{CORE}Traceback (most recent call last):\n{CORE}{line}\n{WRAPPED}", None
    )
    assert (failure.kind, failure.is_draft_fault) == (kind, is_draft_fault)
    assert failure.reason[:60] in line


def test_a_failure_after_ready_is_a_death() -> None:
    ready = "INFO:     Application startup complete.\n"
    fault = f"{ready}{CORE}RuntimeError: CUDA error: an illegal memory access\n"
    assert classify(1, fault, None).kind is K.DIED
    assert classify(-9, ready, None).kind is K.DIED
    assert classify(-9, "", None).reason == "vLLM was killed (SIGKILL)"
    assert classify(-11, "", None).reason == "vLLM was killed by SIGSEGV"
    assert classify(-11, "", None).kind is K.LAUNCH_CRASH
    oom = f"{ready}{CORE}torch.OutOfMemoryError: CUDA out of memory.\n"
    assert classify(1, oom, None).kind is K.OUT_OF_MEMORY


def test_a_living_server_is_not_ready() -> None:
    text = (
        "(EngineCore pid=8595) INFO 12-01 13:10:17 [utils.py:347] Using LBHNC KV cache layout.\n"
    )
    failure = classify(None, text, None)
    assert (failure.kind, failure.reason) == (K.NOT_READY, "Using LBHNC KV cache layout.")
    assert classify(None, "", None).reason == "vLLM said nothing"


def test_wrappers_are_no_cause() -> None:
    assert root_cause(WRAPPED) == ""
    assert root_cause("nothing here: OSError in a warning\n") == ""
