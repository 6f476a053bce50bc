"""A what-if beside its run: counters are exact, the clock is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tuner.insight.whatif import Counted, compare, count_block
from tuner.measure.records import Acceptance, Block, LoadPoint, RequestRecord

TOKENS, REQUESTS, PREFILL, STEP = 96, 2, 0.3, 0.02


def block(
    length: float, *, step: float = STEP, slow: float = 1.0, is_base: bool = False
) -> Counted:
    """Two answers one after the other, by a host whose clock is `slow` times too slow."""
    decoded = TOKENS - REQUESTS
    steps = decoded if is_base else decoded / length
    wall = (PREFILL + steps * step) * slow
    accepted = 0.0 if is_base else decoded - steps
    return Counted(
        TOKENS, REQUESTS, accepted, 0.0 if is_base else steps, PREFILL * slow, wall, wall
    )


def launches(
    length: float, noise: Sequence[float], **changes: float | bool
) -> list[list[Counted]]:
    return [[block(length, slow=slow, **changes) for _ in range(3)] for slow in noise]  # type: ignore[arg-type]


QUIET = (1.0, 1.0, 1.0)


def servers(drawn: float, noise: Sequence[float] = QUIET) -> dict[str, list[list[Counted]]]:
    return {
        "baseline": launches(1.0, QUIET[: len(noise)], step=0.015, is_base=True),
        "measured": launches(1.6, QUIET[: len(noise)]),
        "lever": launches(drawn, noise),
    }


def seconds(length: float) -> float:
    return PREFILL + (TOKENS - REQUESTS) / length * STEP


def test_steps_are_tokens_that_were_not_accepted() -> None:
    assert block(2.0).steps == 47
    assert block(1.0, is_base=True).steps == 94


def test_predicted_is_what_runs_where_only_acceptance_differs() -> None:
    found = compare(servers(2.4), 2.4)
    assert found.predicted == pytest.approx(seconds(1.6) / seconds(2.4))
    assert found.ran.ratio == pytest.approx(found.predicted)
    assert found.raw == pytest.approx(found.predicted)
    assert (found.measured, found.drawn) == (pytest.approx(1.6), pytest.approx(2.4))
    assert found.off == pytest.approx(0.0, abs=1e-9)
    assert found.more_rounds == 0


def test_the_baseline_is_the_reference_of_the_second_ratio() -> None:
    found = compare(servers(2.4), 2.4)
    plain = PREFILL + (TOKENS - REQUESTS) * 0.015
    assert found.versus.ratio == pytest.approx(plain / seconds(2.4))


@pytest.mark.parametrize("drawn", [2.2, 2.4, 2.6])
def test_the_luck_of_the_lot_is_no_disagreement(drawn: float) -> None:
    found = compare(servers(drawn), 2.4)
    assert found.raw == pytest.approx(seconds(1.6) / seconds(drawn))
    assert found.ran.ratio == pytest.approx(found.predicted)
    assert found.predicted == pytest.approx(seconds(1.6) / seconds(2.4))


def test_a_step_that_costs_more_than_thought_is_seen() -> None:
    made = servers(2.4)
    made["lever"] = launches(2.4, QUIET, step=STEP * 1.2)
    found = compare(made, 2.4)
    assert found.ran.ratio == pytest.approx(seconds(1.6) / (PREFILL + 94 / 2.4 * STEP * 1.2))
    assert found.off > 0.08
    assert "the model does not fit here" in " ".join(found.lines())


def test_a_noisy_clock_asks_for_rounds() -> None:
    found = compare(servers(2.4, (0.9, 1.2, 1.0)), 2.4, seconds=180)
    assert found.ran.low < found.predicted < found.ran.high
    assert found.more_rounds > 3
    total = 3 + found.more_rounds
    text = found.lines()[2]
    assert f"--rounds {total} should do (about {found.more_rounds} min more)" in text


def test_a_hopelessly_noisy_clock_is_told_to_wait() -> None:
    found = compare(servers(2.4, (0.5, 2.0, 1.0)), 2.4, seconds=180)
    assert found.more_rounds == 61
    assert "not even 64 rounds would do: run it when the machine is idle" in found.lines()[2]


def test_two_quiet_rounds_say_it_in_sentences() -> None:
    lines = compare(servers(2.4, (1.0, 1.001)), 2.4).lines()
    assert lines[0].endswith("(2 rounds):")
    assert lines[1] == "acceptance length 1.60 measured, 2.40 asked, 2.40 drawn (counted)"
    assert lines[2].startswith("predicted 1.36x, ran 1.36x [1.3")
    assert lines[2].endswith("% apart")


def test_the_document_holds_both_ratios() -> None:
    found = compare(servers(2.2), 2.4).to_json()
    assert found["ratio"] == pytest.approx(found["predicted"])
    assert found["raw_ratio"] < found["ratio"]
    assert found["acceptance_length"] == {
        "measured": pytest.approx(1.6),
        "asked": 2.4,
        "drawn": pytest.approx(2.2),
    }
    assert (found["rounds"], found["more_rounds"]) == (3, 0)


def test_without_counters_there_is_no_prediction() -> None:
    blind = [[replace(one, accepted=math.nan) for one in row] for row in servers(2.4)["lever"]]
    assert not compare({**servers(2.4), "lever": blind}, 2.4).predicted > 0


# ---- from what the client saw ----------------------------------------------------------------
def record(name: str, sent: float, *, error: str = "") -> RequestRecord:
    ends = (sent + 0.1, sent + 0.9, sent + 1.0)
    return RequestRecord(
        name, "chat", sent, sent, *ends, (), 12, 48, None, None if error else "length", error
    )


def test_a_block_is_counted_without_its_errors() -> None:
    records = (record("a", 5.0), record("b", 6.0), record("c", 7.0, error="500"))
    made = Block(0, LoadPoint(concurrency=1), 5.0, 8.0, records)
    acceptance = Acceptance(1.5, 0.5, (), 60, 60, 30, "timings")
    found = count_block(made, acceptance, drafts=True)
    assert (found.tokens, found.requests, found.accepted, found.drafts) == (96, 2, 30, 60)
    assert found.steps == 64
    assert found.waited_s == pytest.approx(0.2)
    assert (found.busy_s, found.wall_s) == (pytest.approx(2.0), pytest.approx(3.0))
    assert found.speed == pytest.approx(32.0)


def test_a_draft_that_reports_nothing_has_unknown_steps() -> None:
    made = Block(0, LoadPoint(concurrency=1), 5.0, 6.0, (record("a", 5.0),))
    assert math.isnan(count_block(made, None, drafts=True).steps)
    assert count_block(made, None, drafts=False).steps == 47
