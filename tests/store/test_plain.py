"""Any value fits into strict JSON."""

from __future__ import annotations

import json
import math
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.store.plain import clean_text, dump_json, json_safe

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.text(alphabet="abc", min_size=1), inner, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


class Colour(Enum):
    RED = "red"


@given(plain)
def test_what_json_holds_comes_back_unchanged(value: Any) -> None:
    assert json.loads(dump_json(value)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        (math.nan, None),
        (math.inf, None),
        (np.float64("nan"), None),
        ((1, (2,)), [1, [2]]),
        ({2, 1}, [1, 2]),
        ({3: {"a": math.nan}}, {"3": {"a": None}}),
        (b"ab\xff", "ab�"),
        (Path("/x"), "/x"),
        (Colour.RED, "red"),
        (True, True),
    ],
)
def test_foreign_values_become_plain(value: Any, expected: Any) -> None:
    result = json_safe(value)
    assert result == expected
    assert type(result) is type(expected)
    json.loads(dump_json(value), parse_constant=lambda name: pytest.fail(name))


@given(st.text(alphabet=st.characters()))
def test_any_text_can_be_encoded(text: str) -> None:
    assert json.loads(dump_json(text)) == clean_text(text)
    clean_text(text).encode()
    assert "\0" not in clean_text(text)


def test_text_is_cut_at_the_limit() -> None:
    assert clean_text("abcdef", 3) == "abc"


def test_half_an_emoji_is_replaced_and_a_split_pair_is_joined() -> None:
    assert clean_text("a\ud83d") == "a�"
    assert clean_text("\ud83d\ude00") == "😀"
