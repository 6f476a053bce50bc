"""Owns what SGLang's exits and logs mean: from an exit code and last lines to a `Failure`.

The exit code alone says little (2: the parser; 1: resolution; 3: it could not listen; -9 or 137:
anything after the model began to load), so the log decides and the code helps where the log is
silent.
"""

from __future__ import annotations

import json
import re
import signal

from tuner.engines.base import Failure
from tuner.engines.sglang.exit_texts import COMBINATION, PATTERNS, PORT, Pattern
from tuner.errors import FailureKind as Kind

READY_MARKER = "The server is fired up and ready to roll!"
"""Logged although it could not listen, when the warm-up is skipped (0.5.23)."""

LAST_WORDS = ("SIGQUIT received. signum", "Received sigquit from a child process")
"""Logged when a worker has crashed. 0.5.23 then waits five seconds and dumps its workers before it
ends; older versions end at once."""

_SERVED = re.compile(
    re.escape(READY_MARKER) + r'|"(?:POST /v1/\S+|GET /ready) HTTP/1\.1" 200|Decode batch'
)
"""What only a server that was ready logs; the marker may be beyond the end that is read."""

_LOG_PREFIX = re.compile(r"^\[[^\]]*\]\s*")
_CAUSE = re.compile(
    r"^[\s|+]*(?:\[[^\]]*\]\s*)?"
    r"((?:[A-Za-z_][\w.]*\.)?(?:(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Failure)|[A-Z]\w+Exit)"
    r"\b:?.*)$"
)
_PARSER = re.compile(r"^[\w./ -]+: error: (.+)$")
_LAST_RESORT = re.compile(
    r"(Watchdog caught collective operation timeout.*|(?:Scheduler )?watchdog timeout \(.*|"
    r"Subprocess \S+ .*crashed with exit code (?!-15\b).*|Rank \d+ scheduler is dead.*|"
    r"Fatal Python error: .*)",
    re.I,
)
"""What tells why where there was no exception."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NOISE = re.compile(
    r"ConnectionError|ConnectionRefusedError|ReadTimeout|TimeoutError: timed out|"
    r"requests\.exceptions|urllib3\.exceptions|/freeze_gc"
)
"""The server asks itself for garbage collection before it listens, and logs that it failed."""

_SEARCHED_EVERYWHERE = frozenset({Kind.OUT_OF_MEMORY, Kind.PORT_IN_USE})
_LINES_BEFORE_CAUSE = 8


def classify(returncode: int | None, log_tail: str, draft_model: str = "") -> Failure:
    """Why a server exited, or does not answer, from its exit code and last log lines.

    A failure that names the draft model is the draft's.
    """
    log_tail = plain_text(log_tail)
    cause = cause_of(log_tail)
    served = None if PORT.text.search(log_tail) else _SERVED.search(log_tail)
    if served is not None and returncode is not None:
        return _died(returncode, log_tail[served.end() :])
    pattern = _first_match(cause, log_tail)
    if pattern is None:
        return _by_code(returncode, cause)
    reason = cause if pattern.text.search(cause) else _line_of(pattern, log_tail)
    is_draft_fault = pattern.is_draft_fault or bool(draft_model and draft_model in cause)
    return Failure(pattern.kind, reason or cause, pattern.hint, is_draft_fault)


def cause_of(log_tail: str) -> str:
    """The line that says why: the parser's error, or the last exception of a traceback.

    A bare exception name does not replace one with a message. Without any exception: the line
    about a watchdog or a dead worker.
    """
    found = last_resort = ""
    for line in log_tail.splitlines():
        parser, match = _PARSER.match(line), _CAUSE.match(line)
        other = _LAST_RESORT.search(line)
        last_resort = last_resort or (other[1].strip() if other else "")
        if parser is not None:
            found = parser[1].strip()
        elif match is not None and not _NOISE.search(line):
            text = match[1].strip()
            is_bare = text.rstrip(":").replace(".", "").isidentifier()
            if not (is_bare and found):
                found = text
    is_told = bool(found) and not (last_resort and found.rstrip(":") == "EOFError")
    return (found if is_told else last_resort)[:400]


def plain_text(log: str) -> str:
    """A log without colours; a line that is a JSON record is replaced by its message."""
    lines = _ANSI.sub("", log).splitlines()
    return "\n".join(_message(line) if line.startswith("{") else line for line in lines)


def _message(line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    texts = [record.get(name) for name in ("message", "msg", "event")]
    return next((text for text in texts if isinstance(text, str)), line)


def _first_match(cause: str, log_tail: str) -> Pattern | None:
    """The first row that the cause matches; rows about the draft also see the lines before it,
    memory and ports the whole text."""
    near = _before(cause, log_tail)
    for row in PATTERNS:
        if cause and row.text.search(cause):
            return row
        everywhere = row.kind in _SEARCHED_EVERYWHERE or not cause
        text = log_tail if everywhere else near if row.is_draft_fault else ""
        if row is not COMBINATION and row.text.search(text):
            return row
    return None


def _before(cause: str, log_tail: str) -> str:
    if not cause:
        return ""
    lines = log_tail[: log_tail.rfind(cause[:80])].splitlines()
    return "\n".join(lines[-_LINES_BEFORE_CAUSE:])


def _died(returncode: int, after: str) -> Failure:
    memory = next(
        (r for r in PATTERNS if r.kind is Kind.OUT_OF_MEMORY and r.text.search(after)), None
    )
    if memory is not None:
        return Failure(memory.kind, _line_of(memory, after), memory.hint)
    reason = cause_of(after) or exit_words(returncode)
    hint = "Read the server's log; this server is not launched again."
    return Failure(Kind.DIED, f"it was ready and died: {reason}", hint)


def _by_code(returncode: int | None, cause: str) -> Failure:
    if returncode is None:
        hint = "Raise engine.launch_timeout, or read its log."
        return Failure(Kind.NOT_READY, cause or "it is running and never became ready", hint)
    hint = "Read the server's log."
    if returncode == 2:
        return Failure(Kind.REJECTED_FLAG, cause or "its parser refused the arguments", hint)
    return Failure(Kind.LAUNCH_CRASH, cause or exit_words(returncode), hint)


def exit_words(returncode: int) -> str:
    """An exit code in words: `exit code 1`, `ended by SIGKILL`."""
    number = -returncode if returncode < 0 else returncode - 128
    if number in {s.value for s in signal.Signals}:
        return f"ended by {signal.Signals(number).name}"
    return f"exit code {returncode}"


def _line_of(pattern: Pattern, log_tail: str) -> str:
    match = pattern.text.search(log_tail)
    if match is None:
        return ""
    start = log_tail.rfind("\n", 0, match.start()) + 1
    line = log_tail[start:].partition("\n")[0].strip()
    return _LOG_PREFIX.sub("", line)[:400]
