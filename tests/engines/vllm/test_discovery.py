"""Questions to the installed vLLM and the reading of its answers; no vLLM is run here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tuner.args import ServerArgs
from tuner.engines.base import Resolution
from tuner.engines.vllm.discovery import read_facts, read_resolutions, resolve_argv
from tuner.engines.vllm.inside import MARK

NGRAM = {"method": "ngram", "num_speculative_tokens": 2}
BASE = ServerArgs({"model": "/m", "enforce-eager": True})
SERVERS = [BASE, BASE.replace({"speculative-config": NGRAM, "max-num-seqs": 64})]


def test_facts() -> None:
    answer = {"version": "0.32.0", "flags": ["model", "seed"], "methods": ["ngram"]}
    facts = read_facts(f"Triton is off.\n{MARK}{json.dumps(answer)}\nbye\n")
    assert (facts.version, facts.flags) == ("0.32.0", frozenset({"model", "seed"}))
    assert facts.values == {"methods": ["ngram"]}


def test_unreadable_answers_are_unknown_facts() -> None:
    for output in ("", "Traceback …", f"{MARK}{{", f"{MARK}[1]"):
        facts = read_facts(output)
        assert (facts.version, facts.flags, dict(facts.values)) == ("", None, {})
        assert read_resolutions(output, [BASE]) == [Resolution()]


def test_what_all_servers_share_is_said_once() -> None:
    asked = resolve_argv("/opt/vllm/bin/python", SERVERS)
    assert (asked[0], asked[2]) == ("/opt/vllm/bin/python", "resolve")
    assert Path(asked[1]).name == "inside.py"
    assert [json.loads(one) for one in asked[3:]] == [
        ["/m", "--enforce-eager"],
        [],
        ["--max-num-seqs", "64", "--speculative-config", json.dumps(NGRAM)],
    ]


def test_true_and_one_are_not_shared() -> None:
    asked = resolve_argv("p", [ServerArgs({"x": True}), ServerArgs({"x": 1})])
    assert [json.loads(one) for one in asked[3:]] == [[], ["--x"], ["--x", "1"]]


def test_more_than_fits_is_not_asked() -> None:
    servers = [
        ServerArgs({"model": "m", "hf-overrides": "x" * 600_000 + str(n)}) for n in range(4)
    ]
    asked = resolve_argv("p", servers)
    assert len(asked) == 4 + 2
    answer = MARK + json.dumps([{"effective": {"max-num-seqs": 8}}] * 2)
    found = read_resolutions(answer, servers)
    assert [dict(one.effective) for one in found] == [{"max-num-seqs": 8}] * 2 + [{}] * 2


def test_resolutions() -> None:
    pydantic = (
        "1 validation error for SpeculativeConfig\n  Value error, prompt_lookup_min=4 must be <= "
        "prompt_lookup_max=3 [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]"
        "\n    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
    )
    answer = [
        {"effective": {"async-scheduling": True}},
        {"error": pydantic, "kind": "ValidationError"},
        {"error": "Failed to infer device type", "kind": "RuntimeError"},
        {"error": "We couldn't connect to 'https://huggingface.co'", "kind": "OSError"},
        {"error": "", "kind": "AssertionError"},
        "nonsense",
    ]
    found = read_resolutions(MARK + json.dumps(answer), [BASE] * 6)
    assert [one.error for one in found] == [
        "", "prompt_lookup_min=4 must be <= prompt_lookup_max=3", "", "", "AssertionError", "",
    ]  # fmt: skip
    assert found[0].effective == {"async-scheduling": True}
    assert found[0].canonical == BASE


def test_the_method_that_vllm_settled_on_is_canonical() -> None:
    server = BASE.replace(
        {
            "speculative-config": {
                "method": "draft_model",
                "model": "/x",
                "num_speculative_tokens": 2,
            }
        }
    )
    answer = MARK + json.dumps([{"effective": {"speculative-config.method": "eagle3"}}])
    (found,) = read_resolutions(answer, [server])
    assert found.canonical is not None
    spec = found.canonical.flags["speculative-config"]
    assert isinstance(spec, dict)
    assert spec["method"] == "eagle3"


STAND_IN = """
import argparse
class AsyncEngineArgs:
    @classmethod
    def from_cli_args(cls, args):
        self = cls()
        self.args = args
        return self
    def create_engine_config(self):
        raise ValueError(f"no engine for {self.args.model}")
"""


def _fake_vllm(folder: Path) -> None:
    files = {
        "vllm/__init__.py": "",
        "vllm/utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
        "vllm/engine/__init__.py": "",
        "vllm/engine/arg_utils.py": STAND_IN,
        "vllm/entrypoints/__init__.py": "",
        "vllm/entrypoints/openai/__init__.py": "",
        "vllm/entrypoints/openai/cli_args.py": (
            "def make_arg_parser(parser):\n"
            "    parser.add_argument('model_tag', nargs='?')\n"
            "    parser.add_argument('--model', default='other')\n"
            "    parser.add_argument('--max-num-seqs', type=int)\n"
            "    return parser\n"
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_program_speaks_to_an_old_layout_and_is_not_shadowed(tmp_path: Path) -> None:
    """The current folder holds traps; the stand-in vLLM has the module names of 0.11."""
    _fake_vllm(tmp_path / "site")
    trap = tmp_path / "here" / "vllm"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text("raise SystemExit('the current folder was imported')")
    servers = [BASE.without(frozenset({"enforce-eager"})), ServerArgs({"model": "/m", "bad": 1})]
    run = subprocess.run(
        resolve_argv(sys.executable, servers),
        cwd=tmp_path / "here",
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    found = read_resolutions(run.stdout, servers)
    assert [one.error for one in found] == [
        "no engine for /m", "vllm serve: error: unrecognized arguments: --bad 1",
    ]  # fmt: skip
