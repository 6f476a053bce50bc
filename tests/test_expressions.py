"""The constraint language: what it computes, what it refuses and where, outcome constraints."""

from __future__ import annotations

import math

import pytest

from tuner.args import UNSET
from tuner.expressions import (
    ExpressionError,
    MissingName,
    check_names,
    parse,
    parse_outcome,
)
from tuner.expressions import operators as ops

ENV = {"steps": 3, "topk": 4, "p": 0.5, "algo": "Ring", "on": True, "left_out": UNSET}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("steps + topk * 2", 11),
        ("(steps + topk) * 2", 14),
        ("7 // steps - 7 % steps", 1),
        ("topk / 8", 0.5),
        ("-steps ** 2", -9),
        ("+steps", 3),
        ("2 <= steps < topk", True),
        ("2 <= steps < 3", False),
        ("steps == 3 and not topk == 3", True),
        ("steps == 1 or topk == 4", True),
        ("steps in [1, 2, 3]", True),
        ("steps not in (1, 2, 3)", False),
        ("algo == 'Ring'", True),
        ('algo in ["Tree", "Ring"]', True),
        ("algo != 'Ring'", False),
        ("steps if on else topk", 3),
        ("steps if not on else topk", 4),
        ("min(steps, topk, 2) + max(steps, topk) + abs(-1)", 7),
        ("on == true", True),
        ("left_out == unset", True),
        ("left_out != 'unset'", False),
        ("  steps\n  + 1", 4),
    ],
)
def test_value(text: str, value: object) -> None:
    assert parse(text).evaluate(ENV) == value


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", 0, "must be an expression, got nothing"),
        ("   ", 0, "must be an expression, got nothing"),
        ("steps = 3", 6, "must be an expression, got 'steps = 3'"),
        ("  steps.real > 1", 2, "must not contain a dot"),
        ("steps > x[0]", 8, "must not contain [ ] after a name"),
        ("open('f')", 0, "must not call open"),
        ("steps > min(1, key=2)", 8, "must not call min"),
        ("abs(1, 2) > 0", 0, "must give abs one value, min and max two or more"),
        ("min(1) > 0", 0, "must give abs one value, min and max two or more"),
        ("'ä' == algo and steps & 1", 16, "must not contain &"),
        ("steps is 3", 0, "must not contain is"),
        ("~steps > 1", 0, "must not contain ~"),
        ("lambda: 1", 0, "must not contain lambda"),
        ("[1, 2]", 0, "must not contain a list outside in"),
        ("{1: 2}", 0, "must not contain { }"),
        ("f'{steps}' == 'a'", 0, "must not contain an f-string"),
        ("(n := 3) > 1", 1, "must not contain :="),
        ("[x for x in [1]]", 0, "must not contain ListComp"),
        ("steps == None", 9, "must not contain None"),
        ("steps == 1j", 9, "must not contain 1j"),
        ("steps < 10 ** 3 and steps < 1e31", 28, "must have numbers of at most 1e+30"),
        ("steps in topk", 9, "must have a list after in"),
        ("x" * 1001, 0, "must have at most 1000 characters, got 1001"),
    ],
)
def test_refused_with_its_offset(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.message == message
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "text", ["(" * 400 + "1" + ")" * 400, "1" + "+1" * 400, "\x00", "1\\", "1 if " * 99]
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a && b", "Write and instead of &&."),
        ("a || b", "Write or instead of ||."),
        ("a =< b", "Write <= instead of =<."),
        ("a => b", "Write >= instead of =>."),
        ("a = b", "Write == to compare."),
        ("!a", "Write not instead of !."),
    ],
)
def test_other_languages_get_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps / 0 > 1", "must not divide by zero"),
        ("steps % 0 > 1", "must not divide by zero"),
        ("steps ** 65 > 1", "must have exponents of at most 64, got 65"),
        ("1000 ** 60 > 1", "must stay a real number below 1e+30"),
        ("(0 - 8) ** 0.5 > 1", "must stay a real number below 1e+30"),
        ("10.0 ** 30 * 10.0 ** 30 > 1", "must stay a real number below 1e+30"),
        ("algo + 1 > 1", "must compute with numbers, got 'Ring'"),
        ("-algo > 1", "must compute with numbers, got 'Ring'"),
        ("algo > 1", "must not order text and numbers, got 'Ring' and 1"),
        ("max(algo, 1) > 1", "must compute with numbers, got 'Ring'"),
        ("algo and steps", "must compute with numbers, got 'Ring'"),
    ],
)
def test_what_cannot_be_computed(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text).evaluate(ENV)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "satisfied", "holds"),
    [
        ("steps > 9", False, False),
        ("steps > 1", True, True),
        ("gone > 1", True, False),
        ("steps > 9 and gone > 1", False, False),
        ("steps > 1 or gone > 1", True, True),
        ("gone > 1 or steps > 1", True, False),
        ("(gone if steps > 9 else 1) == 1", True, True),
        ("left_out > 1", True, False),
        ("left_out * 2 < 1", True, False),
        ("left_out == 'x'", False, False),
        ("not left_out", True, False),
    ],
)
def test_a_missing_name_satisfies_a_constraint_and_fails_a_condition(
    text: str, satisfied: bool, holds: bool
) -> None:
    assert parse(text).is_satisfied(ENV) is satisfied
    assert parse(text).holds(ENV) is holds


def test_a_missing_name_is_raised_to_whoever_asks_for_the_value() -> None:
    with pytest.raises(MissingName, match="gone"):
        parse("gone + 1").evaluate(ENV)


def test_names_with_offsets_and_near_matches() -> None:
    expression = parse("tokp > 1 and steps > tokp and zzz == unset")
    assert expression.names == {"tokp", "steps", "zzz"}
    errors = check_names(expression, ["steps", "topk"])
    found = {(error.offset, error.message, error.hint) for error in errors}
    assert found == {
        (0, "must name known parameters, got tokp", "Did you mean topk?"),
        (
            30,
            "must name known parameters, got zzz",
            "Known names: steps, topk. Write text in quotes.",
        ),
    }
    assert check_names(parse("steps > 1"), ["steps"]) == []


def test_unset_is_the_same_word_everywhere() -> None:
    assert ops.UNSET == UNSET


# ---- outcome constraints --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "baseline", "violation"),
    [
        ("ttft_p95_ms <= 1.10 * baseline", 110.0, 100.0, 0.0),
        ("ttft_p95_ms <= 1.10 * baseline", 121.0, 100.0, 0.1),
        ("ttft_p95_ms <= 1.10 * baseline", 55.0, 100.0, -0.5),
        ("output_tokens_per_s >= baseline", 90.0, 100.0, 0.1),
        ("output_tokens_per_s >= baseline - 20", 90.0, 100.0, -0.125),
        ("error_rate == 0", 0.0, None, 0.0),
        ("error_rate == 0", 0.25, None, 0.25),
        ("error_rate <= 0", 0.25, None, 0.25),
        ("tpot_ms < 50", 50.0, None, 1e-9),
        ("tpot_ms < 50", 49.0, None, -0.02),
        ("tpot_ms > 50", 49.0, None, 0.02),
        ("e2e_ms <= min(baseline, 1000)", 1500.0, 2000.0, 0.5),
        ("error_rate == 0", math.nan, None, 1.0),
    ],
)
def test_violation(text: str, value: float, baseline: float | None, violation: float) -> None:
    assert parse_outcome(text).violation(value, baseline) == pytest.approx(violation, abs=1e-12)


def test_an_outcome_says_what_it_compares() -> None:
    outcome = parse_outcome("ttft_p95_ms <= 1.10 * baseline")
    assert (outcome.metric, outcome.op) == ("ttft_p95_ms", "<=")
    assert outcome.limit(200.0) == pytest.approx(220.0)


@pytest.mark.parametrize("baseline", [None, math.nan])
def test_an_outcome_without_its_baseline_has_no_violation(baseline: float | None) -> None:
    with pytest.raises(MissingName):
        parse_outcome("ttft_ms <= baseline").violation(1.0, baseline)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("error_rate", 0, "must compare one metric with one bound"),
        ("0 <= error_rate <= 1", 0, "must compare one metric with one bound"),
        ("1.1 * baseline >= ttft_ms", 0, "must start with a metric and <=, <, >=, > or =="),
        ("error_rate != 0", 0, "must start with a metric and <=, <, >=, > or =="),
        (
            " ttft_ms <= tpot_ms * 2",
            12,
            "must have only numbers and baseline in the bound, got tpot_ms",
        ),
    ],
)
def test_an_outcome_is_one_metric_and_one_bound(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_outcome(text)
    assert (caught.value.message, caught.value.offset) == (message, offset)
