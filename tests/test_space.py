"""Enumeration, conditions, constraints, counting, and what changed between two spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.args import UNSET, Params, ServerArgs
from tuner.config.loader import LoadedStudy
from tuner.config.space import ParameterConfig
from tuner.config.study import StudyConfig
from tuner.errors import UsageError
from tuner.space import (
    MAX_POINTS,
    Parameter,
    SearchSpace,
    build_space,
    describe_changes,
    survey,
)

CAPACITY = "draft_tokens - 1 <= topk + (steps - 1) * topk ** 2"


def eagle(*constraints: str, when: str | None = None) -> SearchSpace:
    return SearchSpace(
        (
            Parameter("steps", "int", tuple(range(1, 8)), flag="num-steps"),
            Parameter("topk", "categorical", (1, 2, 4, 8), flag="topk"),
            Parameter("draft_tokens", "categorical", (4, 8, 16, 32), flag="draft", when=when),
        ),
        constraints,
    )


def canonical(point: Params) -> ServerArgs:
    steps, topk = int(point["steps"]), int(point["topk"])
    draft = steps + 1 if topk == 1 else int(point["draft_tokens"])
    return ServerArgs({"num-steps": steps, "topk": topk, "draft": draft})


def tree_capacity(args: ServerArgs) -> list[str]:
    steps, topk, draft = (args.flags[name] for name in ("num-steps", "topk", "draft"))
    assert isinstance(steps, int)
    assert isinstance(topk, int)
    assert isinstance(draft, int)
    most = 1 + topk + (steps - 1) * topk**2
    return [f"draft {draft} > {most}"] if draft > most else []


def test_the_eagle_space_has_71_distinct_servers() -> None:
    found = survey(eagle(), canonical, tree_capacity)
    assert found.counts() == {
        "points": 112,
        "distinct": 71,
        "infeasible": 20,
        "duplicates": 21,
    }


def test_duplicates_point_at_the_first_point_with_the_same_server() -> None:
    found = survey(eagle(), canonical, tree_capacity)
    points = list(eagle().points())
    for later, first in found.duplicates.items():
        assert first < later
        assert canonical(points[first]).digest == canonical(points[later]).digest


def test_a_broken_constraint_of_the_file_is_a_reason() -> None:
    found = survey(eagle(CAPACITY), lambda p: ServerArgs(dict(p)), lambda args: [])
    point, reasons = found.infeasible[0]
    assert dict(point) == {"steps": 1, "topk": 1, "draft_tokens": 4}
    assert reasons == [CAPACITY]


def test_a_parameter_is_absent_where_its_condition_is_false() -> None:
    points = list(eagle(when="topk > 1").points())
    assert len(points) == 7 * (1 + 3 * 4)
    assert all(("draft_tokens" in point) == (point["topk"] != 1) for point in points)


def test_a_condition_on_an_absent_parameter_is_false() -> None:
    space = SearchSpace(
        (
            Parameter("a", "categorical", (0, 1)),
            Parameter("b", "categorical", (0, 1), when="a == 1"),
            Parameter("c", "categorical", (0, 1), when="b == 0"),
        )
    )
    assert [tuple(point) for point in space.points()] == [
        ("a",),
        ("a", "b", "c"),
        ("a", "b", "c"),
        ("a", "b"),
    ]


def test_a_constraint_on_an_absent_parameter_is_satisfied() -> None:
    space = eagle("draft_tokens >= 1000", when="topk > 1")
    assert space.broken_constraints({"steps": 1, "topk": 1}) == []
    assert space.broken_constraints({"steps": 1, "topk": 2, "draft_tokens": 4}) == [
        "draft_tokens >= 1000"
    ]


def test_an_empty_space_has_one_point() -> None:
    assert list(SearchSpace(()).points()) == [{}]


def test_too_many_points_are_refused_with_the_largest_parameters() -> None:
    wide = Parameter("wide", "int", tuple(range(1000)))
    space = SearchSpace((wide, Parameter("wider", "int", tuple(range(2000)))))
    with pytest.raises(UsageError, match=f"at most {MAX_POINTS:,} points") as caught:
        survey(space, refuse, lambda args: [])
    assert caught.value.hint.endswith("the largest are wider (2000), wide (1000).")


def refuse(point: Params) -> ServerArgs:
    raise AssertionError("a space is refused before the engine is asked about any point of it")


@pytest.mark.parametrize(("last", "is_refused"), [(MAX_POINTS, True), (MAX_POINTS - 1, False)])
def test_points_count_where_conditions_leave_them(last: int, is_refused: bool) -> None:
    """1 + `last` points: the second parameter exists at one value of the first."""
    space = SearchSpace(
        (
            Parameter("tree", "categorical", (0, 1)),
            Parameter("nodes", "int", tuple(range(last)), when="tree == 1"),
        )
    )
    assert space.upper_bound() == 2 * last
    if not is_refused:
        assert sum(1 for _ in space.points()) == MAX_POINTS
        return
    with pytest.raises(UsageError, match=r"got more \(up to 500,000\)"):
        next(space.points())


def loaded(start: list[dict[str, object]], **parameters: ParameterConfig) -> LoadedStudy:
    config = StudyConfig.model_validate(
        {
            "name": "s",
            "engine": {"kind": "fake"},
            "space": {"start": start},
            "workload": {"prompts": {"builtin": "mixed"}},
            "objective": {"maximize": "output_tokens_per_s"},
        }
    )
    return LoadedStudy(Path("s.yaml"), config, parameters, ("steps < 9",), "", "")


def test_build_space_expands_ranges_and_completes_start_points() -> None:
    space = build_space(
        loaded(
            [{"steps": 3}],
            steps=ParameterConfig(flag="num-steps", int=(1, 7)),
            buffer=ParameterConfig(env="NCCL_BUFFSIZE", choices=[UNSET, 1, 2]),
        )
    )
    assert space.parameter("steps").values == (1, 2, 3, 4, 5, 6, 7)
    assert space.parameter("steps").kind == "int"
    assert space.constraints == ("steps < 9",)
    assert space.start == ({"steps": 3, "buffer": UNSET},)
    with pytest.raises(KeyError):
        space.parameter("topk")


def test_the_digest_covers_values_and_constraints_but_not_start_points() -> None:
    one, other = eagle(), eagle(CAPACITY)
    assert one.digest != other.digest
    assert SearchSpace(one.parameters, (), ({"steps": 1},)).digest == one.digest
    assert one.digest != eagle(when="topk > 1").digest


def test_changes_name_what_is_different() -> None:
    stored, present = eagle(), eagle(CAPACITY, when="topk > 1")
    changes = describe_changes(stored, present)
    assert [(change.field, change.stored, change.present) for change in changes] == [
        (
            "space.parameters.draft_tokens",
            "flag draft [4, 8, 16, 32]",
            "flag draft [4, 8, 16, 32] when topk > 1",
        ),
        ("space.constraints", "none", CAPACITY),
    ]
    gone = describe_changes(stored, SearchSpace(stored.parameters[:2]))
    assert [(change.field, change.present) for change in gone] == [
        ("space.parameters.draft_tokens", "absent")
    ]
    assert describe_changes(stored, eagle()) == []


def test_order_is_no_change() -> None:
    one = eagle(CAPACITY, "steps < 7")
    turned = SearchSpace(one.parameters[::-1], one.constraints[::-1])
    assert describe_changes(one, turned) == []
    assert one.digest == turned.digest
