"""launch.sh: hostile values reach the program unchanged, through sh and through bash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.engines.dotenv import render_env
from tuner.export.launch import FOLDER, parse_launch, render_launch
from tuner.server.command import LaunchCommand

STUB = """\
#!{python}
import json, os, sys
print(json.dumps({{"argv": sys.argv, "env": dict(os.environ)}}))
"""

HOSTILE = 'a b \'c\' "d" $HOME `id` $(id) \\n \\ é ✓ *? ~ ; & | # {x}\nsecond line\n"quoted"'


def start(
    folder: Path, command: LaunchCommand, env: dict[str, str | None], shell: str, *more: str
) -> dict[str, dict[str, str] | list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.env").write_bytes(render_env(env, "note").encode())
    script = folder / "launch.sh"
    script.write_text(render_launch(command, env, port=30000, comment="test"), encoding="utf-8")
    given_env = {"PATH": "/usr/bin:/bin", "HOME": "/root", "REMOVED": "inherited", "KEPT": "yes"}
    done = subprocess.run(
        [shell, str(script), *more], capture_output=True, check=True, timeout=20, env=given_env
    )
    found: dict[str, dict[str, str] | list[str]] = json.loads(done.stdout)
    return found


def stub(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pro gram $x 'é'"
    path.write_text(STUB.format(python=sys.executable), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_hostile_values_reach_the_program(tmp_path: Path, shell: str) -> None:
    program = stub(tmp_path)
    folder = tmp_path / "a bundle $y 'ü' \"z\""
    argv = (program, HOSTILE, "", f"--config={FOLDER}/server.yaml", "plain")
    env: dict[str, str | None] = {"VALUE": HOSTILE, "EMPTY": "", "REMOVED": None}
    command = LaunchCommand(argv, {**env, "EXTRA": HOSTILE, "KEPT": None})
    found = start(folder, command, env, shell, "--api-key", "s e")
    config = f"--config={folder}/server.yaml"
    listen = ["--host", "127.0.0.1", "--port", "30000", "--api-key", "s e"]
    assert found["argv"] == [program, HOSTILE, "", config, "plain", *listen]
    seen = found["env"]
    assert isinstance(seen, dict)
    assert seen["VALUE"] == HOSTILE
    assert seen["EXTRA"] == HOSTILE
    assert seen["EMPTY"] == ""
    assert "REMOVED" not in seen
    assert "KEPT" not in seen


def test_host_port_and_program_can_be_chosen(tmp_path: Path) -> None:
    text = render_launch(LaunchCommand(("/nowhere/python",)), {}, port=8000, comment="x")
    (tmp_path / "launch.sh").write_text(text)
    (tmp_path / "server.env").write_text("")
    env = {"PATH": "/usr/bin:/bin", "HOST": "0.0.0.0", "PORT": "9", "PROGRAM": "echo"}
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "launch.sh")], env=env, capture_output=True, check=True
    )
    assert done.stdout == b"--host 0.0.0.0 --port 9\n"


@pytest.mark.parametrize(
    ("text", "message"), [("no equals\n", "must be NAME="), ('A="open\n', "A is not closed")]
)
def test_an_unreadable_env_file_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    script = render_launch(LaunchCommand(("/bin/echo",)), {}, port=8000, comment="x")
    (tmp_path / "launch.sh").write_text(script)
    (tmp_path / "server.env").write_text(text)
    done = subprocess.run(["/bin/sh", str(tmp_path / "launch.sh")], capture_output=True)
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert done.stdout == b""


WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    min_size=1,
    max_size=4,
)


@given(WORDS)
@settings(max_examples=100, deadline=None)
def test_the_script_is_parsed_back(words: list[str]) -> None:
    argv = ("python", *(word.replace("$here", "") for word in words), f"{FOLDER}/server.yaml")
    text = render_launch(LaunchCommand(argv), {}, port=1, comment="x")
    assert parse_launch(text) == argv


def test_other_scripts_are_not_parsed() -> None:
    with pytest.raises(ValueError, match="must end with exec"):
        parse_launch("#!/bin/sh\necho hello\n")


PER_NODE = {"--nnodes": "NNODES", "--node-rank": "NODE_RANK", "--dist-init-addr": "DIST_INIT_ADDR"}


def on_nodes(folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    command = LaunchCommand((stub(folder), "-m", "server"), {}, per_node=PER_NODE)
    (folder / "server.env").write_text(render_env({}, "note"))
    script = folder / "launch.sh"
    script.write_text(render_launch(command, {}, port=30000, comment="test"), encoding="utf-8")
    assert parse_launch(script.read_text()) == command.argv
    return subprocess.run(
        ["/bin/sh", str(script), "--more"],
        capture_output=True, check=False, timeout=20, env={"PATH": "/usr/bin:/bin", **env},
    )  # fmt: skip


def test_several_machines_differ_in_three_options_only(tmp_path: Path) -> None:
    env = {"NNODES": "2", "NODE_RANK": "1", "DIST_INIT_ADDR": "10.0.0.1:5000", "HOST": "0.0.0.0"}
    done = on_nodes(tmp_path, env)
    assert json.loads(done.stdout)["argv"][3:] == [
        "--host", "0.0.0.0", "--port", "30000", "--nnodes", "2", "--node-rank", "1",
        "--dist-init-addr", "10.0.0.1:5000", "--more",
    ]  # fmt: skip


def test_one_machine_needs_none_of_them_and_several_need_all(tmp_path: Path) -> None:
    alone = on_nodes(tmp_path, {})
    assert json.loads(alone.stdout)["argv"][3:] == [
        "--host", "127.0.0.1", "--port", "30000", "--more",
    ]  # fmt: skip
    unfinished = on_nodes(tmp_path, {"NNODES": "2"})
    assert unfinished.returncode != 0
    assert b"NODE_RANK" in unfinished.stderr
