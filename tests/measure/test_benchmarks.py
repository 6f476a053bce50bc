"""The two benchmark commands run, and their numbers are of the right kind."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import client_overhead, coverage, load_clients
from benchmarks.processor_time import Sampler, own_s, tree_s

PLAN = argparse.Namespace(studies=40, rounds=4, finalists=3)


def test_a_quiet_machine_shows_gains_and_no_false_ones() -> None:
    quiet = coverage.MACHINES[0]
    draw = np.random.default_rng(2)
    assert coverage.coverage(quiet, draw, PLAN) > 0.85
    assert coverage.used(quiet, draw, 1.0, PLAN) < 0.15
    assert coverage.used(quiet, draw, 1.10, PLAN) == 1.0
    assert coverage.told_apart(quiet, draw, PLAN) < 0.2


def test_drift_is_found_where_it_is() -> None:
    draw = np.random.default_rng(3)
    drifting = next(m for m in coverage.MACHINES if m.drift)
    assert coverage.drift_found(drifting, draw, PLAN) > 0.6
    assert coverage.drift_found(coverage.MACHINES[1], draw, PLAN) < 0.15


def test_equal_servers_are_hardly_ever_pruned() -> None:
    draw = np.random.default_rng(4)
    assert coverage.pruned(coverage.MACHINES[1], draw, PLAN) < 0.15


def test_the_table_is_labelled_as_simulated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["coverage", "--studies", "2"])
    coverage.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("SIMULATED: 2 studies per cell")
    assert len(lines) == 2 + len(coverage.MACHINES)


PLAN_OF_LOAD = argparse.Namespace(
    concurrency=4, turns=2, chunks=20, tokens=60, first_ms=30.0, gap_ms=10.0
)


def test_the_client_is_compared_with_the_servers_own_record() -> None:
    with client_overhead.timed_server(PLAN_OF_LOAD) as url:
        result = client_overhead.compare(load_clients.ours(), url, PLAN_OF_LOAD)
    assert result.client == "tuner"
    assert result.run.truth["requests"] == 8
    assert result.run.truth["tokens"] == 8 * 60
    assert abs(result.error("tpot_ms") or 1) < 0.05
    assert abs(result.error("inter_chunk_ms") or 1) < 0.05
    assert abs(result.error("e2e_ms") or 1) < 0.1


def fake_client(code: str, **changes: Any) -> load_clients.Client:
    def command(ask: load_clients.Ask) -> list[str]:
        return [sys.executable, "-c", code, ask.url, str(ask.requests), str(ask.folder)]

    figures = {"ttft_ms": ("a.0.mean", 1.0), "e2e_ms": ("a.0.seconds", 1000.0), **changes}
    return load_clients.Client("fake", command, "out.json", figures)


def test_figures_are_found_and_brought_to_our_units(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text('{"a": 1}\n{"a": [{"mean": 12.5, "seconds": 1.5}]}')
    client = fake_client("")
    assert client.read(tmp_path) == {"ttft_ms": 12.5, "e2e_ms": 1500.0}
    (tmp_path / "out.json").write_text('{\n "a": [\n {"mean": 2, "seconds": 3}\n ]\n}\n')
    assert client.read(tmp_path) == {"ttft_ms": 2.0, "e2e_ms": 3000.0}
    with pytest.raises(LookupError):
        fake_client("", tpot_ms=("a.0.other", 1.0)).read(tmp_path)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('first'); raise SystemExit('no tokenizer')", "no tokenizer"),
        ("raise SystemExit(3)", "exit code 3"),
        ("pass", "it sent 0 requests instead of 4"),
    ],
)
def test_a_client_that_fails_says_why(code: str, reason: str) -> None:
    with (
        client_overhead.timed_server(PLAN_OF_LOAD) as url,
        pytest.raises(RuntimeError, match=reason),
    ):
        client_overhead.run(fake_client(code), url, 4, PLAN_OF_LOAD)


def test_every_peer_gets_the_same_question(tmp_path: Path) -> None:
    ask = load_clients.Ask("http://127.0.0.1:1", 640, 64, 384, tmp_path)
    for name in load_clients.PEERS:
        command = load_clients.peer(name, "program", "folder").command(ask)
        text = " ".join(command)
        assert command[0] == "program"
        assert "http://127.0.0.1:1" in text
        for part in ("64", "640", "folder", str(tmp_path)):
            assert part in text
        asked = text + (tmp_path / "prompts.jsonl").read_text() if name == "guidellm" else text
        assert "384" in asked


def test_processor_time_counts_children_and_only_the_stretch_asked_for() -> None:
    burn = "import time; t=time.process_time()\nwhile time.process_time()-t < 0.4: pass"
    run = f"subprocess.run([sys.executable, '-c', {burn!r}])"
    code = f"import subprocess, sys, time; time.sleep(0.6); {run}; time.sleep(0.6)"
    process = subprocess.Popen([sys.executable, "-c", code])
    sampler = Sampler(process.pid, min(os.sched_getaffinity(0)))
    start = time.perf_counter()
    process.wait()
    end = time.perf_counter()
    sampler.stop()
    assert sampler.between_s(start, end) > 0.2
    assert sampler.between_s(end, end + 1) == 0.0
    assert own_s(process.pid) == 0.0
    assert tree_s(process.pid) == {}


def result(client: str, cpu_s: float, **figures: float) -> client_overhead.Result:
    truth = {"output_tokens_per_s": 100.0, "ttft_ms": 100.0, "chunks_per_s": 5000.0}
    return client_overhead.Result(client, cpu_s, client_overhead.Run(0.0, figures, truth))


def test_the_verdicts_name_the_best_peer_and_who_is_wrong() -> None:
    results = [
        result("tuner", 0.002, output_tokens_per_s=100.0, ttft_ms=100.5),
        result("slow", 0.02, output_tokens_per_s=99.9, ttft_ms=125.0),
        result("fast", 0.008, output_tokens_per_s=99.5, ttft_ms=100.0),
        result("mute", 0.03),
    ]
    assert client_overhead.verdicts(results) == [
        "The tuner needs 25% of the processor time of the best peer, fast.",
        "slow against the tuner: tok/s agrees, -0.10%; ttft differs, +24.38% "
        "(it is +25.0% off the server's record).",
        "fast against the tuner: tok/s agrees, -0.50%; ttft agrees, -0.50%.",
        "mute against the tuner: it reports neither.",
    ]
    assert client_overhead.verdicts(results[:1]) == ["No peer was given: nothing to compare with."]
    assert client_overhead.line(results[2]).split() == [
        "fast", "0.0080", "-0.50%", "+0.00%", "-", "-", "-", "5000",
    ]  # fmt: skip


def test_other_clients_need_a_tokenizer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["client_overhead", "--vllm", "vllm"])
    monkeypatch.delenv("TUNER_BENCH_TOKENIZER", raising=False)
    with pytest.raises(SystemExit):
        client_overhead.parse()
    assert "--tokenizer must be a tokenizer's folder" in capsys.readouterr().err
    monkeypatch.setenv("TUNER_BENCH_TOKENIZER", "folder")
    names = [client.name for client in client_overhead.parse().clients]
    assert names[:2] == ["tuner", "vllm bench serve"]
