"""`tuner trouble`: a failure's word or a pasted warning leads to its entry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.cli.trouble import failure_words, matching, plain, read_entries
from tuner.errors import FailureKind


def tuner(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(), ["trouble", *arguments])


@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_is_found_by_its_word(kind: FailureKind) -> None:
    found = tuner(kind.label)
    assert found.exit_code == 0
    assert found.stdout.splitlines()[0] == kind.label
    assert len(found.stdout) > 80


@pytest.mark.parametrize(
    ("message", "heading"),
    [
        ("c8: nothing arrived for 1.20 s (14% of the block)", "nothing arrived for"),
        ("GPU 3 was held back by its power cap in 40% of the samples", "held back"),
        ("steal", "the hypervisor took CPU time"),
        ("block 2: client bound: the client was busy 93%", "client bound: the client was busy"),
        ("page-size is 64 here: more than speculation differs", "more than speculation differs"),
    ],
)
def test_a_pasted_warning_is_found(message: str, heading: str) -> None:
    assert heading in matching(read_entries(), message)


def test_without_a_word_all_headings_are_listed() -> None:
    lines = tuner().stdout.splitlines()
    assert "out_of_memory" in lines
    assert "GPU clocks differ" in lines
    assert "Failures of a trial" not in lines


def test_an_entry_is_plain_text() -> None:
    text = tuner("not_ready").stdout
    assert "see collectives." in text
    assert plain("`said` … What [rules](rules.md) say.") == "What rules say."


def test_unknown_words_are_refused() -> None:
    found = tuner("purple")
    assert found.exit_code == 2
    assert "must be a failure or words of a warning, got 'purple'" in found.stderr


def test_as_json() -> None:
    document = json.loads(tuner("stalled", "--json").stdout)
    assert [entry["name"] for entry in document["entries"]] == ["stalled"]


def test_failures_are_completed() -> None:
    assert failure_words("not_") == ["not_ready", "not_stopped"]
