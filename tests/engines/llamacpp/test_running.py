"""A running server: acceptance, readiness, effective values, exits, files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.args import ServerArgs
from tuner.engines.llamacpp.acceptance import acceptance
from tuner.engines.llamacpp.canonical import canonical
from tuner.engines.llamacpp.engine import LlamacppEngine, find_program
from tuner.engines.llamacpp.failures import classify
from tuner.engines.llamacpp.files import parse_config, render_config
from tuner.engines.llamacpp.running import drift, has_text, parse_effective, served_model
from tuner.errors import FailureKind
from tuner.measure.records import Acceptance, Prompt, RequestRecord, Sampling, Snapshot

Make = Callable[..., LlamacppEngine]


def page(steps: int, drafted: int, accepted: int, *positions: int) -> Snapshot:
    prefix = "llamacpp:spec_decode_num_"
    lines = [
        f"{prefix}drafts_total {steps}",
        f"{prefix}draft_tokens_total {drafted}",
        f"{prefix}accepted_tokens_total {accepted}",
    ]
    name = f"{prefix}accepted_tokens_per_pos_total"
    lines += [f'{name}{{position="{i}"}} {n}' for i, n in enumerate(positions)]
    return Snapshot(0.0, {"/metrics": "\n".join(lines)})


NO_PAGE = Snapshot(0.0)


def record(category: str = "chat", **timings: int) -> RequestRecord:
    return RequestRecord(
        "p", category, 0, 0, 0.1, 0.9, 1.0, (0.1,), 5, 9, 0, "stop",
        extra={"timings": timings} if timings else {},
    )  # fmt: skip


def read(before: Snapshot, after: Snapshot, *records: RequestRecord) -> Acceptance | None:
    return acceptance(before, after, records)


# ---- acceptance -------------------------------------------------------------------------------


def test_hundred_steps_and_150_accepted_are_2_5_with_the_bonus_token() -> None:
    result = read(page(0, 0, 0), page(100, 300, 150, 90, 40, 20))
    assert result is not None
    assert result.length == 2.5
    assert result.rate == 0.5
    assert result.per_position == (0.9, 0.4, 0.2)
    assert (result.steps, result.drafted, result.accepted) == (100, 300, 150)
    assert result.basis == "/metrics"
    assert sum(result.per_position) == pytest.approx(result.length - 1)


def test_only_the_window_counts_and_new_positions_start_at_zero() -> None:
    result = read(page(10, 40, 20, 12, 8), page(14, 56, 30, 16, 11, 3, 0))
    assert result is not None
    assert result.length == 1 + 10 / 4
    assert result.per_position == (1.0, 0.75, 0.75)


def test_drafts_come_from_the_answers_and_steps_from_the_metrics() -> None:
    result = read(
        page(0, 0, 0),
        page(12, 86, 44),
        record(draft_n=80, draft_n_accepted=40, predicted_n=100),
        record(predicted_n=50),
    )
    assert result is not None
    assert (result.drafted, result.accepted, result.rate) == (80, 40, 0.5)
    assert result.length == pytest.approx(1 + 44 / 12)
    assert result.basis == "timings and /metrics"


def test_categories_are_weighted_to_the_whole() -> None:
    result = read(
        page(0, 0, 0),
        page(20, 100, 50),
        record("editing", draft_n=60, draft_n_accepted=48),
        record("chat", draft_n=40, draft_n_accepted=2),
        record("qa", predicted_n=9),
    )
    assert result is not None
    assert result.by_category == {
        "chat": pytest.approx(1 + 2 / 40 * 5),
        "editing": pytest.approx(1 + 48 / 60 * 5),
    }
    mean = sum(w * (v - 1) for w, v in ((0.4, result.by_category["chat"]),
                                        (0.6, result.by_category["editing"])))  # fmt: skip
    assert 1 + mean == pytest.approx(result.length)


def test_counters_at_zero_are_a_server_that_drafted_nothing() -> None:
    result = read(page(0, 0, 0), page(0, 0, 0), record(predicted_n=9))
    assert result is not None
    assert (result.length, result.rate, result.steps, result.accepted) == (1.0, None, 0, 0)


def test_absent_is_not_zero() -> None:
    assert read(NO_PAGE, NO_PAGE, record(predicted_n=9)) is None
    assert read(NO_PAGE, Snapshot(0, {"/metrics": "up 1"}), record(predicted_n=9)) is None
    assert read(page(5, 5, 5), page(2, 2, 2)) is None  # restarted in between


def test_without_metrics_every_decoding_step_is_a_step() -> None:
    result = read(NO_PAGE, NO_PAGE, record(draft_n=86, draft_n_accepted=44, predicted_n=100))
    assert result is not None
    assert result.length == pytest.approx(100 / 56)
    assert (result.steps, result.per_position) == (None, ())
    assert result.basis == "timings, every decoding step counted"


def test_failed_answers_and_odd_timings_do_not_count() -> None:
    failed = RequestRecord("p", "chat", 0, 0, None, None, 1, (), None, None, None, None, "boom",
                           extra={"timings": {"draft_n": 1000}})  # fmt: skip
    odd = record()
    result = read(page(0, 0, 0), page(2, 6, 3), failed, odd, record(draft_n=6, draft_n_accepted=3))
    assert result is not None
    assert result.drafted == 6


# ---- the server that is started ---------------------------------------------------------------


def test_which_server() -> None:
    assert find_program(None, "/usr/bin/llama-server") == ("/usr/bin/llama-server",)
    assert find_program("/opt/llama-server", "/usr/bin/llama-server") == ("/opt/llama-server",)
    assert find_program("/opt/bin/python3.12", None) == (
        "/opt/bin/python3.12", "-m", "tuner.embedded",
    )  # fmt: skip
    for words in (find_program(None, None), find_program("bundled", "/usr/bin/llama-server")):
        assert words[1:] == ("-m", "tuner.embedded")


def test_a_command(make: Make) -> None:
    engine = make(on_path="/bin/llama-server", args={"c": 64}, env={"A": "b", "C": None})
    command = engine.command(engine.fixed_args(), 8123)
    assert command.argv == (
        "/bin/llama-server", "--model", "/m.gguf", "--ctx-size", "64", "--metrics",
        "--host", "127.0.0.1", "--port", "8123",
    )  # fmt: skip
    assert command.env["A"] == "b"
    assert command.env["C"] is None


def test_nothing_inherited_makes_a_server_draft(make: Make) -> None:
    command = make().command(make().fixed_args(), 1)
    assert command.env["LLAMA_ARG_SPEC_TYPE"] is None
    assert command.env["LLAMA_ARG_SPEC_DRAFT_MODEL"] is None
    assert command.env["GGML_NO_BACKTRACE"] == "1"


def test_marks(make: Make) -> None:
    engine = make(draft_model="d", args={"cache-type-v": "q8_0"})
    synthetic = ServerArgs({"spec-type": "draft-simple", "spec-synth-len": 2.0})
    assert engine.is_synthetic(synthetic)
    assert not engine.is_synthetic(engine.fixed_args())
    assert not engine.is_lossy(engine.fixed_args())
    assert engine.is_lossy(engine.fixed_args().replace({"cache-type-k": "q4_0"}))
    assert engine.draft_source(ServerArgs({"spec-type": "draft-mtp,ngram-mod"})) == "model"
    assert engine.draft_source(ServerArgs({"spec-type": "ngram-mod"})) == "lookup"
    assert engine.draft_source(ServerArgs({"spec-default": True})) == "lookup"


def test_the_smaller_server_is_simpler(make: Make) -> None:
    def complexity(**flags: Any) -> float:
        named = {k.replace("_", "-"): v for k, v in flags.items()}
        return make().complexity(canonical(ServerArgs(named)))

    off, short = complexity(), complexity(spec_type="ngram-simple", spec_ngram_simple_size_m=4)
    long = complexity(spec_type="ngram-simple", spec_ngram_simple_size_m=32)
    draft = complexity(spec_type="draft-simple", spec_draft_model="d", spec_draft_n_max=4)
    assert off < short < long
    assert short < draft


# ---- what it says -----------------------------------------------------------------------------


def test_the_probe_accepts_every_name_of_the_model(make: Make) -> None:
    engine = make(model="/models/Small-Q4.gguf", args={"alias": "small,tiny"})
    probe = engine.probe(engine.fixed_args())
    assert probe.expected_identity == (
        "small", "tiny", "/models/Small-Q4.gguf", "Small-Q4.gguf", "Small-Q4",
    )  # fmt: skip
    assert served_model('{"data": [{"id": "small"}]}') == "small"
    assert served_model('{"data": []}') is None


def test_generated_tokens_count_even_without_text() -> None:
    assert has_text({"choices": [{"message": {"content": "Hi"}}]})
    assert has_text({"choices": [{"message": {"reasoning_content": "Hm"}}]})
    assert has_text({"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": 1}})
    assert not has_text({"choices": [{"message": {"content": ""}}], "usage": None})


def test_the_wire_keeps_timings_and_turns_the_cache_off(make: Make) -> None:
    wire = make().wire(make().fixed_args())
    body = wire.body(Prompt("p", ({"role": "user", "content": "Hi"},)), Sampling(max_tokens=3))
    assert body["cache_prompt"] is False
    assert body["stream_options"] == {"include_usage": True}
    assert wire.disables_cache
    event = {"choices": [], "usage": {"completion_tokens": 3}, "timings": {"draft_n": 2}}
    assert wire.parse(event).extra == {"timings": {"draft_n": 2}}


def slots(*each: dict[str, Any]) -> str:
    return json.dumps(list(each))


def test_effective_values() -> None:
    used = {"n_ctx": 1024, "speculative": True, "params": {"speculative.types": "ngram-simple"}}
    assert parse_effective(slots({"n_ctx": 1024, "speculative": True}, used)) == {
        "parallel": 2, "slot-ctx-size": 1024, "spec-type": "ngram-simple",
    }  # fmt: skip
    assert parse_effective(slots({"speculative": True}))["spec-type"] == "some"
    assert parse_effective('{"error": {"code": 501}}') == {}


def test_a_server_that_silently_does_not_draft_is_drift() -> None:
    asked = ServerArgs({"spec-type": "draft-eagle3"})
    wanted = {"speculative.types": "draft-eagle3"}
    effective = parse_effective(slots({"n_ctx": 64, "speculative": False, "params": wanted}))
    (found,) = drift(asked, effective)
    assert (found.name, found.requested, found.effective) == ("spec-type", "draft-eagle3", "none")
    assert "without speculation" in found.message
    assert not found.is_confounder


def test_drift_of_sizes() -> None:
    asked = ServerArgs({"ctx-size": 4096, "parallel": 4})
    assert drift(asked, {"parallel": 4, "slot-ctx-size": 1024}) == []
    assert [d.name for d in drift(asked, {"parallel": 2, "slot-ctx-size": 2048})] == ["parallel"]
    (found,) = drift(asked, {"parallel": 4, "slot-ctx-size": 4096})
    assert (found.name, found.effective, found.is_confounder) == ("ctx-size", "16384", True)
    assert drift(ServerArgs(), {"parallel": 4, "slot-ctx-size": 9}) == []


# ---- exits ------------------------------------------------------------------------------------

ASSERT = "/src/ggml.c:7: GGML_ASSERT(n <= max) failed"


@pytest.mark.parametrize(
    ("code", "line", "kind", "is_draft_fault"),
    [
        (1, 'error while handling argument "--draft-max": the argument has been removed. use '
            "--spec-draft-n-max or --spec-ngram-mod-n-max", FailureKind.REJECTED_FLAG, False),
        (1, "error: invalid argument: --foo", FailureKind.REJECTED_FLAG, False),
        (1, "0.00.004.388 E srv         start: couldn't bind HTTP server socket, hostname: "
            "127.0.0.1, port: 9912", FailureKind.PORT_IN_USE, False),
        (1, "0.1 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9 MiB on device 0: "
            "cudaMalloc failed: out of memory", FailureKind.OUT_OF_MEMORY, False),
        (1, "terminate called after throwing an instance of 'std::bad_alloc'",
            FailureKind.OUT_OF_MEMORY, False),
        (1, "0.00.7 E srv    load_model: failed to initialize speculative decoding context: the "
            "target and draft vocabs are not compatible", FailureKind.LAUNCH_CRASH, True),
        (1, "0.1 E spec  are_compatible: draft model vocab must closely match target model to use "
            "speculation but target vocab size 49152 does not match draft vocab size 32000 - "
            "difference 17152, max allowed 128", FailureKind.LAUNCH_CRASH, True),
        (1, "draft model vocab type must match target model to use speculation",
            FailureKind.LAUNCH_CRASH, True),
        (1, "0.00.3 E srv    load_model: failed to load draft model, '/nope.gguf'",
            FailureKind.LAUNCH_CRASH, True),
        (1, "0.00.4 E srv    load_model: failed to create MTP context",
            FailureKind.LAUNCH_CRASH, True),
        (1, "0.0 E srv    load_model: failed to initialize speculative decoding context: "
            "synthetic acceptance rates must contain 8 values, got 2",
            FailureKind.LAUNCH_CRASH, False),
        (1, "0.0 E srv    load_model: failed to load model, '/nope.gguf'",
            FailureKind.LAUNCH_CRASH, False),
        (-6, ASSERT, FailureKind.LAUNCH_CRASH, False),
        (-9, "0.1 I srv  loading", FailureKind.OUT_OF_MEMORY, False),
        (None, "0.1 I srv  loading", FailureKind.NOT_READY, False),
    ],
)  # fmt: skip
def test_exits(code: int | None, line: str, kind: FailureKind, is_draft_fault: bool) -> None:
    log = f"0.00.000.311 I srv          init: initializing ...\n{line}\n0.2 I srv  cleaning up\n"
    failure = classify(code, log)
    assert (failure.kind, failure.is_draft_fault) == (kind, is_draft_fault)


def test_reasons_are_the_engine_s_words() -> None:
    assert classify(-6, ASSERT).reason == f"{ASSERT} (SIGABRT)"
    assert classify(-11, "").reason == "killed by SIGSEGV"
    assert classify(3, "0.1 E srv  main: something odd").reason == (
        "exited with status 3: something odd"
    )
    bind = classify(1, "0.1 E srv         start: couldn't bind HTTP server socket, port: 1")
    assert bind.reason == "couldn't bind HTTP server socket, port: 1"
    assert "needs xllamacpp" in classify(1, "error: the bundled server needs xllamacpp (x)").reason


def test_a_warning_does_not_explain_an_abort() -> None:
    log = (
        "0.1 W operator(): failed to measure the memory of the extra model\n"
        "0.2 I srv  load_model: loading draft model 'd.gguf'\n"
    )
    assert classify(-6, log).reason == "killed by SIGABRT"


# ---- files ------------------------------------------------------------------------------------


def test_the_file_is_readable() -> None:
    files = render_config(ServerArgs({"model": "/a b", "flash-attn": "on"}, {"NCCL_ALGO": None}))
    assert files["server.yaml"].endswith("flags:\n  flash-attn: 'on'\n  model: /a b\n")
    assert files["server.env"] == "# unset NCCL_ALGO\n"


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(st.just(True), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
        max_size=5,
    )
)
def test_files_round_trip(flags: dict[str, Any]) -> None:
    args = ServerArgs(flags, {"A": 'x"$y\n', "B": None})
    assert parse_config(render_config(args)) == args


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("flags: [1]", "must hold one mapping named flags"),
        ("flags: {}\nmore: 1", "must hold one mapping named flags"),
        ("flags: {1: 2}", "names must be text, got 1"),
        ("flags: {a: null}", "flags.a: must be a value, got None"),
        ("flags: {a: !!python/object:os.system x}", "must be YAML"),
    ],
)
def test_other_files_are_refused(text: str, place: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_config({"server.yaml": text, "server.env": ""})
    assert place in str(caught.value)
