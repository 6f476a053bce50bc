r"""Owns the form of `server.env`: environment variables as text that no reader evaluates.

One variable is `NAME="value"`; inside the quotes a backslash stands before `\`, `"`, `$` and
a backtick, and a value may span lines. A POSIX shell, systemd's EnvironmentFile and Docker
Compose's env_file read the same value out of it. A variable that must be absent is the comment
`# unset NAME`: those readers ignore it, `launch.sh` obeys it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SPECIAL = re.compile(r'([\\"$`])')
_ESCAPE = re.compile(r'\\([\\"$`])')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t]*(?:\n|\Z)', re.DOTALL)
_UNSET = "# unset "


def render_env(env: Mapping[str, str | None], comment: str = "") -> str:
    """The file's text, sorted by name; None becomes an `# unset NAME` line.

    Raises:
        ValueError: a name is not an identifier, or a value holds a NUL character.
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    for name, value in sorted(env.items()):
        if not NAME.match(name):
            raise ValueError(f"environment: names must be [A-Za-z_][A-Za-z0-9_]*, got {name!r}")
        if value is not None and "\0" in value:
            raise ValueError(f"environment: {name} must not hold a NUL character")
        quoted = "" if value is None else _SPECIAL.sub(r"\\\1", value)
        lines.append(f"{_UNSET}{name}" if value is None else f'{name}="{quoted}"')
    return "".join(f"{line}\n" for line in lines)


def parse_env(text: str) -> dict[str, str | None]:
    """Inverse of `render_env`; unquoted single-line values are accepted as they stand.

    Raises:
        ValueError: a line is neither a comment nor `NAME=value`, with its line number.
    """
    found: dict[str, str | None] = {}
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end].rstrip("\r")
        if line.startswith(_UNSET) and NAME.match(line.removeprefix(_UNSET)):
            found[line.removeprefix(_UNSET)] = None
        elif line.strip() and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals or not NAME.match(name):
                number = text.count("\n", 0, position) + 1
                raise ValueError(f'line {number}: must be NAME="value", got {line!r}')
            found[name], end = _value(text, position + len(name) + 1, end, value)
        position = end + 1
    return found


def _value(text: str, start: int, end: int, line: str) -> tuple[str, int]:
    """The value that begins at `start`, and where its last line ends."""
    if not line.startswith('"'):
        return line, end
    match = _QUOTED.match(text, start)
    if match is None:
        number = text.count("\n", 0, start) + 1
        raise ValueError(f"line {number}: a quoted value must end with a quote and its line")
    stop = match.end() - 1 if match.group().endswith("\n") else match.end()
    return _ESCAPE.sub(r"\1", match.group(1)), stop
