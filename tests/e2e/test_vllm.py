"""The real vLLM: its parser, its servers, its counters, its failures.

Needs TUNER_VLLM_VENV: an environment with vLLM (its CPU build is enough) that has the folder
models/ with smollm2 (a model that talks) and tiny-draft (a draft that is never accepted).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tuner.args import ServerArgs
from tuner.config.engine import VllmConfig
from tuner.config.workload import OutputTokensConfig, PromptsConfig, WorkloadConfig
from tuner.engines.base import EngineFacts, Resolution
from tuner.engines.vllm import VllmEngine
from tuner.engines.vllm.arguments import argv
from tuner.engines.vllm.schedule import with_schedule
from tuner.errors import FailureKind, TrialFailure
from tuner.measure.client import LoadClient
from tuner.measure.prompts import Workload, build_workload
from tuner.measure.records import Block, LoadPoint, Snapshot
from tuner.server.command import LaunchCommand
from tuner.server.oneshot import Completed, run_command
from tuner.server.ports import free_port
from tuner.server.process import ServerProcess
from tuner.server.readiness import wait_ready
from tuner.space import Parameter, SearchSpace

VENV = Path(os.environ.get("TUNER_VLLM_VENV", "/nowhere"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not VENV.is_dir(), reason="TUNER_VLLM_VENV names no environment"),
]
SPACE = SearchSpace(
    (
        Parameter("method", "categorical", ("off", "ngram"), flag="speculative-config.method"),
        Parameter("k", "int", (1, 4), flag="speculative-config.num_speculative_tokens"),
        Parameter("high", "int", (2, 4), flag="speculative-config.prompt_lookup_max"),
        Parameter("low", "int", (2, 5), flag="speculative-config.prompt_lookup_min"),
    )
)
C2 = LoadPoint(concurrency=2)

PARSE = """
import sys
sys.path[:] = [p for p in sys.path if p]
import json
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.entrypoints.launchers.cli_args import make_arg_parser
found = []
for argv in json.loads(sys.stdin.read()):
    parser = FlexibleArgumentParser(prog="vllm serve")
    make_arg_parser(parser.add_subparsers().add_parser("serve"))
    namespace = parser.parse_args(["serve", *argv])
    found.append({k: v for k, v in vars(namespace).items()
                  if isinstance(v, (bool, int, float, str, list, dict))})
print("parsed:" + json.dumps(found))
"""


def make_engine(**fields: Any) -> VllmEngine:
    base: dict[str, Any] = {
        "kind": "vllm",
        "executable": str(VENV / "bin" / "python"),
        "model": str(VENV / "models" / "smollm2"),
        "args": {"dtype": "bfloat16", "max-model-len": 2048, "enforce-eager": True},
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1"},
    }
    return VllmEngine(VllmConfig.model_validate({**base, **fields}))


def run(command: LaunchCommand | None, stdin: str | None = None) -> Completed:
    assert command is not None
    done = run_command(command, timeout_s=240, stdin=stdin)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def facts() -> EngineFacts:
    engine = make_engine()
    return engine.parse_facts({"facts": run(engine.fact_commands()["facts"]).stdout})


@pytest.fixture(scope="module")
def workload() -> Workload:
    config = WorkloadConfig(
        prompts=PromptsConfig(builtin="mixed"),
        blocks=2, block_size=4, held_out=0,
        output_tokens=OutputTokensConfig(exactly=24),
    )  # fmt: skip
    return build_workload(config, seed=7)


def parsed(files: list[list[str]]) -> list[dict[str, Any]]:
    command = LaunchCommand((str(VENV / "bin" / "python"), "-c", PARSE))
    out = run(command, stdin=json.dumps(files)).stdout
    found = json.loads(out[out.index("parsed:") + len("parsed:") :])
    assert isinstance(found, list)
    return found


def specimen(method: str) -> dict[str, Any]:
    """A full configuration of one method, with values that quoting could break."""
    spec: dict[str, Any] = {"method": method, "num_speculative_tokens": 3}
    if method in ("ngram", "ngram_gpu"):
        return {**spec, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
                "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 64, 0]]}  # fmt: skip
    if method == "suffix":
        return {**spec, "suffix_decoding_max_spec_factor": 2.5}
    return {
        **spec, "model": "/models/it's \"é\" $HOME", "parallel_drafting": True,
        "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.9, 0.5, 0.25],
    }  # fmt: skip


# ---- the parser ------------------------------------------------------------------------------
def test_the_installed_version_lists_what_the_spaces_use(facts: EngineFacts) -> None:
    assert facts.version
    assert facts.flags is not None
    assert {"speculative-config", "no-enable-prefix-caching", "max-num-seqs"} <= facts.flags
    assert {"ngram", "suffix", "eagle", "eagle3", "mtp", "draft_model", "medusa"} <= set(
        facts.values["methods"]
    )
    assert {"prompt_lookup_max", "draft_tensor_parallel_size"} <= set(facts.values["fields"])


def test_every_method_goes_through_the_real_parser_and_file_loader(
    facts: EngineFacts, tmp_path: Path
) -> None:
    """The same values come out of the command line and of server.yaml, for every method."""
    engine = make_engine()
    servers = [
        ServerArgs({**engine.fixed_args().flags, "served-model-name": ["a b", "c"],
                    "enable-prefix-caching": False, "speculative-config": specimen(method)})
        for method in facts.values["methods"]
    ]  # fmt: skip
    asked: list[list[str]] = []
    for number, args in enumerate(servers):
        path = tmp_path / f"{number}.yaml"
        path.write_text(engine.render_config(args)["server.yaml"])
        asked += [argv(args.flags), ["--config", str(path)]]
    found = parsed(asked)
    for args, line, file in zip(servers, found[::2], found[1::2], strict=True):
        assert line["speculative_config"] == args.flags["speculative-config"]
        assert {k: v for k, v in file.items() if k not in ("model", "model_tag", "config")} == {
            k: v for k, v in line.items() if k not in ("model", "model_tag", "config")
        }
        assert (line["served_model_name"], line["enable_prefix_caching"]) == (["a b", "c"], False)


def test_vllm_resolves_and_refuses_as_the_rules_say(facts: EngineFacts) -> None:
    engine = make_engine()
    points = [
        {"method": method, "k": k, "high": high, "low": low}
        for method in ("off", "ngram")
        for k in (1, 4)
        for high in (2, 4)
        for low in (2, 5)
    ]
    servers = [engine.canonicalize(point, SPACE) for point in points]
    found = engine.parse_preflight(run(engine.preflight(servers)).stdout, servers)
    ours = [bool(engine.violations(args, facts)) for args in servers]
    assert [bool(one.error) for one in found] == ours
    assert any(ours)
    for args, one in zip(servers, found, strict=True):
        _agrees(args, one)


def _agrees(args: ServerArgs, resolved: Resolution) -> None:
    """What vLLM settled on is what the canonical form says."""
    spec = args.flags.get("speculative-config", {})
    assert isinstance(spec, dict)
    if not resolved.error:
        got = resolved.effective
        assert {key: got[f"speculative-config.{key}"] for key in spec} == spec


# ---- servers ---------------------------------------------------------------------------------
@contextmanager
def serving(
    engine: VllmEngine, args: ServerArgs, folder: Path, exported: LaunchCommand | None = None
) -> Iterator[ServerProcess]:
    port = free_port()
    command = engine.command(args, port)
    if exported is not None:
        where = ("--host", "127.0.0.1", "--port", str(port))
        command = LaunchCommand((*exported.argv, *where), exported.env)
    with ServerProcess.launch(command, port=port, log_path=folder / "server.log") as process:
        report = wait_ready(
            process, engine.probe(args), timeout_s=120, hard_cap_s=300, classify=engine.classify
        )
        assert report.identity == str(VENV / "models" / "smollm2")
        members = [stat.id.pid for stat in process.members()]
        assert len(members) >= 3, "API server, engine core and worker"
        yield process
    assert not [pid for pid in members if psutil.pid_exists(pid)]


def measured(
    engine: VllmEngine, args: ServerArgs, process: ServerProcess, workload: Workload
) -> tuple[list[Block], Snapshot, Snapshot]:
    with LoadClient(
        process.base_url, engine.wire(args), workload, alive=lambda: process.exit_reason() or None
    ) as client:
        before = client.snapshot(engine.snapshot_paths())
        blocks = [client.run_block(i, p, C2) for i, p in enumerate(workload.blocks)]
        after = client.snapshot(engine.snapshot_paths())
    return blocks, before, after


def check_records(blocks: list[Block]) -> None:
    records = [record for block in blocks for record in block.records]
    assert [record.error for record in records] == [""] * len(records)
    assert {record.output_tokens for record in records} == {24}
    assert {record.finish_reason for record in records} == {"length"}


def test_an_ngram_server_from_launch_to_stop(workload: Workload, tmp_path: Path) -> None:
    engine = make_engine()
    args = engine.canonicalize({"method": "ngram", "k": 4, "high": 4, "low": 2}, SPACE)
    with serving(engine, args, tmp_path) as process:
        blocks, before, after = measured(engine, args, process, workload)
        effective = engine.parse_effective(process.log_path.read_text())
    check_records(blocks)
    spec = args.flags["speculative-config"]
    assert isinstance(spec, dict)
    assert {key: effective[f"speculative-config.{key}"] for key in spec} == spec
    assert [drift.name for drift in engine.drift(args, effective)] == ["async-scheduling"]
    found = engine.acceptance(before, after, [r for b in blocks for r in b.records])
    assert found is not None
    requests = sum(len(block.records) for block in blocks)
    assert found.steps is not None
    # Every token is the first one, a step's own, or an accepted draft.
    assert requests * 24 <= requests + found.steps + found.accepted <= requests * (24 + 4)
    assert sum(found.per_position) == pytest.approx(found.length - 1)
    assert len(found.per_position) == 4
    assert engine.classify(0, process.log_tail()).kind is FailureKind.INTERRUPTED


def test_what_is_exported_is_the_server_that_was_measured(tmp_path: Path) -> None:
    """Launched from server.yaml, with a table and a false switch, and read back from its log."""
    engine = make_engine()
    args = engine.canonicalize({"method": "ngram", "k": 4, "high": 4, "low": 2}, SPACE)
    args = args.replace(
        {"speculative-config": with_schedule(_spec(args), {1: 3, 8: 0}, 64),
         "enable-prefix-caching": False}
    )  # fmt: skip
    for name, text in engine.render_config(args).items():
        (tmp_path / name).write_text(text)
    exported = engine.deploy_command(args, str(tmp_path))
    with serving(engine, args, tmp_path, exported) as process:
        effective = engine.parse_effective(process.log_path.read_text())
    assert effective["enable-prefix-caching"] is False
    assert {key: effective[f"speculative-config.{key}"] for key in _spec(args)} == _spec(args)
    assert [drift.name for drift in engine.drift(args, effective)] == ["async-scheduling"]


def test_a_draft_that_is_never_accepted(workload: Workload, tmp_path: Path) -> None:
    engine = make_engine(
        draft_model=str(VENV / "models" / "tiny-draft"),
        args={"dtype": "bfloat16", "max-model-len": 2048, "enforce-eager": True,
              "speculative-config": {"method": "draft_model", "num_speculative_tokens": 3}},
    )  # fmt: skip
    args = ServerArgs(
        {**engine.fixed_args().flags, "per-request-spec-decode-metrics": "summary"},
        engine.fixed_args().env,
    )
    with serving(engine, args, tmp_path) as process:
        blocks, before, after = measured(engine, args, process, workload)
        effective = engine.parse_effective(process.log_path.read_text())
    check_records(blocks)
    records = [record for block in blocks for record in block.records]
    found = engine.acceptance(before, after, records)
    assert found is not None
    assert found.length < 1.1
    assert found.drafted is not None
    assert found.drafted >= 3 * len(records)
    assert set(found.by_category) == {record.category for record in records}
    assert effective["speculative-config.model"].endswith("tiny-draft")


def test_a_refused_server_says_why(tmp_path: Path) -> None:
    """A table that vLLM accepts on the command line and refuses in the engine core."""
    engine = make_engine()
    args = engine.canonicalize({"method": "ngram", "k": 4}, SPACE)
    spec: Mapping[str, Any] = {
        **_spec(args), "num_speculative_tokens_per_batch_size": [[2, 4, 1]],
    }  # fmt: skip
    args = args.replace({"speculative-config": dict(spec)})
    assert [v.rule for v in engine.violations(args, EngineFacts())] == ["schedule-form"]
    with pytest.raises(TrialFailure) as failure, serving(engine, args, tmp_path):
        pytest.fail("vLLM took a table that does not start at 1")
    assert failure.value.reason.startswith("The first batch-size range must start at 1")


def _spec(args: ServerArgs) -> dict[str, Any]:
    spec = args.flags["speculative-config"]
    assert isinstance(spec, dict)
    return spec
