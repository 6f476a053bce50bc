"""Owns the command line of the bundled server: arguments to values, and the text of `--help`.

Rules and error texts are llama-server's (build 11549): a variable `LLAMA_ARG_…` applies where
no flag is given, the last of two equal flags wins, a removed flag names its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuner.embedded.reading import on_off
from tuner.embedded.table import FLAGS, REMOVED, Flag

_COLUMN = 40


class FlagError(Exception):
    """A command line that llama-server would refuse; the text is what it would print."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Values by attribute path, or a wish for help or version instead."""

    values: Mapping[str, Any]
    wants_help: bool = False
    wants_version: bool = False


def parse_command_line(argv: Sequence[str], environ: Mapping[str, str]) -> CommandLine:
    """Values that a command line and the environment ask for.

    Raises:
        FlagError: an unknown or removed flag, a missing or unreadable value.
    """
    if {"-h", "--help", "--usage"} & set(argv):
        return CommandLine({}, wants_help=True)
    if "--version" in argv:
        return CommandLine({}, wants_version=True)
    values = dict(_from_environment(environ))
    words = iter(argv)
    for word in words:
        flag = _known(word)
        values[flag.target] = _value_of(flag, word, words)
    return CommandLine(values)


def help_text() -> str:
    """Every supported flag and every removed one, in llama-server's layout."""
    lines = ["usage: python -m tuner.embedded [flags]", "", "----- flags -----", ""]
    for flag in FLAGS:
        names = (*flag.names, *flag.off_names)
        lines += _help_lines(f"{', '.join(names)} {flag.metavar}".rstrip(), flag.help)
        if flag.env:
            lines.append(f"{'':<{_COLUMN}}(env: {flag.env})")
    for removed, message in REMOVED.items():
        lines += _help_lines(f"{', '.join(removed)} N", message)
    return "\n".join(lines) + "\n"


def _help_lines(head: str, text: str) -> list[str]:
    if len(head) < _COLUMN:
        return [f"{head:<{_COLUMN}}{text}"]
    return [head, f"{'':<{_COLUMN}}{text}"]


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for flag in FLAGS:
        text = environ.get(flag.env, "") if flag.env else ""
        if text:
            yield flag.target, _read(flag.read or partial(_switched, flag), flag.env, text)


def _switched(flag: Flag, text: str) -> Any:
    return flag.on if on_off(text) else flag.off


def _known(word: str) -> Flag:
    if word in _BY_NAME:
        return _BY_NAME[word]
    for names, message in REMOVED.items():
        if word in names:
            raise FlagError(_handling(word, message))
    raise FlagError(f"error: invalid argument: {word}")


def _value_of(flag: Flag, word: str, words: Iterator[str]) -> Any:
    if flag.read is None:
        return flag.off if word in flag.off_names else flag.on
    text = next(words, None)
    if text is None:
        raise FlagError(_handling(word, "expected value for argument"))
    return _read(flag.read, word, text)


def _read(read: Callable[[str], Any], name: str, text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise FlagError(_handling(name, str(error))) from None


def _handling(name: str, message: str) -> str:
    return f'error while handling argument "{name}": {message}'


_BY_NAME: dict[str, Flag] = {
    name: flag for flag in FLAGS for name in (*flag.names, *flag.off_names)
}
