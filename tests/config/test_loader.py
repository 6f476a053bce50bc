"""Loading studies: good ones load, bad ones list every mistake at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.loader import load_study
from tuner.errors import ConfigError

CONFIGS = Path(__file__).parent.parent / "configs"
GOOD = sorted((CONFIGS / "good").glob("*.yaml"))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_study_loads(path: Path) -> None:
    assert load_study(path).config.name.startswith(path.stem)


def test_fifteen_mistakes_are_fifteen_problems() -> None:
    with pytest.raises(ConfigError, match="15 errors, nothing was launched") as caught:
        load_study(CONFIGS / "bad" / "fifteen.yaml")
    assert len(caught.value.problems) == 15
