"""Owns what llama-server's exits mean: its last words to a `Failure`."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from tuner.engines.base import Failure
from tuner.errors import FailureKind


@dataclass(frozen=True, slots=True)
class _Sign:
    """A line of the log that decides."""

    pattern: re.Pattern[str]
    kind: FailureKind
    hint: str = ""
    is_draft_fault: bool = False


def _sign(pattern: str, kind: FailureKind, hint: str = "", draft: bool = False) -> _Sign:
    return _Sign(re.compile(pattern, re.IGNORECASE), kind, hint, draft)


_DRAFT_HINT = "Use a draft model made for this target (same tokenizer); run `tuner draft inspect`."
_SIGNS = (
    _sign(
        r"error while handling argument .*", FailureKind.REJECTED_FLAG,
        "Correct the flag; `llama-server --help` lists what this build takes.",
    ),
    _sign(
        r"(?:error: )?(?:invalid|unknown|unrecognized) argument:? .*", FailureKind.REJECTED_FLAG,
        "Remove the flag; this build does not know it.",
    ),
    _sign(
        r"couldn't bind .*|.*address already in use.*", FailureKind.PORT_IN_USE,
        "Stop the other server on this port.",
    ),
    _sign(
        r".*(?:out of memory|bad_alloc|cudaMalloc failed|failed to allocate|unable to allocate"
        r"|cannot allocate memory|not enough (?:gpu )?memory|erroroutofdevicememory).*",
        FailureKind.OUT_OF_MEMORY,
        "Lower ctx-size, parallel, n-gpu-layers or the draft length.",
    ),
    _sign(
        r"(?:the target and draft )?.*vocabs? (?:\w+ )?(?:must|are not compatible).*",
        FailureKind.LAUNCH_CRASH, _DRAFT_HINT, draft=True,
    ),
    _sign(
        r".*failed to load draft model.*|.*failed to create MTP context.*"
        r"|.*draft model is not \w+.*|.*requires a draft context.*"
        r"|.*draft model number of sequences.*",
        FailureKind.LAUNCH_CRASH, _DRAFT_HINT, draft=True,
    ),
    _sign(
        r".*synthetic acceptance .*", FailureKind.LAUNCH_CRASH,
        "Give spec-synth-rates one falling value per draft position.",
    ),
    _sign(r".*failed to initialize speculative decoding context: .*", FailureKind.LAUNCH_CRASH),
    _sign(
        r".*needs xllamacpp.*", FailureKind.LAUNCH_CRASH,
        "Install it with: pip install 'speculative-tuner[embedded]'",
    ),
    _sign(
        r".*failed to (?:load|open) (?:model|GGUF file).*|.*error loading model.*",
        FailureKind.LAUNCH_CRASH, "Check engine.model: it must be a readable GGUF file.",
    ),
    _sign(r".*(?:GGML_ASSERT|assert).*failed.*|.*GGML_ABORT.*", FailureKind.LAUNCH_CRASH),
)  # fmt: skip
_PREFIX = re.compile(r"^[\d.]+ [IWED] (?:\S+\s+\S*?: )?")
_TROUBLE = re.compile(r"^[\d.]+ E |error|fatal|abort", re.IGNORECASE)


def classify(returncode: int | None, log_tail: str) -> Failure:
    """Why a server exited, from its status and its last log lines; total."""
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    for sign in _SIGNS:
        for line in reversed(lines):
            if sign.pattern.fullmatch(_PREFIX.sub("", line)):
                reason = _PREFIX.sub("", line)
                if returncode is not None and returncode < 0:
                    reason = f"{reason} ({signal_name(returncode)})"
                return Failure(sign.kind, reason, sign.hint, sign.is_draft_fault)
    return _from_status(returncode, lines)


def signal_name(returncode: int) -> str:
    """`SIGABRT` for -6; the number where the platform has no name."""
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _from_status(returncode: int | None, lines: list[str]) -> Failure:
    last = next((_PREFIX.sub("", x) for x in reversed(lines) if _TROUBLE.search(x)), "")
    said = f": {last}" if last else ""
    if returncode is None:
        return Failure(FailureKind.NOT_READY, f"the server lives but is not ready{said}")
    if returncode == -signal.SIGKILL:
        return Failure(
            FailureKind.OUT_OF_MEMORY,
            f"killed by SIGKILL, as the kernel does when memory runs out{said}",
            "Look for `Out of memory` in the kernel's log; lower ctx-size or parallel.",
        )
    if returncode < 0:
        return Failure(FailureKind.LAUNCH_CRASH, f"killed by {signal_name(returncode)}{said}")
    return Failure(FailureKind.LAUNCH_CRASH, f"exited with status {returncode}{said}")
