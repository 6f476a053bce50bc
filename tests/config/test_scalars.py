"""What an unquoted scalar means, and which texts YAML readers disagree about."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.scalars import Surprise, resolve_plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("0x10", 16),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1.0e+3", 1000.0),
        ("2.5e-1", 0.25),
        ("abc", "abc"),
        ("-", "-"),
        ("3x", "3x"),
        ("1.2.3", "1.2.3"),
        ("30m", "30m"),
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("y", "y"),
        ("onward", "onward"),
    ],
)
def test_a_plain_scalar(text: str, value: object) -> None:
    found = resolve_plain(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("on", "Write true for a switch, or 'on' in quotes for text."),
        ("No", "Write false for a switch, or 'No' in quotes for text."),
        ("1e3", "Write 1000 for the number, or '1e3' in quotes for text."),
        ("1.5e3", "Write 1500 for the number, or '1.5e3' in quotes for text."),
        ("1e-3", "Write 0.001 for the number, or '1e-3' in quotes for text."),
        ("1e-9", "Write 1.0e-9 for the number, or '1e-9' in quotes for text."),
        ("2.5e30", "Write 2.5e+30 for the number, or '2.5e30' in quotes for text."),
        ("010", "Write 10 (8 if octal is meant), or '010' in quotes for text."),
        ("089", "Write 89, or '089' in quotes for text."),
        ("0o17", "Write 15, or '0o17' in quotes for text."),
        ("0x_1f", "Write 31, or '0x_1f' in quotes for text."),
        ("0b_", "Write '0b_' in quotes for text."),
        ("0b101", "Write 5, or '0b101' in quotes for text."),
        ("1_000", "Write 1000, or '1_000' in quotes for text."),
        ("0._", "Write 0., or '0._' in quotes for text."),
        ("1.5_0", "Write 1.50, or '1.5_0' in quotes for text."),
        (".2_5", "Write .25, or '.2_5' in quotes for text."),
        ("-1_0.5e+3", "Write -10.5e+3, or '-1_0.5e+3' in quotes for text."),
        ("1:30", "Write a duration such as 90s, or '1:30' in quotes for text."),
        ("2026-12-01", "Write '2026-12-01' in quotes for text."),
        (".inf", "Write the largest value you mean."),
        ("-.INF", "Write the largest value you mean."),
        (".nan", "Write the largest value you mean."),
        ("9" * 41, "Write fewer digits."),
    ],
)
def test_a_surprise_says_what_to_write(text: str, hint: str) -> None:
    found = resolve_plain(text)
    assert isinstance(found, Surprise)
    assert found.hint == hint
    assert found.text == text


def test_what_a_hint_tells_to_write_is_no_surprise() -> None:
    for text in ("1e3", "1.5e3", "1e-3", "1e-9", "2.5e30", "010", "0o17", "0b101", "1_000"):
        found = resolve_plain(text)
        assert isinstance(found, Surprise)
        written = found.hint.removeprefix("Write ").split()[0].rstrip(",")
        assert isinstance(resolve_plain(written), int | float)
        assert resolve_plain(written) == yaml.safe_load(written)


@given(st.text(alphabet="0123456789+-._:eExobonyfsTt", min_size=1, max_size=12))
def test_what_is_no_surprise_means_the_same_to_a_yaml_1_1_reader(text: str) -> None:
    found = resolve_plain(text)
    if isinstance(found, Surprise):
        return
    try:
        other = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return
    if not isinstance(other, dict | list):
        assert other == found
        assert type(other) is type(found)
