"""Every test that docs/security.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/security.md").read_text())


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_promise_is_tested(file: str, test: str) -> None:
    text = (ROOT / file).read_text()
    assert f"def {test or 'test_'}" in text
    assert len(NAMED) > 15
