"""Writes what is generated from the code: JSON Schemas and the reference pages of docs/.

python tools/generate.py           write every file
python tools/generate.py --check   write nothing; exit with 1 when a file is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tuner.config.schema import space_schema, study_schema  # noqa: E402
from tuner.engines.sglang.rules import rule_table  # noqa: E402
from tuner.engines.vllm.rules import rules_markdown  # noqa: E402
from tuner.measure.metrics import METRICS, PERCENTILES  # noqa: E402


def generated() -> dict[str, str]:
    """Every generated file of the repository: its path and its text."""
    return {
        "schema/study.schema.json": _json(study_schema()),
        "schema/space.schema.json": _json(space_schema()),
        "docs/rules-sglang.md": rule_table(),
        "docs/rules-vllm.md": rules_markdown(),
        "docs/metrics.md": metrics_page(),
        "docs/study-reference.md": reference_page(study_schema()),
    }


def metrics_page() -> str:
    """The metrics reference."""
    lines = [
        "# Metrics",
        "",
        "Generated from `tuner/measure/metrics.py`; do not edit by hand.",
        "",
        "Tokens are the server's own count (`usage`), never chunks. Failed requests give no",
        "tokens, and their time counts. A block in which the load generator was the bottleneck",
        "counts in no figure.",
        "",
        "| name | unit | better | what it is |",
        "|---|---|---|---|",
    ]
    derived = {f"{n.removesuffix('_ms')}_p{p}_ms" for n in METRICS for p in PERCENTILES}
    for name, metric in METRICS.items():
        if name not in derived:
            better = "more" if metric.direction == "maximize" else "less"
            text = " ".join(metric.doc.split()).replace("|", "\\|")
            lines.append(f"| `{name}` | {metric.unit} | {better} | {text} |")
    shown = ", ".join(f"`ttft_p{p}_ms`" for p in PERCENTILES)
    return "\n".join([
        *lines,
        "",
        f"Every metric of a request also exists as percentile {', '.join(map(str, PERCENTILES))}",
        f"over requests: {shown}, and likewise for `tpot`, `inter_chunk` and `e2e`.",
        "",
    ])  # fmt: skip


def reference_page(schema: dict[str, Any]) -> str:
    """Every key of a study file, by section."""
    lines = [
        "# Every key of a study",
        "",
        "Generated from the JSON Schema (`tuner schema study`); do not edit by hand.",
        "",
    ]
    lines += _section("Study", schema)
    for name, definition in schema["$defs"].items():
        if "properties" in definition:
            lines += _section(name.removesuffix("Config"), definition)
    return "\n".join(lines)


def _section(name: str, definition: dict[str, Any]) -> list[str]:
    text = " ".join(str(definition.get("description", "")).split())
    lines = [
        f"## {name}",
        "",
        text,
        "",
        "| key | value | default | meaning |",
        "|---|---|---|---|",
    ]
    required = definition.get("required", [])
    for key, value in definition["properties"].items():
        default = "required" if key in required else _default(value)
        meaning = " ".join(str(value.get("description", "")).split()).replace("|", "\\|")
        lines.append(f"| `{key}` | {_kind(value)} | {default} | {meaning} |")
    return [*lines, ""]


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    return "–" if default is None or isinstance(default, dict | list) else f"`{default}`".lower()


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return f"[{_target(value['$ref'])}](#{_target(value['$ref']).lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    for key in ("anyOf", "oneOf"):
        if key in value:
            kinds = [_kind(each) for each in value[key] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    kind = value.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(value.get('items', {}))}"
    return ", ".join(kind) if isinstance(kind, list) else str(kind)


def _target(reference: str) -> str:
    return reference.rpartition("/")[2].removesuffix("Config")


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write or check every generated file."""
    files = generated()
    stale = [
        name
        for name, text in files.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name}: must be what the code gives. Run: python tools/generate.py")
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(files[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
