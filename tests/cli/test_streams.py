"""Standard streams that are full, closed or read by nobody are no defect and lose no study."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.cli.progress import Progress
from tuner.cli.view import TerminalView
from tuner.events import Notice
from tuner.store.record import TrialRecord

TUNER = f"{sys.executable} -m tuner"


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("command", ["trouble", "trouble --json", "schema", "--version"])
def test_a_full_disk_behind_stdout_is_the_hosts_fault(tmp_path: Path, command: str) -> None:
    done = shell(f"{TUNER} {command} > /dev/full", tmp_path)
    assert done.returncode == 3
    assert done.stderr == (
        "standard output: must be writable, got: No space left on device.\n"
        "  Direct it elsewhere; what was measured is stored (`tuner show`).\n"
    )


def test_a_reader_that_has_gone_ends_the_command_silently(tmp_path: Path) -> None:
    done = shell(f"{{ {TUNER} schema; echo $? > code; }} | true; sleep 0.1", tmp_path)
    while not (tmp_path / "code").exists():
        assert done.returncode == 0
    assert (tmp_path / "code").read_text() == "141\n"
    assert done.stderr == ""


def test_closed_streams_lead_nowhere(tmp_path: Path) -> None:
    assert shell(f"exec {TUNER} trouble <&- >&- 2>&-", tmp_path).returncode == 0
    assert shell(f"exec {TUNER} show nope <&- >&- 2>&-", tmp_path).returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["/dev/full", "&-"])
def test_an_error_keeps_its_exit_code_where_nobody_reads_it(tmp_path: Path, where: str) -> None:
    done = shell(f"{TUNER} show nope --json 2>{where}", tmp_path)
    assert done.returncode == 2
    assert '"exit_code": 2' in done.stdout


class Gone(io.StringIO):
    """A terminal that was closed."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")

    def flush(self) -> None:
        raise OSError(5, "Input/output error")


def test_a_study_goes_on_when_its_terminal_is_closed(trials: list[TrialRecord]) -> None:
    with TerminalView(Progress("output_tokens_per_s", lambda: 0.0), Gone(), width=80) as view:
        view.recall(trials)
        view(Notice("warning", "nobody reads this"))
