"""What SGLang's exits mean: logs of real 0.5.23 servers, and texts from field reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.sglang.exits import cause_of, classify, exit_words
from tuner.errors import FailureKind as Kind

LOGS = Path(__file__).parent / "data" / "sglang"


def log(name: str) -> str:
    return (LOGS / f"{name}.log.txt").read_text()


@pytest.mark.parametrize(
    ("name", "code", "kind", "reason"),
    [
        ("missing_weights", -9, Kind.LAUNCH_CRASH, "Cannot find any model weights"),
        ("no_draft_folder", 1, Kind.LAUNCH_CRASH, "Repo id must be in the form"),
        ("missing_kernel", -9, Kind.LAUNCH_CRASH, "No module named 'sgl_kernel'"),
        ("draft_context", 137, Kind.LAUNCH_CRASH, "greater than the derived context_length"),
        ("unknown_algorithm", 1, Kind.LAUNCH_CRASH, "Unknown speculative algorithm name: FOO"),
        ("ambiguous_flag", 2, Kind.REJECTED_FLAG, "ambiguous option: --cuda-graph-max-bs"),
        ("bare_assertion", 1, Kind.LAUNCH_CRASH, "AssertionError"),
        ("port_taken", 3, Kind.PORT_IN_USE, "address already in use"),
        ("ready_then_dies", -9, Kind.DIED, "it was ready and died: RuntimeError: The expanded"),
        ("stopped", -15, Kind.DIED, "ended by SIGTERM"),
        ("stopped", None, Kind.NOT_READY, "never became ready"),
    ],
)
def test_logs_of_real_servers(name: str, code: int | None, kind: Kind, reason: str) -> None:
    failure = classify(code, log(name))
    assert failure.kind is kind
    assert reason in failure.reason
    assert failure.hint
    assert "\n" not in failure.reason


def test_a_failure_that_names_the_draft_is_the_drafts() -> None:
    text = log("missing_weights")
    assert classify(-9, text, "models/tiny-eagle3").is_draft_fault
    assert not classify(-9, text, "models/other").is_draft_fault
    assert classify(137, log("draft_context")).is_draft_fault
    assert not classify(1, log("unknown_algorithm"), "/draft").is_draft_fault


TRACE = 'Scheduler hit an exception: Traceback (most recent call last):\n  File "x", line 1\n'


@pytest.mark.parametrize(
    ("text", "kind", "is_draft_fault"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
         Kind.OUT_OF_MEMORY, False),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", Kind.OUT_OF_MEMORY, False),
        ("Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1 GiB\n"
         "Possible solutions:\n1. set --mem-fraction-static to a smaller value",
         Kind.OUT_OF_MEMORY, False),
        ("ValueError: Not enough memory. Please try to increase --mem-fraction-static.",
         Kind.OUT_OF_MEMORY, False),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
         Kind.OUT_OF_MEMORY, False),
        ("RuntimeError: Rank 3 scheduler died during initialization (exit code: -9).",
         Kind.OUT_OF_MEMORY, False),
        ("Exception: Capture cuda graph failed: selected index k out of range\n"
         "Possible solutions:\n1. set --mem-fraction-static to a smaller value",
         Kind.LAUNCH_CRASH, False),
        ("RuntimeError: selected index k out of range", Kind.LAUNCH_CRASH, False),
        ("AssertionError: Attempted to load weight (torch.Size([64])) into parameter",
         Kind.LAUNCH_CRASH, True),
        ("    assert param_data.shape == loaded_weight.shape\nAssertionError",
         Kind.LAUNCH_CRASH, True),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x192 and 256x64)",
         Kind.LAUNCH_CRASH, True),
        ("AttributeError: 'LlamaConfig' object has no attribute 'draft_vocab_size'",
         Kind.LAUNCH_CRASH, True),
        ("ValueError: X does not implement set_eagle3_layers_to_capture", Kind.LAUNCH_CRASH, True),
        ("ValueError: Target and draft vocab_size must be equal: 320 not equal 512",
         Kind.LAUNCH_CRASH, True),
        ("ValueError: EAGLE is not supported in decode attention backend torch_native",
         Kind.LAUNCH_CRASH, False),
        ("ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.",
         Kind.LAUNCH_CRASH, False),
        ("NotImplementedError", Kind.LAUNCH_CRASH, False),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen. EADDRINUSE",
         Kind.PORT_IN_USE, False),
        ("RuntimeError: NCCL error: unhandled cuda error", Kind.LAUNCH_CRASH, False),
    ],
)  # fmt: skip
def test_texts_of_a_scheduler_that_failed(text: str, kind: Kind, is_draft_fault: bool) -> None:
    tail = "\nReceived sigquit from a child process. It usually means the child failed.\n"
    failure = classify(-9, TRACE + text + tail)
    assert (failure.kind, failure.is_draft_fault) == (kind, is_draft_fault)


@pytest.mark.parametrize(
    "line",
    [
        "launch_server.py: error: unrecognized arguments: --foo 3",
        "sglang serve: error: argument --tp-size: invalid int value: 'x'",
        "sglang serve: error: ambiguous option: --cuda could match --cuda-graph-config",
        "sglang serve: error: argument --kv-cache-dtype: invalid choice: 'int2'",
    ],
)
def test_what_the_parser_refuses_is_a_rejected_flag(line: str) -> None:
    failure = classify(2, f"usage: launch_server.py [-h]\n{line}\n")
    assert failure.kind is Kind.REJECTED_FLAG
    assert failure.reason == line.partition("error: ")[2]


def test_memory_that_runs_out_while_serving_is_named_as_such() -> None:
    ready = "The server is fired up and ready to roll!\n"
    failure = classify(-9, f"{ready}torch.OutOfMemoryError: CUDA out of memory.\n")
    assert failure.kind is Kind.OUT_OF_MEMORY
    died = classify(-6, ready)
    assert (died.kind, died.reason) == (Kind.DIED, "it was ready and died: ended by SIGABRT")


@pytest.mark.parametrize("code", [None, 0, 1, 2, 3, 137, -9, -11, -64, 255, 4096])
@pytest.mark.parametrize("text", ["", "\n\n", "Traceback (most recent call last):", "\0\ufffd"])
def test_any_exit_is_decoded_with_a_reason(code: int | None, text: str) -> None:
    failure = classify(code, text)
    assert failure.reason
    assert failure.kind in {Kind.LAUNCH_CRASH, Kind.REJECTED_FLAG, Kind.NOT_READY}


def test_exit_codes_in_words() -> None:
    assert exit_words(-9) == exit_words(137) == "ended by SIGKILL"
    assert exit_words(-11) == "ended by SIGSEGV"
    assert exit_words(1) == "exit code 1"
    assert exit_words(-99) == "exit code -99"


def test_the_cause_keeps_the_exception_that_has_a_message() -> None:
    text = "ValueError: the reason\nTraceback (most recent call last):\nAssertionError\n"
    assert cause_of(text) == "ValueError: the reason"
    assert cause_of("[2026-01-01 00:00:00 TP0] RuntimeError: late") == "RuntimeError: late"
    assert cause_of("requests.exceptions.ConnectionError: refused") == ""


def test_an_interpreter_without_sglang_says_what_to_set() -> None:
    log = (
        "/usr/bin/python3: Error while finding module specification for "
        "'sglang.launch_server' (ModuleNotFoundError: No module named 'sglang')\n"
    )
    found = classify(1, log)
    assert found.kind is Kind.LAUNCH_CRASH
    assert "No module named 'sglang'" in found.reason
    assert found.hint == "Set engine.executable to the Python interpreter that has SGLang."


READY = "The server is fired up and ready to roll!\n"
NCCL_OOM = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled cuda error, "
    "NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\n"
    "Last error:\nCuda failure 2 'out of memory'\n"
)
HUNG = (
    "[rank1]:[E101 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE) ran for 600010 milliseconds\n"
)
CRASHED = "[x] Subprocess scheduler_0 (pid=123) crashed with exit code {}. Triggering SIGQUIT\n"
DEAD = "[x] Rank 0 scheduler is dead. Please check the logs.\n[x] Exit code: {}\nEOFError\n"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (TRACE + NCCL_OOM, Kind.OUT_OF_MEMORY, "Cuda failure 2 'out of memory'"),
        (TRACE + "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by "
         "other processes.", Kind.OUT_OF_MEMORY, "ValueError: The memory capacity is unbalanced"),
        (DEAD.format(-9), Kind.OUT_OF_MEMORY, "Rank 0 scheduler is dead"),
        (DEAD.format(-11), Kind.LAUNCH_CRASH, "Rank 0 scheduler is dead"),
        (READY + CRASHED.format(-9), Kind.OUT_OF_MEMORY, "crashed with exit code -9"),
        (READY + CRASHED.format(-11), Kind.DIED, "crashed with exit code -11"),
        (READY + CRASHED.format(-15), Kind.DIED, "ended by SIGKILL"),
        (READY + "[x TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
         Kind.DIED, "Scheduler watchdog timeout"),
        (READY + "[x TP0] Watchdog timeout (self.watchdog_timeout=300)", Kind.DIED,
         "Watchdog timeout"),
        (READY + HUNG, Kind.DIED, "Watchdog caught collective operation timeout: WorkNCCL"),
        (HUNG, Kind.LAUNCH_CRASH, "Watchdog caught collective operation timeout: WorkNCCL"),
        (READY + TRACE + "torch.AcceleratorError: CUDA error: device-side assert triggered\n"
         "CUDA kernel errors might be asynchronously reported", Kind.DIED,
         "torch.AcceleratorError: CUDA error: device-side assert triggered"),
        (TRACE + "Exception: Capture cuda graph failed: CUDA error: an illegal memory access",
         Kind.LAUNCH_CRASH, "Capture cuda graph failed: CUDA error: an illegal memory access"),
        ("OSError: You are trying to access a gated repo.\n401 Client Error.", Kind.LAUNCH_CRASH,
         "gated repo"),
        ("OSError: [Errno 28] No space left on device", Kind.LAUNCH_CRASH, "No space left"),
        ("Fatal Python error: Segmentation fault\n\nThread 0x1", Kind.LAUNCH_CRASH,
         "Fatal Python error: Segmentation fault"),
    ],
)  # fmt: skip
def test_texts_of_other_versions_and_of_the_system(text: str, kind: Kind, reason: str) -> None:
    failure = classify(-9, text)
    assert failure.kind is kind
    assert reason in failure.reason
    assert failure.hint


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-18 11:22:06.731 ERROR 1 [ TP0 scheduler.py:3190] Scheduler hit an exception: "
        "Traceback\nRuntimeError: boom\n",
        '{"level": "ERROR", "message": "Scheduler hit it: Traceback\\nRuntimeError: boom"}',
        "\x1b[31mRuntimeError: boom\x1b[0m\n",
        "RuntimeError: boom\r\n",
        "  + Exception Group Traceback\n    | RuntimeError: boom\n    +---------------\n",
        "[2026-01-01 00:00:00 DP0 TP3 EP3] RuntimeError: boom\n",
    ],
)
def test_every_form_of_logging_is_read(text: str) -> None:
    failure = classify(-9, text)
    assert (failure.kind, failure.reason) == (Kind.LAUNCH_CRASH, "RuntimeError: boom")


@pytest.mark.parametrize("attribute", ["set_embed", "hot_token_id", "draft_vocab_size"])
def test_a_draft_that_is_an_ordinary_model_is_the_drafts_fault(attribute: str) -> None:
    """What loads the target as its draft, or a plain Llama as an EAGLE3 head, dies so."""
    text = f"AttributeError: 'LlamaForCausalLM' object has no attribute '{attribute}'"
    assert classify(-9, TRACE + text).is_draft_fault
