"""An answer among other output."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.marked_lines import marked_json

MARKER = "ANSWER "


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ('warning\nANSWER {"a": 1}\nbye\n', {"a": 1}),
        ('ANSWER {"a": 1}\nANSWER {"a": 2}', {"a": 2}),
        ("loading 100% ANSWER [1, 2]\r\n", [1, 2]),
        ("", None),
        ('{"a": 1}', None),
        ('ANSWER {"a": 1}\nANSWER {"a": ', None),
        ("ANSWER null", None),
    ],
)
def test_the_last_marked_line_counts(output: str, answer: Any) -> None:
    assert marked_json(output, MARKER) == answer


@given(st.text())
def test_any_output_is_read(output: str) -> None:
    assert marked_json(output, MARKER) is None or MARKER in output
