"""--on-trial: the user's command sees every trial and cannot stop the study."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tuner.cli.hook import TrialHook, split_command
from tuner.errors import UsageError
from tuner.events import Event, Notice, StageChanged, TrialFinished

TRIAL = TrialFinished(5, "complete", {"steps": 3}, value=float("nan"), vs_baseline=1.2)


def told(command: str) -> list[Event]:
    seen: list[Event] = []
    hook = TrialHook(command, seen.append)
    hook(StageChanged(5, "measuring"))
    hook(TRIAL)
    return seen


def test_the_command_gets_the_trial_as_json(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    seen = told(f'{sys.executable} -c "{code}" {out}')
    assert seen == [StageChanged(5, "measuring"), TRIAL]
    document = json.loads(out.read_text())
    assert document["number"] == 5
    assert document["params"] == {"steps": 3}
    assert document["value"] is None
    assert document["vs_baseline"] == 1.2


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (f"{sys.executable} -c 'raise SystemExit(\"no\")'", "exited with 1: no"),
        ("/nowhere/program", "must be a program that runs, got: No such file or directory"),
    ],
)
def test_its_failure_is_a_warning(command: str, text: str) -> None:
    last = told(command)[-1]
    assert isinstance(last, Notice)
    assert (last.level, last.message.split(": ", 1)[1]) == ("warning", text)


@pytest.mark.parametrize("command", ["", "   ", "echo 'open"])
def test_what_is_no_command_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match="--on-trial: must be a command"):
        split_command(command)
