"""Owns `tuner.service`: the bundle's launch.sh as a systemd unit."""

from __future__ import annotations

from pathlib import Path

NAME = "tuner.service"

_UNIT = """\
{comment}
[Unit]
Description={description}
After=network-online.target
Wants=network-online.target

[Service]
Environment=HOST=127.0.0.1 PORT={port}
ExecStart=/bin/sh {script}
Restart=on-failure
RestartSec=10
TimeoutStopSec=60
KillMode=control-group
LimitMEMLOCK=infinity
LimitCORE=0

[Install]
WantedBy=multi-user.target
"""


def render_systemd(folder: Path, *, port: int, study: str, comment: str) -> str:
    """The unit; it runs launch.sh where the bundle is, which reads server.env itself."""
    return _UNIT.format(
        comment="\n".join(f"# {line}" for line in comment.splitlines()),
        description=f"LLM server tuned in study {study}".replace("%", "%%"),
        port=port,
        script=quoted(str(folder / "launch.sh")),
    )


def quoted(word: str) -> str:
    """A word for ExecStart: `%` and `$` are specifiers there, backslash and quote escapes."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("%", "%%").replace("$", "$$") + '"'
