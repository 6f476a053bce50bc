"""Owns `launch.sh`: a POSIX script that starts the exported server with nothing evaluated."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tuner.server.command import LaunchCommand

FOLDER = "/@bundle@"
"""Stands for the bundle's folder in commands; the script finds its own place."""

_HERE = '"$here"'
_TAIL = ("--host", '"$HOST"', "--port", '"$PORT"', '"$@"')

_SCRIPT = """\
#!/bin/sh
{comment}
# HOST and PORT say where the server listens, PROGRAM replaces the interpreter or binary, and
# further arguments are passed on. server.env is read as text; nothing in it is evaluated.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
HOST=${{HOST:-127.0.0.1}}
PORT=${{PORT:-{port}}}
program={program}
[ -z "${{PROGRAM:-}}" ] || program=$PROGRAM

load_env() {{ # NAME="value" with \\ before \\ " $ `; a value may span lines; "# unset NAME"
  name= value= open=
  while IFS= read -r line || [ -n "$line" ]; do
    if [ -z "$open" ]; then
      case $line in
        '# unset '*) unset "${{line#\\# unset }}"; continue ;;
        '' | '#'*) continue ;;
        [A-Za-z_]*=*) name=${{line%%=*}} line=${{line#*=}} value= ;;
        *) echo "server.env: must be NAME=\\"value\\", got: $line" >&2; exit 2 ;;
      esac
      case $name in *[!A-Za-z0-9_]*) echo "server.env: bad name $name" >&2; exit 2 ;; esac
      case $line in
        '"'*) open=1 line=${{line#?}} ;;
        *) export "$name=$line"; continue ;;
      esac
    else
      value=$value$newline
    fi
    while [ -n "$line" ]; do
      case $line in
        '\\'?*) line=${{line#?}} rest=${{line#?}}; value=$value${{line%"$rest"}} line=$rest ;;
        '"'*) export "$name=$value"; open= line= ;;
        *) rest=${{line#[!\\\\\\"]}}; value=$value${{line%"$rest"}} line=$rest ;;
      esac
    done
  done <"$1"
  [ -z "$open" ] || {{ echo "server.env: $name is not closed" >&2; exit 2; }}
}}
newline='
'
{exports}load_env "$here/server.env"
{nodes}exec "$program" {arguments}
"""


def render_launch(
    command: LaunchCommand, env: Mapping[str, str | None], *, port: int, comment: str
) -> str:
    """The script for a deploy command whose folder is FOLDER.

    Args:
        command: what the engine starts; host and port are appended.
        env: what server.env holds; only further variables of the command are exported here.
        port: the default port.
        comment: lines for the head of the script.
    """
    further = {k: v for k, v in sorted(command.env.items()) if k not in env or env[k] != v}
    return _SCRIPT.format(
        comment="\n".join(f"# {line}" for line in comment.splitlines()),
        port=port,
        program=_quoted(command.argv[0]),
        exports="".join(_export(name, value) for name, value in further.items()),
        nodes=_nodes(command.per_node),
        arguments=" ".join([*map(_quoted, command.argv[1:]), *_TAIL]),
    )


def parse_launch(text: str) -> tuple[str, ...]:
    """The argument vector of a script, with FOLDER for its folder: what `render_launch` got.

    Raises:
        ValueError: it is not a script of this form.
    """
    head, found, tail = text.rpartition('\nexec "$program" ')
    start = head.find("\nprogram=")
    if not found or start < 0:
        raise ValueError('launch.sh: must end with exec "$program" …')
    end = head.index('\n[ -z "${PROGRAM', start)
    program = shlex.split(head[start + len("\nprogram=") : end])
    words = shlex.split(tail)
    expected = [word.strip('"') for word in _TAIL]
    if len(program) != 1 or words[-len(expected) :] != expected:
        raise ValueError("launch.sh: must pass --host and --port, got other last arguments")
    found_words = [program[0], *words[: -len(expected)]]
    return tuple(word.replace("$here", FOLDER) for word in found_words)


def _quoted(word: str) -> str:
    parts = [shlex.quote(part) if part else "" for part in word.split(FOLDER)]
    return _HERE.join(parts) or "''"


def _nodes(per_node: Mapping[str, str]) -> str:
    """Options of a deployment on several machines; they come first, so that the user's win."""
    if not per_node:
        return ""
    first, *_ = per_node.values()
    words = " ".join(f'{option} "${{{name}:?}}"' for option, name in per_node.items())
    names = ", ".join(per_node.values())
    return (
        f"# {names}: set on every machine of a deployment that spans several.\n"
        f'[ -z "${{{first}:-}}" ] || set -- {words} "$@"\n'
    )


def _export(name: str, value: str | None) -> str:
    return f"unset {name}\n" if value is None else f"export {name}={shlex.quote(value)}\n"
