"""Variables a study may set: what no system can hand over is refused with its place, before
anything is launched; everything else arrives as it was written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.config.environment import MOST_BYTES, check_value
from tuner.config.loader import load_study
from tuner.engines.catalog import get_engine
from tuner.errors import ConfigError
from tuner.server.command import LaunchCommand
from tuner.server.oneshot import run_command

StudyYaml = Callable[..., str]
PRINT = "import json, os, sys; print(json.dumps({n: os.environ.get(n) for n in sys.argv[1:]}))"


def load(work: Path, engine: dict[str, Any]) -> Any:
    document = {
        "name": "s", "engine": {"kind": "sglang", "model": "/m", "args": {"tp-size": 2}, **engine},
        "space": {"parameters": {"steps": {"flag": "speculative-num-steps", "int": [1, 2]}}},
        "workload": {"prompts": {"builtin": "mixed"}},
        "objective": {"maximize": "output_tokens_per_s"},
    }  # fmt: skip
    (work / "s.yaml").write_text(yaml.safe_dump(document))
    return load_study(work / "s.yaml")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"A": "x\0y"}, "engine.env.A: must not hold a NUL character"),
        ({"A": "x" * MOST_BYTES}, f"engine.env.A: must be at most {MOST_BYTES} bytes with its na"),
        ({"A=B": "1"}, "must be a variable name of letters"),
        ({"": "1"}, "must be a variable name of letters"),
        ({"A B": "1"}, "must be a variable name of letters"),
        ({"A\n": "1"}, "must be a variable name of letters"),
        ({"\u00c4": "1"}, "must be a variable name of letters"),
        ({"1A": "1"}, "must be a variable name of letters"),
        ({"TUNER_SERVER": "x"}, "must not begin with TUNER_"),
        ({"NCCL_PROT": "LL"}, "Did you mean NCCL_PROTO?"),
        ({"A": True}, "must be text, got true"),
        ({"A": ["x"]}, "must be text"),
        ({"A": {"b": 1}}, "must be text"),
    ],
)
def test_what_no_program_gets_is_refused(work: Path, env: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(work, {"env": env})
    shown = "\n".join(str(problem) for problem in caught.value.problems)
    assert says in shown
    assert "s.yaml:" in shown


HOSTILE = {
    "A_NEWLINE": "two\nlines\n", "A_QUOTE": "' ; touch /tmp/x; \"", "A_SHELL": "$(id) `id` $HOME",
    "A_UNICODE": "\u00fcn\u0131 \U0001f600 \u2028", "A_EMPTY": "", "A_EQUALS": "a=b=c",
    "A_TAB": "\t x \t", "A_LONG": "x" * 100_000, "A_SLASH": "\\\\n\\",
    "A_PERCENT": "%s %(x)s {y}",
}  # fmt: skip


def test_everything_else_arrives_as_it_was_written(work: Path) -> None:
    engine = get_engine(load(work, {"env": HOSTILE}).config.engine)
    assert engine.fixed_args().env == HOSTILE
    command = LaunchCommand((sys.executable, "-c", PRINT, *HOSTILE), HOSTILE)
    done = run_command(command, timeout_s=30)
    assert json.loads(done.stdout) == HOSTILE
    files = engine.render_config(engine.fixed_args())
    assert engine.parse_config(files).env == HOSTILE


def test_a_removed_variable_and_a_loader_are_the_users_choice(work: Path) -> None:
    env = {"LD_PRELOAD": "/opt/jemalloc.so", "PYTHONPATH": None}
    assert load(work, {"env": env}).config.engine.env == env


def test_the_limit_counts_bytes_and_the_name() -> None:
    assert check_value("A", "x" * (MOST_BYTES - 2)) is None
    assert check_value("AB", "x" * (MOST_BYTES - 2)) is not None
    assert check_value("A", "\u00fc" * (MOST_BYTES // 2)) is not None
