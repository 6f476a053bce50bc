"""server.env: what is written is what every reader gets."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.engines.dotenv import parse_env, render_env

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(st.dictionaries(NAMES, st.none() | VALUES, max_size=5))
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read_back(env: dict[str, str | None]) -> None:
    assert parse_env(render_env(env, "two\nlines")) == env


def test_form() -> None:
    text = render_env({"B": 'a "b" $c `d` \\e', "A": None, "C": "two\nlines"}, "written by tuner")
    assert text == (
        '# written by tuner\n# unset A\nB="a \\"b\\" \\$c \\`d\\` \\\\e"\nC="two\nlines"\n'
    )


def test_a_shell_reads_the_same_value() -> None:
    value = "a \"b\" $HOME `id` \\e 'f' é\nnext $(id)"
    script = render_env({"X": value}) + 'printf %s "$X"\n'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == value


def test_unquoted_values_and_blank_lines_are_accepted() -> None:
    assert parse_env("\n# note\nA=b c\r\nB=\n") == {"A": "b c", "B": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\nnonsense\n", "line 2: must be NAME="),
        ('A="open\n', "line 1: a quoted value must end"),
        ('A="x" trailing\n', "line 1: a quoted value must end"),
        ("1A=x\n", "line 1: must be NAME="),
    ],
)
def test_unreadable_lines_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_env(text)


def test_names_that_no_shell_accepts_are_refused() -> None:
    with pytest.raises(ValueError, match="names must be"):
        render_env({"A-B": "1"})
    with pytest.raises(ValueError, match="NUL"):
        render_env({"A": "a\0b"})
