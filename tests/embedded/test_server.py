"""The real bundled server, driven as a trial drives it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tuner.args import ServerArgs
from tuner.engines.llamacpp.engine import LlamacppEngine
from tuner.errors import FailureKind, TrialFailure
from tuner.export.launch import FOLDER, render_launch
from tuner.measure.prompts import Workload
from tuner.measure.records import Acceptance, LoadPoint, Prompt, RequestRecord, Sampling
from tuner.server.oneshot import run_command
from tuner.server.ports import free_port

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(240)]

CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n"
PROMPTS = (
    Prompt("repeat", ({"role": "user", "content": f"Repeat this code:\n{CODE}"},), "editing"),
    Prompt("sea", ({"role": "user", "content": "What is the sea?"},), "chat"),
)
LOAD = LoadPoint(concurrency=1)
WORKLOAD = Workload((PROMPTS,), (), (), (LOAD,), Sampling(max_tokens=48), warm_up=0)
NGRAM = {"spec-type": "ngram-simple", "spec-ngram-simple-size-n": 3,
         "spec-ngram-simple-size-m": 6}  # fmt: skip


def speculative(engine: LlamacppEngine, **flags: Any) -> ServerArgs:
    return engine.fixed_args().replace({k.replace("_", "-"): v for k, v in flags.items()})


class Trial:
    """One launch, measured over one block."""

    def __init__(self, launch: Any, client: Any) -> None:
        self._launch, self._client = launch, client

    def __call__(
        self, engine: LlamacppEngine, args: ServerArgs
    ) -> tuple[Acceptance | None, list[RequestRecord], dict[str, Any]]:
        with self._launch(engine, args) as server:
            with self._client(server, engine, args, WORKLOAD) as client:
                effective = engine.parse_effective(client.get_text("/slots") or "")
                before = client.snapshot(engine.snapshot_paths())
                block = client.run_block(0, PROMPTS, LOAD)
                after = client.snapshot(engine.snapshot_paths())
            report = server.stop()
            assert report.how == "SIGTERM" or report.seconds < 5
        records = list(block.records)
        assert all(record.ok for record in records), [record.error for record in records]
        return engine.acceptance(before, after, records), records, effective


@pytest.fixture
def measure(launch: Any, client: Any) -> Trial:
    return Trial(launch, client)


# ---- what it says of itself -------------------------------------------------------------------


def test_facts_are_read_from_the_real_program(engine: LlamacppEngine) -> None:
    outputs = {}
    for name, command in engine.fact_commands().items():
        done = run_command(command, timeout_s=60)
        assert done.returncode == 0, done.stderr
        outputs[name] = done.stdout + done.stderr
    facts = engine.parse_facts(outputs)
    assert "xllamacpp" in facts.version
    assert engine.violations(engine.fixed_args().replace(dict(NGRAM)), facts) == []
    (violation,) = engine.violations(speculative(engine, draft_max=4), facts)
    assert "--spec-draft-n-max" in violation.hint


# ---- measuring --------------------------------------------------------------------------------


def test_speculation_is_counted_as_the_server_counts_it(
    measure: Trial, engine: LlamacppEngine
) -> None:
    args = engine.fixed_args().replace(dict(NGRAM))
    acceptance, records, effective = measure(engine, args)
    timings = [record.extra["timings"] for record in records]
    assert acceptance is not None
    assert acceptance.drafted == sum(t.get("draft_n", 0) for t in timings) > 0
    assert acceptance.accepted == sum(t.get("draft_n_accepted", 0) for t in timings)
    assert acceptance.length - 1 == pytest.approx(sum(acceptance.per_position))
    assert acceptance.steps is not None
    assert acceptance.length == 1 + acceptance.accepted / acceptance.steps
    assert effective["spec-type"] == "ngram-simple"
    assert engine.drift(args, effective) == []
    assert [record.cached_tokens for record in records] == [0, 0]
    assert all(r.output_tokens == r.extra["timings"]["predicted_n"] for r in records)


def test_the_baseline_drafts_nothing(measure: Trial, engine: LlamacppEngine) -> None:
    baseline = engine.without_speculation(engine.fixed_args().replace(dict(NGRAM)))
    acceptance, records, effective = measure(engine, baseline)
    assert acceptance is not None
    assert (acceptance.steps, acceptance.drafted, acceptance.length) == (0, 0, 1.0)
    assert all("draft_n" not in record.extra["timings"] for record in records)
    assert effective["spec-type"] == "none"


def test_a_draft_that_equals_the_target_is_always_accepted(
    measure: Trial, engine: LlamacppEngine, model: Path
) -> None:
    args = speculative(
        engine, spec_type="draft-simple", spec_draft_model=str(model), spec_draft_n_max=2
    )
    acceptance, _, effective = measure(engine, args)
    assert acceptance is not None
    assert acceptance.rate == pytest.approx(1.0, abs=0.1)
    assert acceptance.length == pytest.approx(3.0, abs=0.2)
    assert len(acceptance.per_position) == 2
    assert effective["spec-type"] == "draft-simple"


def test_synthetic_acceptance_is_what_was_asked_and_marked(
    measure: Trial, engine: LlamacppEngine, model: Path
) -> None:
    args = speculative(
        engine, spec_type="draft-simple", spec_draft_model=str(model), spec_draft_n_max=2,
        spec_synth_rates="0,0",
    )  # fmt: skip
    acceptance, _, _ = measure(engine, args)
    assert engine.is_synthetic(args)
    assert acceptance is not None
    assert (acceptance.accepted, acceptance.length) == (0, 1.0)
    assert acceptance.drafted


def test_a_server_that_cannot_draft_says_so(measure: Trial, engine: LlamacppEngine) -> None:
    args = speculative(engine, spec_type="draft-simple")  # no draft model: it starts all the same
    acceptance, _, effective = measure(engine, args)
    assert acceptance is not None
    assert acceptance.steps == 0
    (drift,) = engine.drift(args, effective)
    assert (drift.name, drift.effective) == ("spec-type", "none")


# ---- refusing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        ({"draft-max": 4}, FailureKind.REJECTED_FLAG, "use --spec-draft-n-max"),
        ({"no-such-flag": 4}, FailureKind.REJECTED_FLAG, "invalid argument: --no-such-flag"),
        ({"model": "/nowhere.gguf"}, FailureKind.LAUNCH_CRASH, "failed to load model"),
        ({**NGRAM, "spec-synth-rates": "1,0"}, FailureKind.LAUNCH_CRASH, "must contain 6 values"),
    ],
)
def test_refusals_are_decoded(
    launch: Any, engine: LlamacppEngine, flags: dict[str, Any], kind: FailureKind, words: str
) -> None:
    with (
        pytest.raises(TrialFailure) as caught,
        launch(engine, engine.fixed_args().replace(flags)),
    ):
        raise AssertionError("it must not become ready")
    assert caught.value.kind is kind
    assert words in caught.value.reason


def test_a_taken_port_is_decoded(launch: Any, engine: LlamacppEngine) -> None:
    with launch(engine, engine.fixed_args()) as server:
        command = engine.command(engine.fixed_args(), server.port)
        done = run_command(command, timeout_s=60)
        failure = engine.classify(done.returncode, done.stderr)
        assert failure.kind is FailureKind.PORT_IN_USE


# ---- stopping ---------------------------------------------------------------------------------


def test_sigterm_stops_it_in_the_middle_of_an_answer(launch: Any, engine: LlamacppEngine) -> None:
    with launch(engine, engine.fixed_args()) as server:
        body = {"prompt": "The sea", "max_tokens": 900, "stream": True, "ignore_eos": True}
        url = f"{server.base_url}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            next(answer.iter_lines())
            started = time.monotonic()
            server.stop()
        assert time.monotonic() - started < 10
        assert server.poll() == 0


# ---- deploying --------------------------------------------------------------------------------


def test_the_launch_script_serves_what_was_measured(
    engine: LlamacppEngine, tmp_path: Path, wait_for: Callable[..., httpx.Response]
) -> None:
    args = engine.fixed_args().replace(dict(NGRAM))
    for name, text in engine.render_config(args).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = engine.deploy_command(args, FOLDER)
    script = render_launch(command, args.env, port=8080, comment="a test")
    (tmp_path / "launch.sh").write_text(script, encoding="utf-8")
    port = free_port()
    environment = {**os.environ, "PORT": str(port), "LLAMA_ARG_SPEC_TYPE": "ngram-mod"}
    with subprocess.Popen(
        ["sh", str(tmp_path / "launch.sh")], env=environment, stderr=subprocess.DEVNULL
    ) as process:
        try:
            answer = wait_for(f"http://127.0.0.1:{port}/slots", process)
            assert engine.parse_effective(answer.text)["spec-type"] in {"some", "ngram-simple"}
            assert (
                engine.parse_config(
                    {n: (tmp_path / n).read_text() for n in ("server.yaml", "server.env")}
                )
                == args
            )
        finally:
            process.terminate()
        assert process.wait(10) == 0
