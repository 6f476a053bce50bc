"""Owns reading why a vLLM server exited or is not ready: the root cause in vLLM's own words.

An engine that fails says so three times: the worker with the cause, the engine core with a
wrapper, the API server with "Engine core initialization failed. See root cause above.". The
first exception that is no wrapper is the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.engines.base import Failure
from tuner.engines.vllm.discovery import one_line
from tuner.engines.vllm.startup import PREFIX
from tuner.errors import FailureKind
from tuner.server.exits import describe_exit

_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?(?P<name>[A-Z]\w*(?:Error|Exception)|Exception): ?"
)
_USAGE = re.compile(r"^vllm(?: serve)?: error: (?P<text>.*)$", re.MULTILINE)
_WRAPPERS = (
    "Engine core initialization failed", "WorkerProc initialization failed",
    "EngineCore encountered an issue", "EngineDeadError", "Worker failed with error",
    "cancelled", "Executor failed", "See root cause above",
)  # fmt: skip
_READY = "Application startup complete"
_STOPPED = re.compile(r"signal=SIGTERM|\[shutdown\] API server: shutdown triggered")


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: re.Pattern[str]
    kind: FailureKind
    hint: str
    is_draft_fault: bool = False


def _known(pattern: str, kind: FailureKind, hint: str, draft: bool = False) -> _Known:
    return _Known(re.compile(pattern, re.IGNORECASE), kind, hint, draft)


_K = FailureKind
_CAUSES: Sequence[_Known] = (
    _known(r"address already in use|EADDRINUSE|errno 98", _K.PORT_IN_USE,
           "Another process took the port; the launch is tried again."),
    _known(r"out of memory|OutOfMemoryError|no available memory for the cache blocks|KV cache is "
           r"needed, which is larger|is less than requested memory for kv|insufficient memory|"
           r"cannot allocate memory", _K.OUT_OF_MEMORY,
           "Lower max-model-len, max-num-seqs or num_speculative_tokens."),
    _known(r"free memory on device .* less than desired", _K.UNEXPECTED,
           "Another process holds GPU memory: find it with nvidia-smi and stop it."),
    _known(r"no space left on device", _K.UNEXPECTED,
           "Free the disk and /dev/shm, where killed servers leave their segments."),
    _known(r"failed to infer device type|no cuda gpus are available|found no nvidia driver",
           _K.UNEXPECTED, "Check the driver and that GPUs are visible."),
    _known(r"same vocabulary size|vocab(ulary)? size (of|mismatch)", _K.LAUNCH_CRASH,
           "Use a draft with the target's vocabulary.", True),
    _known(r"arctic inference is required", _K.REJECTED_FLAG,
           "Install arctic-inference into vLLM's environment.", True),
    _known(r"unsupported speculative method|draft model is not supported|is not supported yet",
           _K.REJECTED_FLAG, "Use a method that this vLLM supports."),
    _known(r"does not support (the )?eagle3? ", _K.LAUNCH_CRASH,
           "Use a target that vLLM can take hidden states from.", True),
    _known(r"NCCL error|ncclUnhandledCudaError|ncclSystemError|ncclInternalError",
           _K.LAUNCH_CRASH, "Run again with NCCL_DEBUG=WARN; on PCIe hosts check ACS and P2P."),
)  # fmt: skip
_MISSING = re.compile(
    r"repo id must be in the form|invalid repository id|is not a local folder|"
    r"couldn't connect to 'https://huggingface|does not appear to have a file|"
    r"cannot find any model weights|no such file or directory|is not a valid model identifier",
    re.IGNORECASE,
)
_DRAFT_WEIGHTS = re.compile(r"size mismatch|weights were not initialized|draft_id_to_target|d2t")
_CONFIG_CLASS = re.compile(r"validation errors? for (\w+)")


def classify(returncode: int | None, log: str, draft_model: str | None) -> Failure:
    """Why a server exited (negative: signal; None: it lives) from its last log lines."""
    cause = root_cause(log)
    was_ready, was_stopped = _READY in log, bool(_STOPPED.search(log))
    if was_stopped and returncode in (0, -2, -15, 130, 143) and not _memory(cause):
        # After SIGTERM the log ends in an EngineDeadError that means nothing (0.11 to 0.32).
        return Failure(_K.INTERRUPTED, "vLLM was asked to stop (SIGTERM)")
    if returncode is None and not cause:
        return Failure(_K.NOT_READY, _last_words(log), "Raise engine.launch_timeout.")
    if not cause:
        return _by_signal(returncode, was_ready, log)
    known = next((known for known in _CAUSES if known.pattern.search(cause)), None)
    draft = bool(draft_model and draft_model in cause)
    if known is not None:
        return Failure(known.kind, cause, known.hint, known.is_draft_fault or draft)
    if _MISSING.search(cause):
        what = "draft model" if draft else "model"
        return Failure(_K.LAUNCH_CRASH, cause, f"Check the path or name of the {what}.", draft)
    if _USAGE.search(log) or _CONFIG_CLASS.search(log):
        return Failure(_K.REJECTED_FLAG, cause, "Correct the flag, or upgrade vLLM.")
    if _DRAFT_WEIGHTS.search(cause):
        return Failure(_K.LAUNCH_CRASH, cause, "Inspect the draft: tuner draft inspect.", True)
    return Failure(_K.DIED if was_ready else _K.LAUNCH_CRASH, cause, "Read the server's log.")


def root_cause(log: str) -> str:
    """The first exception of the log that wraps no other, as one line; "" without any."""
    usage = _USAGE.search(log)
    if usage:
        return usage["text"]
    lines = [PREFIX.sub("", line) for line in log.splitlines()]
    causes = [i for i, line in enumerate(lines) if _is_cause(line)]
    if not causes:
        return ""
    return _message(lines, causes[0])


def _is_cause(line: str) -> bool:
    return bool(_EXCEPTION.match(line)) and not any(wrapper in line for wrapper in _WRAPPERS)


def _message(lines: Sequence[str], start: int) -> str:
    """An exception's message; pydantic's goes over several lines."""
    line = lines[start]
    match = _EXCEPTION.match(line)
    text = line[match.end() :] if match else line
    if "validation error" in text:
        return one_line("\n".join([text, *lines[start + 1 : start + 9]]))
    name = match["name"] if match else ""
    told = text if name in ("ValueError", "RuntimeError", "Exception") else f"{name}: {text}"
    return one_line(told)


def _memory(cause: str) -> bool:
    return any(k.kind is _K.OUT_OF_MEMORY and k.pattern.search(cause) for k in _CAUSES)


def _by_signal(returncode: int | None, was_ready: bool, log: str) -> Failure:
    kind = _K.DIED if was_ready else _K.LAUNCH_CRASH
    if returncode in (-9, 137):
        hint = "Look for the kernel's out-of-memory killer in the system log."
        return Failure(kind, "vLLM was killed (SIGKILL)", hint)
    if returncode is not None and returncode < 0:
        return Failure(kind, f"vLLM was {describe_exit(returncode)}", "Read the server's log.")
    return Failure(kind, _last_words(log), "Read the server's log.")


def _last_words(log: str) -> str:
    lines = [PREFIX.sub("", line).strip() for line in log.splitlines()]
    words = [line for line in lines if line and not line.startswith(("nanobind", "- "))]
    return one_line(words[-1]) if words else "vLLM said nothing"
