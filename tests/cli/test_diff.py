"""What a running server is, in whatever form its owner has it, against the one to export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.cli.diff import Change, Diff, diff_lines, find_changes, find_diff, running_args
from tuner.config.engine import parse_engine
from tuner.config.space import ParameterConfig
from tuner.errors import UsageError
from tuner.store.record import ArgsRecord, TrialRecord
from tuner.store.stored import StoredStudy

ENGINE = parse_engine({"kind": "vllm", "model": "/models/big", "draft_model": "/models/draft"})
SPEC = {"method": "eagle3", "num_speculative_tokens": 3}
NEW = ServerArgs({"model": "/models/big", "max-num-seqs": 16, "speculative-config": SPEC}, {})
COMMAND = "vllm serve /models/big --max-num-seqs 32"


def running(text: str) -> ServerArgs:
    return running_args(text, ENGINE, NEW)


# ---- the forms -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        COMMAND,
        f"#!/bin/sh\n{COMMAND}\n",
        f"#!/bin/sh\nset -e\nexec {COMMAND}\n",
        f"if true; then\n  exec {COMMAND}\nfi\n",
        f"exec {COMMAND}\n# the end\n",
        f"{COMMAND}\n  # indented remark\n",
        f"exec {COMMAND}\necho never reached\n",
        "exec vllm serve /models/big \\\n    --max-num-seqs \\\n    32\n",
    ],
)
def test_a_script_is_what_it_executes(script: str, tmp_path: Path) -> None:
    path = tmp_path / "serve"
    path.write_text(script)
    assert running(script).flags["max-num-seqs"] == 32
    assert running(str(path)) == running(COMMAND)


def test_a_command_line_longer_than_a_file_name_is_one() -> None:
    name = "n" * 300
    assert running(f"{COMMAND} --served-model-name {name}").flags["served-model-name"] == name
    assert running(f"{COMMAND} {'--enforce-eager ' * 400}").flags["enforce-eager"] is True


def test_the_folder_one_stands_in_is_not_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle lies here; the command of several lines beside it is still the command."""
    bundle = {"server": {"args": ServerArgs({"model": "other"}, {}).to_json()}}
    (tmp_path / "manifest.json").write_text(json.dumps(bundle))
    monkeypatch.chdir(tmp_path)
    assert running(".").flags == {"model": "other"}
    assert running(f"{COMMAND} \\\n  --enforce-eager").flags["model"] == "/models/big"


@pytest.mark.parametrize("flags", [{"max-num-seqs": 32}, {"max_num_seqs": 32}])
def test_json_of_flags_may_use_either_dash(flags: dict[str, Any]) -> None:
    assert running(json.dumps(flags)) == running(COMMAND)


def test_a_lone_speculative_configuration_is_compared_with_the_new_ones() -> None:
    old = running('{"method": "eagle3", "num_speculative_tokens": 5}')
    assert {c.name: (c.old, c.new) for c in find_changes(old, running_new(), {})} == {
        "speculative-config.num_speculative_tokens": (5, 3)
    }


def running_new() -> ServerArgs:
    return running(json.dumps(SPEC))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"method": ', "--diff: must be JSON, got"),
        ("llama-server -m q.gguf", "must be a server of the study's engine, got llamacpp"),
        ("python serve.py", "must start sglang, vllm or llama-server"),
        ("", "must start sglang, vllm or llama-server"),
        ("vllm serve '/models/big", "must be a shell command"),
    ],
)
def test_what_cannot_be_understood_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        running(text)


# ---- the changes -----------------------------------------------------------------------------

PARAMETERS = {
    "depth": ParameterConfig(flag="speculative-config.num_speculative_tokens", int=(1, 7)),
    "algo": ParameterConfig(env="NCCL_ALGO", choices=["unset", "Ring"]),
}


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("flag", "a", 1, 2, "fixed in the study")]),
        ({"a": 1}, {}, [("flag", "a", 1, None, "not in the study")]),
        ({}, {"a": False}, [("flag", "a", None, False, "fixed in the study")]),
        (
            {"s": {"x": 1, "y": 2}}, {"s": {"x": 1, "y": 3}},
            [("flag", "s.y", 2, 3, "fixed in the study")],
        ),
        ({"s": {"x": {"y": 1}}}, {}, [("flag", "s.x.y", 1, None, "not in the study")]),
    ],
)  # fmt: skip
def test_every_difference_is_one_line(old: Any, new: Any, changes: list[Any]) -> None:
    found = find_changes(ServerArgs(old, {}), ServerArgs(new, {}), {})
    assert [(c.kind, c.name, c.old, c.new, c.reason) for c in found] == changes


def test_a_variable_that_is_taken_away_is_one_that_is_not_set() -> None:
    """A command line cannot say that it takes `NCCL_ALGO` away, as `unset` in a space does."""
    removed, silent = ServerArgs({"a": 1}, {"NCCL_ALGO": None}), ServerArgs({"a": 1}, {})
    assert find_changes(silent, removed, PARAMETERS) == ()
    trials = [
        TrialRecord(
            number=4, state="complete", vs_baseline=1.2, digest=removed.digest,
            requested_args=ArgsRecord(**removed.to_json()),
        )
    ]  # fmt: skip
    new = TrialRecord(number=7, state="complete", vs_baseline=1.5)
    found = find_diff(StoredStudy("s", trials), silent, (ServerArgs({"a": 2}, {}), new), {})
    assert found.old_trial == trials[0]
    assert found.gain == pytest.approx(1.25)


def test_searched_ones_come_first_and_are_named() -> None:
    old = ServerArgs({"a": 1, "speculative-config": {"num_speculative_tokens": 5}}, {})
    new = ServerArgs(
        {"a": 2, "speculative-config": {"num_speculative_tokens": 3}}, {"NCCL_ALGO": "Ring"}
    )
    assert [(c.name, c.reason) for c in find_changes(old, new, PARAMETERS)] == [
        ("NCCL_ALGO", "searched: algo"),
        ("speculative-config.num_speculative_tokens", "searched: depth"),
        ("a", "fixed in the study"),
    ]


# ---- the gain --------------------------------------------------------------------------------

CHANGE = Change("flag", "enforce-eager", True, None, "not in the study")


@pytest.mark.parametrize(
    ("old", "new", "gain", "said"),
    [
        (1.1, 1.32, 1.2, "measured 1.20x of the running one (trial 2), one launch each."),
        (None, 1.32, None, "(trial 7) measured 1.32x baseline; the running one was not measured"),
        (None, None, None, "(trial 7) measured unknown baseline"),
    ],
)
def test_the_gain(old: float | None, new: float | None, gain: float | None, said: str) -> None:
    known = None if old is None else TrialRecord(number=2, state="complete", vs_baseline=old)
    diff = Diff((CHANGE,), known, TrialRecord(number=7, state="complete", vs_baseline=new))
    assert diff.gain == (None if gain is None else pytest.approx(gain))
    lines = diff_lines(diff)
    assert lines[:2] == [
        "setting          running  exported  why",
        "--enforce-eager  true     -         not in the study",
    ]
    assert said in lines[-1]
