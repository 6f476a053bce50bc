"""Enumeration: every point keeps its conditions, every point is counted exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.args import Params, ServerArgs
from tuner.space import Parameter, SearchSpace, describe_changes, survey

NAMES = ("a", "b", "c", "d")


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    parameters: list[Parameter] = []
    for index, name in enumerate(NAMES[: draw(st.integers(0, 4))]):
        values = tuple(range(draw(st.integers(1, 4))))
        kept = None
        if index and draw(st.booleans()):
            earlier, order = (
                draw(st.sampled_from(NAMES[:index])),
                draw(st.sampled_from([">", "=="])),
            )
            kept = f"{earlier} {order} 1"
        parameters.append(Parameter(name, "int", values, flag=name, when=kept))
    rules = draw(st.lists(st.sampled_from(["a <= b", "c != 1", "a + d < 4"]), max_size=2))
    return SearchSpace(tuple(parameters), tuple(dict.fromkeys(rules)))


def blurred(point: Params) -> ServerArgs:
    """An engine that sees no difference between 2 and 3."""
    return ServerArgs({name: min(int(value), 2) for name, value in point.items()})


@given(spaces())
def test_every_point_has_exactly_the_parameters_that_exist(space: SearchSpace) -> None:
    points = list(space.points())
    assert len({tuple(point.items()) for point in points}) == len(points) <= space.upper_bound()
    for point in points:
        for parameter in space.parameters:
            assert parameter.exists(point) == (parameter.name in point)
            if parameter.name in point:
                assert point[parameter.name] in parameter.values
        assert list(point) == [p.name for p in space.parameters if p.name in point]


@given(spaces())
def test_points_are_all_of_the_product_that_keep_their_conditions(space: SearchSpace) -> None:
    expected: list[dict[str, object]] = [{}]
    for parameter in space.parameters:
        expected = [
            {**point, parameter.name: value} if value is not None else point
            for point in expected
            for value in (parameter.values if parameter.exists(point) else (None,))
        ]
    assert [dict(point) for point in space.points()] == expected


@given(spaces())
def test_counts_add_up(space: SearchSpace) -> None:
    found = survey(space, blurred, lambda args: ["odd"] if args.flags.get("a") == 1 else [])
    counts = found.counts()
    assert counts["points"] == counts["distinct"] + counts["infeasible"] + counts["duplicates"]
    points = list(space.points())
    assert counts["points"] == len(points)
    assert len({args.digest for _, args in found.servers}) == counts["distinct"]
    for point, reasons in found.infeasible:
        odd = ["odd"] if point.get("a") == 1 else []
        assert reasons == [*space.broken_constraints(point), *odd]
    for later, first in found.duplicates.items():
        assert blurred(points[later]).digest == blurred(points[first]).digest


@given(spaces(), spaces())
def test_changes_are_named_exactly_when_digests_differ(
    one: SearchSpace, other: SearchSpace
) -> None:
    assert bool(describe_changes(one, other)) == (one.digest != other.digest)
