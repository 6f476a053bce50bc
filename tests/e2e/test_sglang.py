"""The real SGLang's own code: its resolver against the rule table on every point of the shipped
spaces, its parser on exported files, its flags; and a server started from its exported file.

Needs TUNER_SGLANG_VENV and TUNER_REAL_ENGINES (see test_sglang_study.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from tuner.args import ServerArgs
from tuner.config.engine import SglangConfig
from tuner.config.loader import load_study
from tuner.engines.base import Resolution
from tuner.engines.sglang.adaptive import parse_adaptive, render_adaptive, steps_at
from tuner.engines.sglang.canonical import canonical
from tuner.engines.sglang.engine import SglangEngine
from tuner.engines.sglang.facts import unknown_flags
from tuner.engines.sglang.render import argv_of
from tuner.engines.sglang.rules import REFUSALS, violations
from tuner.server.command import LaunchCommand
from tuner.server.oneshot import run_command
from tuner.server.ports import free_port
from tuner.server.process import ServerProcess
from tuner.server.readiness import wait_ready
from tuner.space import SearchSpace, build_space

VENV = Path(os.environ.get("TUNER_SGLANG_VENV", "/nowhere"))
SHIM = Path(os.environ.get("TUNER_REAL_ENGINES", "../shared/real_engines")) / "sglang_shim"
ROOT = Path(__file__).parents[2]
SPACES = sorted(path.name for path in (ROOT / "search_spaces").glob("sglang-*.yaml"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not VENV.is_dir(), reason="TUNER_SGLANG_VENV names no environment"),
]
ENV = {"PYTHONPATH": str(SHIM.resolve()), "TRITON_INTERPRET": "1", "HF_HUB_OFFLINE": "1"}
AT_PARSE = {rule.name for rule in REFUSALS if rule.when == "parse"}


def engine(**section: Any) -> SglangEngine:
    fields: dict[str, Any] = {
        "model": str(VENV / "models" / "tiny"),
        "draft_model": str(VENV / "models" / "tiny-eagle3"),
        "executable": str(VENV / "bin" / "python"),
        "env": ENV,
    }
    return SglangEngine(SglangConfig(kind="sglang", **{**fields, **section}), inherited={})


def resolve(adapter: SglangEngine, servers: list[ServerArgs]) -> list[Resolution]:
    command = adapter.preflight(servers)
    assert command is not None
    done = run_command(command, timeout_s=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return adapter.parse_preflight(done.stdout, servers)


def space_of(name: str, folder: Path) -> SearchSpace:
    study = folder / "study.yaml"
    study.write_text(
        "name: s\nengine: {kind: sglang, model: /m, draft_model: /d}\n"
        f"space: {{include: [{ROOT / 'search_spaces' / name}]}}\n"
        "workload: {prompts: {builtin: mixed}}\nobjective: {maximize: output_tokens_per_s}\n"
    )
    return build_space(load_study(study))


def test_the_table_and_the_resolver_agree_on_every_point(tmp_path: Path) -> None:
    """What the table refuses at parse, SGLang refuses; what it rewrites, SGLang rewrites so."""
    adapter = engine()
    asked = [
        adapter.asked(point, space)
        for space in (space_of(name, tmp_path) for name in SPACES)
        for point in space.points()
    ]
    assert len(asked) > 200
    for args, found in zip(asked, resolve(adapter, asked), strict=True):
        ours = canonical(args)
        broken = {v.rule for v in violations(ours, adapter.parse_facts({}))}
        assert bool(found.error) == bool(broken & AT_PARSE), (args.flags, broken, found.error)
        if found.canonical is not None:
            assert canonical(found.canonical) == ours, args.flags


ODD: list[tuple[dict[str, Any], str]] = [
    ({"speculative-algorithm": "FOO"}, "algorithm-known"),
    ({"speculative-eagle-topk": 2}, "all-three-or-none"),
    ({"speculative-num-steps": 2}, "all-three-or-none"),
    ({"page-size": 64, "attention-backend": "torch_native", "speculative-num-steps": 2,
      "speculative-eagle-topk": 2, "speculative-num-draft-tokens": 4}, "paged-tree"),
    ({"attention-backend": "flex_attention", "speculative-num-steps": 2,
      "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 3}, "draft-backend"),
    ({"speculative-use-rejection-sampling": True, "speculative-num-steps": 2,
      "speculative-eagle-topk": 2, "speculative-num-draft-tokens": 4}, "rejection-sampling"),
    ({"speculative-draft-window-size": -1}, "draft-window"),
    ({"speculative-draft-sink-size": 4}, "draft-window"),
    ({"speculative-algorithm": "DFLASH", "speculative-dflash-block-size": 8,
      "speculative-num-draft-tokens": 4}, "dflash-block"),
    ({"speculative-algorithm": "DFLASH", "device": "cpu"}, "device"),
    ({"speculative-algorithm": "NGRAM", "page-size": 16}, "paged-ngram"),
    ({"speculative-adaptive": True, "speculative-num-steps": 4,
      "speculative-eagle-topk": 1}, "adaptive-steps"),
    ({"chunked-prefill-size": 1000, "page-size": 64}, "chunk-of-pages"),
]  # fmt: skip


def test_illegal_combinations_are_refused_by_both() -> None:
    adapter = engine(args={"speculative-algorithm": "EAGLE3"})
    base = adapter.asked({}, SearchSpace(()))
    servers = [base.replace({"attention-backend": "triton", **flags}) for flags, _ in ODD]
    for args, (flags, rule), found in zip(servers, ODD, resolve(adapter, servers), strict=True):
        assert found.error, flags
        assert rule in {v.rule for v in violations(canonical(args), adapter.parse_facts({}))}


def test_flags_and_version_are_discovered() -> None:
    adapter = engine()
    outputs = {}
    for name, command in adapter.fact_commands().items():
        done = run_command(command, timeout_s=120)
        outputs[name] = f"{done.stdout}\n{done.stderr}"
    facts = adapter.parse_facts(outputs)
    assert facts.version.startswith("0.5.")
    assert facts.flags is not None
    assert len(facts.flags) > 400
    assert unknown_flags(adapter.fixed_args(), facts) == []
    assert [v.rule for v in unknown_flags(ServerArgs({"zzz": 1}), facts)] == ["flag-known"]


PARSE = """
import json, sys
from sglang.srt.server_args import prepare_server_args
found = []
for argv in json.load(sys.stdin):
    args = prepare_server_args(argv)
    names = args.__struct_fields__ if hasattr(args, "__struct_fields__") else vars(args)
    found.append({n: repr(getattr(args, n)) for n in names if not n.startswith("_")})
print("parsed:" + json.dumps(found))
"""

EXPORTED = [
    {"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3, "tp-size": 2,
     "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4, "trust-remote-code": True},
    {"disable-cuda-graph": True, "enable-tf32-matmul": False, "mem-fraction-static": 0.85},
    {"served-model-name": "off", "cuda-graph-bs-decode": [1, 2, 4], "dtype": "bfloat16",
     "cuda-graph-config": {"decode": {"backend": "full", "max_bs": 4}}},
    {"served-model-name": "null", "chat-template": "-strange", "log-level": "info",
     "json-model-override-args": '{"a": "b c"}', "allowed-media-domains": ["a", "b"]},
]  # fmt: skip


def test_the_exported_file_is_read_by_sglangs_own_parser(tmp_path: Path) -> None:
    adapter = engine()
    servers = [adapter.fixed_args().replace(flags) for flags in EXPORTED]
    rows = []
    for number, args in enumerate(servers):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in adapter.render_config(args).items():
            (folder / name).write_text(text)
        rows.append(list(adapter.deploy_command(args, str(folder)).argv[3:]))
    rows += [argv_of(args) for args in servers]
    command = LaunchCommand(
        (str(VENV / "bin" / "python"), "-c", PARSE), ENV, stdin=json.dumps(rows)
    )
    done = run_command(command, timeout_s=120)
    line = next((x for x in done.stdout.splitlines() if x.startswith("parsed:")), "")
    assert line, done.stderr[-2000:]
    found = json.loads(line.removeprefix("parsed:"))
    half = len(servers)
    for exported, measured in zip(found[:half], found[half:], strict=True):
        assert {**exported, "config": ""} == {**measured, "config": ""}


def test_a_server_started_from_its_exported_file_is_the_measured_one(tmp_path: Path) -> None:
    adapter = engine(
        args={
            "device": "cpu", "attention-backend": "triton", "disable-cuda-graph": True,
            "skip-server-warmup": True, "mem-fraction-static": 0.3, "max-total-tokens": 4096,
            "max-running-requests": 8, "speculative-algorithm": "NEXTN",
            "speculative-draft-load-format": "dummy", "speculative-num-steps": 2,
            "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 8,
        }
    )  # fmt: skip
    args = adapter.fixed_args().replace({"speculative-algorithm": "EAGLE3"})
    for name, text in adapter.render_config(args).items():
        (tmp_path / name).write_text(text)
    assert (
        adapter.parse_config(
            {name: (tmp_path / name).read_text() for name in ("server.yaml", "server.env")}
        )
        == args
    )
    port = free_port()
    deployed = adapter.deploy_command(args, str(tmp_path))
    command = LaunchCommand(
        (*deployed.argv, "--host", "127.0.0.1", "--port", str(port)), deployed.env
    )
    with ServerProcess.launch(command, port=port, log_path=tmp_path / "server.log") as server:
        ready = wait_ready(
            server, adapter.probe(args), timeout_s=120, hard_cap_s=240, classify=adapter.classify
        )
        assert ready.identity == str(VENV / "models" / "tiny")
        path = adapter.effective_path()
        effective = adapter.parse_effective(httpx.get(f"{server.base_url}{path}").text)
    assert effective["speculative-num-draft-tokens"] == 3
    assert effective["version"].startswith("0.5.")
    assert [drift.name for drift in adapter.drift(args, effective)] == ["disable-overlap-schedule"]


SCHEDULES: list[dict[int, Any]] = [{1: 5, 4: 3, 16: 1, 48: 0}, {1: 2}, {1: [1, 3, 5], 8: [0, 1]}]
ODD_FILES = ["[]", "{}", '{"x": {}}', '{"1": {}}', '{"1": {"candidate_steps": []}}',
             '{"1": {"candidate_steps": [-1]}}', "{", '{"1": 3}',
             '{"candidate_steps": [1], "1": {}}']  # fmt: skip
READ = """
import json, sys
from sglang.srt.speculative import adaptive_spec_params as theirs
found = []
for path in json.load(sys.stdin):
    try:
        union = theirs.resolve_candidate_steps_from_config(path)
        _, slots = theirs._load_adaptive_config(path)
        table = theirs.AdaptiveSpeculativeParams(initial_steps=union[0], cfg_path=path)
        steps = {batch: table.get_steps_for_batch(batch) for batch in (1, 3, 4, 20, 64)}
        found.append([union, {k: v["candidate_steps"] for k, v in slots.items()}, steps])
    except (ValueError, AttributeError, TypeError) as error:
        found.append(str(error) or type(error).__name__)
print("read:" + json.dumps(found))
"""


def test_adaptive_files_are_read_by_sglang_as_by_us(tmp_path: Path) -> None:
    texts = [*(render_adaptive(schedule) for schedule in SCHEDULES), *ODD_FILES]
    paths = [tmp_path / f"{number}.json" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    asked = json.dumps([str(path) for path in paths])
    command = LaunchCommand((str(VENV / "bin" / "python"), "-c", READ), ENV, stdin=asked)
    done = run_command(command, timeout_s=120)
    line = next((x for x in done.stdout.splitlines() if x.startswith("read:")), "")
    assert line, done.stderr[-2000:]
    found = json.loads(line.removeprefix("read:"))
    for text, theirs in zip(texts, found, strict=True):
        if isinstance(theirs, str):
            with pytest.raises(ValueError):
                parse_adaptive(text)
            continue
        ours = parse_adaptive(text)
        union, slots, steps = theirs
        assert union == sorted({each for several in ours.values() for each in several})
        assert {int(k): tuple(v) for k, v in slots.items()} == ours
        assert all(each in steps_at(ours, int(batch)) for batch, each in steps.items())
    assert sum(isinstance(theirs, str) for theirs in found) == len(ODD_FILES)


CPU = {
    "device": "cpu", "attention-backend": "triton", "disable-cuda-graph": True,
    "skip-server-warmup": True, "mem-fraction-static": 0.3, "max-total-tokens": 4096,
    "max-running-requests": 8, "speculative-draft-load-format": "dummy",
    "speculative-algorithm": "EAGLE3", "speculative-eagle-topk": 1,
}  # fmt: skip


def test_an_adaptive_table_is_resolved_launched_and_switches_its_steps(tmp_path: Path) -> None:
    """Two steps for one request, although the server starts with one."""
    three = {"speculative-num-steps": 2, "speculative-num-draft-tokens": 3}
    adapter = engine(args={**CPU, **three})
    table = adapter.scheduled(adapter.fixed_args(), {1: 2, 2: 1, 4: 0}, str(tmp_path))
    assert table is not None
    for name, text in table.files.items():
        (tmp_path / name).write_text(text)
    assert violations(table.args, adapter.parse_facts({})) == []
    impossible = table.args.replace({"speculative-num-steps": 4})
    found, refused = resolve(adapter, [table.args, impossible])
    assert found.canonical == table.args
    assert "not in the adaptive config candidate_steps" in refused.error
    port = free_port()
    command, log = adapter.command(table.args, port), tmp_path / "server.log"
    with ServerProcess.launch(command, port=port, log_path=log) as server:
        wait_ready(
            server, adapter.probe(table.args), timeout_s=150, hard_cap_s=280,
            classify=adapter.classify,
        )  # fmt: skip
        path = adapter.effective_path()
        effective = adapter.parse_effective(httpx.get(f"{server.base_url}{path}").text)
    assert effective["speculative-adaptive"] is True
    assert effective["speculative-adaptive-config"] == str(tmp_path / "adaptive.json")
    drifted = [drift.name for drift in adapter.drift(table.args, effective)]
    assert drifted == ["disable-overlap-schedule"]
    assert "Switch adaptive runtime state: steps 1 -> 2" in log.read_text()
