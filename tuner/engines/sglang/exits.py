"""Owns what SGLang's exits and logs mean: an ordered table from log text to `FailureKind`.

The exit code alone says little (2: the parser; 1: resolution; -9 or 137: anything after the
model began to load), so the log decides and the code helps where the log is silent.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from tuner.engines.base import Failure
from tuner.errors import FailureKind as Kind

READY_MARKER = "The server is fired up and ready to roll!"
_CRASHES = frozenset({1, 3, 137, -9, -6, -11, -7, -4, 134, 139})


@dataclass(frozen=True, slots=True)
class Pattern:
    """A row: what the log says, what it means, what to do."""

    text: re.Pattern[str]
    kind: Kind
    hint: str
    is_draft_fault: bool = False


def _row(text: str, kind: Kind, hint: str, is_draft_fault: bool = False) -> Pattern:
    return Pattern(re.compile(text, re.I), kind, hint, is_draft_fault)


_MEMORY = "Lower mem-fraction-static, max-running-requests or cuda-graph-max-bs-decode."
_UNKNOWN = "Compare with `tuner doctor`: the installed SGLang does not know this."
_DRAFT = "Run `tuner draft inspect` on the draft and its target."
_LOADING = "Check engine.model and engine.draft_model."

PATTERNS: tuple[Pattern, ...] = (
    _row(r"unrecognized arguments?:|ambiguous option:|error: argument |invalid choice:|"
         r"expected (one|at least one) argument|the following arguments are required",
         Kind.REJECTED_FLAG, _UNKNOWN),
    _row(r"Unsupported config option|Config file must|Multiple config files",
         Kind.REJECTED_FLAG, "Move the option behind --config."),
    _row(r"Capture (cuda|device|npu|cpu) graph failed:(?=[\s\S]{0,400}(out of memory|memory))|"
         r"Capture cuda graph failed: (CUDA )?out of memory", Kind.OUT_OF_MEMORY, _MEMORY),
    _row(r"torch\.(cuda\.)?OutOfMemoryError|(CUDA|HIP|XPU|NPU) out of memory|CUDA error: out of "
         r"memory|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|DefaultCPUAllocator: "
         r"can't allocate", Kind.OUT_OF_MEMORY, _MEMORY),
    _row(r"Prefill out of memory|Decode out of memory|Try to allocate .* tokens.*out of memory",
         Kind.OUT_OF_MEMORY, "Lower max-running-requests, or raise mem-fraction-static."),
    _row(r"Not enough memory\. Please try to increase|Not enough memory for|"
         r"Loading the model.*out of memory|"
         r"max_total_num_tokens.*(<=|less than)|insufficient (GPU )?memory",
         Kind.OUT_OF_MEMORY, "Raise mem-fraction-static, or use more GPUs."),
    _row(r"scheduler died during initialization \(exit code: -9\)", Kind.OUT_OF_MEMORY,
         "The system ended it, usually for host memory: look at `dmesg`."),
    _row(r"address already in use|Errno 98|EADDRINUSE|port \d+ is (already )?(in use|not free)",
         Kind.PORT_IN_USE, "It is launched again on another port."),
    _row(r"selected index k out of range", Kind.LAUNCH_CRASH,
         "The draft tree cannot hold so many tokens: lower the draft tokens."),
    _row(r"has no attribute 'draft_vocab_size'|does not implement set_eagle3_layers_to_capture|"
         r"(vocab_size|vocabular(y|ies)).*(mismatch|not (match|equal|the same)|must be)|"
         r"tokenizers? .*(mismatch|differ|not (match|identical))",
         Kind.LAUNCH_CRASH, _DRAFT, True),
    _row(r"size mismatch for|mat1 and mat2 shapes cannot be multiplied|"
         r"param_data\.shape == loaded_weight\.shape|"
         r"Attempted to load weight .* into parameter|loaded_weight\.shape",
         Kind.LAUNCH_CRASH, _DRAFT, True),
    _row(r"Target model's context_length \(.*\) is greater than", Kind.LAUNCH_CRASH,
         "Set context-length to the draft's, or SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1.",
         True),
    _row(r"(draft|eagle|mtp|nextn).*(No such file|does not exist|not a local folder|"
         r"Cannot find any model weights)", Kind.LAUNCH_CRASH, _LOADING, True),
    _row(r"Cannot find any model weights|No (safetensors|model) (weights|files)|"
         r"not a local folder and is not a valid model identifier|"
         r"does not appear to have a file named|SafetensorError|"
         r"(weights?|parameters?) .*(not initialized|missing) .*checkpoint", Kind.LAUNCH_CRASH,
         _LOADING),
    _row(r"Unknown speculative algorithm|is not supported|not support(ed)? |unsupported|"
         r"only supports? |only supported|not compatible|incompatible|requires? |must be |"
         r"NotImplementedError|AssertionError", Kind.LAUNCH_CRASH,
         "This combination does not work on this SGLang and GPU; it is not launched again."),
    _row(r"NCCL (WARN|error)|ncclUnhandledCudaError|ncclSystemError|ncclInvalidUsage|"
         r"unhandled (cuda|system) error", Kind.LAUNCH_CRASH,
         "Check the NCCL variables with `tuner probe collectives`."),
)  # fmt: skip
"""First match wins, so the sure and narrow texts come first."""

_TRACE = "Traceback (most recent call last)"
_CAUSE = re.compile(r"^\s*(?:\[[^\]]*\]\s*)?((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*"
                    r"(?:Error|Exception|Interrupt|Failure|Exit)\b:?.*)$")  # fmt: skip
_PARSER = re.compile(r"^.*\berror: (.+)$")
_NOISE = re.compile(
    r"ImportError: .*optional|ConnectionError|warmup error|/freeze_gc|"
    r"requests\.exceptions|urllib3\.exceptions|ConnectionRefusedError"
)
"""The server asks itself for garbage collection before it listens, and logs that it failed."""


def classify(returncode: int | None, log_tail: str) -> Failure:
    """Why a server exited, or does not answer, from its exit code and last log lines."""
    cause = cause_of(log_tail)
    if READY_MARKER in log_tail and returncode not in (None, 0, -15):
        return _died(returncode, log_tail, cause)
    pattern = _first_match(cause, log_tail)
    if pattern is not None:
        reason = cause if pattern.text.search(cause) else _line_of(pattern, log_tail)
        return Failure(pattern.kind, reason or cause, pattern.hint, pattern.is_draft_fault)
    return _by_code(returncode, cause)


def cause_of(log_tail: str) -> str:
    """The line that says why: the parser's error, or the last exception of a traceback."""
    found, block_has_message = "", False
    for line in log_tail.splitlines():
        parser = _PARSER.match(line)
        match = _CAUSE.match(line)
        if parser and "usage" not in line:
            found, block_has_message = parser[1].strip(), True
        elif match and not _NOISE.search(line):
            text = match[1].strip()
            bare = text.rstrip(":").isidentifier()
            if not (bare and block_has_message):
                found, block_has_message = text, not bare
    return found[:400]


def _first_match(cause: str, log_tail: str) -> Pattern | None:
    for pattern in PATTERNS:
        if cause and pattern.text.search(cause):
            return pattern
    if cause:
        narrow = (Kind.OUT_OF_MEMORY, Kind.PORT_IN_USE)
        rows = [row for row in PATTERNS if row.kind in narrow or row.is_draft_fault]
    else:
        rows = [row for row in PATTERNS if row is not PATTERNS[-2]]
    return next((row for row in rows if row.text.search(log_tail)), None)


def _died(returncode: int | None, log_tail: str, cause: str) -> Failure:
    after = log_tail.rpartition(READY_MARKER)[2]
    memory = next((row for row in PATTERNS if row.kind is Kind.OUT_OF_MEMORY
                   and row.text.search(after)), None)  # fmt: skip
    if memory is not None:
        return Failure(Kind.OUT_OF_MEMORY, _line_of(memory, after) or cause, memory.hint)
    reason = cause_of(after) or exit_words(returncode)
    return Failure(Kind.DIED, f"it was ready and died: {reason}",
                   "Read the server's log; this server is not launched again.")  # fmt: skip


def _by_code(returncode: int | None, cause: str) -> Failure:
    if returncode is None:
        return Failure(Kind.NOT_READY, cause or "it is running and never became ready",
                       "Raise engine.launch_timeout, or read its log.")  # fmt: skip
    if returncode == 2:
        return Failure(Kind.REJECTED_FLAG, cause or "its parser refused the arguments", _UNKNOWN)
    if returncode == 0:
        return Failure(Kind.LAUNCH_CRASH, cause or "it ended by itself with exit code 0",
                       "Read the server's log.")  # fmt: skip
    return Failure(Kind.LAUNCH_CRASH, cause or exit_words(returncode), "Read the server's log.")


def exit_words(returncode: int | None) -> str:
    """An exit code in words: `exit code 1`, `ended by SIGKILL`."""
    if returncode is None:
        return "it is running"
    number = -returncode if returncode < 0 else returncode - 128
    if 0 < number < 65:
        try:
            return f"ended by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"exit code {returncode}"


def _line_of(pattern: Pattern, log_tail: str) -> str:
    match = pattern.text.search(log_tail)
    if match is None:
        return ""
    start = log_tail.rfind("\n", 0, match.start()) + 1
    end = log_tail.find("\n", match.end())
    line = log_tail[start : end if end >= 0 else len(log_tail)].strip().splitlines()
    return re.sub(r"^\[[^\]]*\]\s*", "", line[0])[:400] if line else ""
