"""Owns what an exit code and the end of a log say, in one line of words; knows no engine."""

from __future__ import annotations

import re
import signal

_TELLING = re.compile(
    r"\berror\b|exception|\bfatal\b|failed|out of memory|cannot|could not|couldn't|unable to"
    r"|abort|assert|unrecognized|unknown (?:argument|option|flag|key|model)|invalid|mismatch"
    r"|traceback|no such|denied|refused"
    r"|already in use|killed|panic",
    re.IGNORECASE,
)
_PYTHON_ERROR = re.compile(r"^\s*(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b")
_ADDRESS_IN_USE = re.compile(
    r"address already in use|EADDRINUSE|\berrno:? 98\b|couldn't bind .*socket"
    r"|failed to (?:bind|listen).*(?:address|port|socket)|could not bind .*(?:address|port)",
    re.IGNORECASE,
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WIDTH = 300


def describe_exit(code: int) -> str:
    """An exit code in words: `exited with code 1`, `killed by SIGABRT`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def plain_lines(log: str) -> list[str]:
    """The lines of a log without colours, carriage-return progress bars and empty lines."""
    lines = (line.rstrip().rpartition("\r")[2].strip() for line in _ANSI.sub("", log).split("\n"))
    return [line for line in lines if line]


def last_error_lines(log: str, count: int = 5) -> list[str]:
    """The last lines that tell of an error, oldest first; the last lines when none does."""
    lines = plain_lines(log)
    telling = [line for line in lines if _TELLING.search(line)]
    return [line[:_WIDTH] for line in (telling or lines)[-count:]]


def last_telling_line(log: str) -> str:
    """The one line that says best why a server ended; "" for an empty log.

    The last line of a Python traceback wins over any other mention of an error: servers go on
    logging about shutting down after it.
    """
    lines = plain_lines(log)
    for line in reversed(lines):
        if _PYTHON_ERROR.match(line):
            return line[:_WIDTH]
    return (last_error_lines(log, 1) or [""])[0]


def names_address_in_use(log: str) -> bool:
    """True when one of the last lines of a log says that an address was taken."""
    return any(_ADDRESS_IN_USE.search(line) for line in plain_lines(log)[-40:])
