"""Generated files are what the code gives; shipped YAML names its schema and satisfies it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
SHIPPED = sorted([*(ROOT / "search_spaces").glob("*.yaml"), *(ROOT / "studies").glob("*.yaml")])
MODELINE = "# yaml-language-server: $schema="


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "tools/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_current(generator: ModuleType) -> None:
    stale = [
        name
        for name, text in generator.generated().items()
        if (ROOT / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: python tools/generate.py"


def test_the_metrics_page_names_every_metric_or_its_percentiles(generator: ModuleType) -> None:
    page = generator.metrics_page()
    assert "| `output_tokens_per_s` | tok/s | more |" in page
    assert "`ttft_p99_ms`" in page
    assert "| `ttft_p95_ms` |" not in page


def test_the_reference_has_every_section(generator: ModuleType) -> None:
    page = generator.reference_page(json.loads((ROOT / "schema/study.schema.json").read_text()))
    for section in ("Workload", "Sglang", "Vllm", "Llamacpp", "Objective", "Search", "Space"):
        assert f"\n## {section}\n" in page
    assert "| `sampler` |" in page


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_yaml_names_its_schema_and_satisfies_it(path: Path) -> None:
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    assert first.startswith(MODELINE)
    schema = json.loads((path.parent / first.removeprefix(MODELINE)).read_text())
    jsonschema.validate(yaml.safe_load(rest), schema)
