"""The language computes what Python computes, and nothing else gets through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.expressions import ExpressionError, MissingName, parse, parse_outcome

ENV = {"a": 2, "b": -3, "c": 0.5, "d": 7}
NUMBERS = st.one_of(st.sampled_from(sorted(ENV)), st.integers(0, 99).map(str))


def wrap(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary: Callable[[tuple[str, str, str]], str] = lambda p: f"({p[0]} {p[1]} {p[2]})"  # noqa: E731
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    orders = st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "and", "or"])
    return st.one_of(
        st.tuples(children, operators, children).map(binary),
        st.tuples(children, orders, children).map(binary),
        children.map(lambda text: f"(-{text})"),
        children.map(lambda text: f"(not {text})"),
        st.tuples(children, children, children).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(children, children).map(lambda p: f"min({p[0]}, {p[1]})"),
        st.tuples(children, children).map(lambda p: f"({p[0]} in [{p[1]}, 1])"),
    )


@given(st.recursive(NUMBERS, wrap, max_leaves=12))
def test_it_computes_what_python_computes(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}}, {**ENV, "min": min})  # the reference
    except ZeroDivisionError:
        expected = None
    if expected is None:
        with pytest.raises(ExpressionError, match="zero"):
            parse(text).evaluate(ENV)
        return
    found = parse(text).evaluate(ENV)
    logical = " and " in text or " or " in text
    assert bool(found) == bool(expected) if logical else found == expected


@settings(max_examples=300)
@given(st.text(max_size=60) | st.text("ab1 ()[]{}.,:=<>!+-*/%'\"_\\#\n", max_size=60))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    for read in (parse, parse_outcome):
        offset = 0
        try:
            read(text)
        except ExpressionError as error:
            offset = error.offset
        assert 0 <= offset <= len(text)


@given(st.recursive(NUMBERS, wrap, max_leaves=8), st.sets(st.sampled_from(sorted(ENV))))
def test_a_missing_name_never_breaks_a_constraint_by_itself(text: str, gone: set[str]) -> None:
    env = {name: value for name, value in ENV.items() if name not in gone}
    expression = parse(text)
    try:
        expression.evaluate(env)
    except MissingName:
        assert expression.names & gone
        assert expression.is_satisfied(env)
        assert not expression.holds(env)
    except ExpressionError:
        pass


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(0.5, 2.0))
def test_a_violation_is_positive_exactly_on_the_wrong_side(
    value: float, baseline: float, factor: float
) -> None:
    text = f"ttft_ms <= {factor!r} * baseline"
    violation = parse_outcome(text).violation(value, baseline)
    assert (violation > 0) == (value > factor * baseline)
    assert abs(violation - (value / (factor * baseline) - 1)) <= 1e-6 * (1 + abs(violation))
