"""Nothing in README.md and docs/ is made up: commands parse or run, YAML is accepted, links lead
somewhere, and every failure and warning has its entry."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from typer.testing import CliRunner

from tuner import api
from tuner.cli.app import build_app
from tuner.config.loader import load_space, load_study
from tuner.config.schema import study_schema
from tuner.errors import FailureKind

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
RUNNABLE = {"init", "check", "schema"}


def blocks(language: str) -> list[Any]:
    """Every fenced block of a language, with the page it stands on."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for fence in FENCE.finditer(text):
            if fence[1] == language:
                line = text[: fence.start()].count("\n") + 1
                found.append(pytest.param(fence[2], id=f"{page.name}:{line}"))
    return found


def typed_lines() -> list[Any]:
    """Every command line in a fence: what a reader copies."""
    return [
        pytest.param(line, id=line[:70])
        for line in dict.fromkeys(
            line for block in blocks("sh") for line in block.values[0].splitlines()
        )
    ]


def mentioned_lines() -> list[str]:
    """Every command between backticks: often without what it needs."""
    texts = (FENCE.sub("", page.read_text(encoding="utf-8")) for page in PAGES)
    found = (re.findall(r"`(tuner [a-z][^`]*)`", text.replace("\n", " ")) for text in texts)
    return list(dict.fromkeys(line for lines in found for line in lines))


def words_of(line: str) -> list[str]:
    """The tuner's arguments in a command line; [] for another program."""
    words = shlex.split(line, comments=True)
    if words and words[0] in ("tuner", ".venv/bin/tuner"):
        return words[1:]
    return []


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the repository, as far as the pages name files of it."""
    for name in ("studies", "search_spaces", "schema"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def understand(line: str, *, is_complete: bool) -> None:
    """Parse a command line as the command would; nothing runs."""
    words = words_of(line)
    command: Any = typer.main.get_command(build_app())
    context = command.make_context("tuner", [], resilient_parsing=True)
    while hasattr(command, "resolve_command") and words and words[0][0] != "-":
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, [], resilient_parsing=True)
    if not hasattr(command, "resolve_command"):
        command.make_context("tuner", list(words), resilient_parsing=not is_complete)


@pytest.mark.parametrize("line", typed_lines())
def test_a_command_line_is_understood(line: str) -> None:
    if words_of(line):
        understand(line, is_complete=True)
    else:
        known = {"make", "pip", ".", ""}
        assert line.split(" ")[0] in known, f"what does {line!r} run?"


@pytest.mark.parametrize("line", mentioned_lines())
def test_a_command_that_is_mentioned_exists(line: str) -> None:
    understand(line, is_complete=False)


def runnable() -> list[Any]:
    """What needs no stored study, no model and no GPU."""
    return [p for p in typed_lines() if (words_of(p.values[0]) or [""])[0] in RUNNABLE]


@pytest.mark.parametrize("line", runnable())
def test_a_command_line_that_can_run_runs(line: str, workplace: Path) -> None:
    words = words_of(line)
    if words == ["check", "tuning/study.yaml"]:
        assert CliRunner().invoke(build_app(), ["init", "tuning"]).exit_code == 0
    found = CliRunner().invoke(build_app(), words)
    assert found.exit_code == 0, found.stderr
    assert found.stdout


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_yaml_block_is_accepted(text: str, workplace: Path) -> None:
    value = yaml.safe_load(text)
    path = workplace / "studies" / "shown.yaml"
    path.write_text(text, encoding="utf-8")
    if {"name", "engine", "workload"} <= set(value):
        assert load_study(path).parameters
    elif set(value) <= {"include", "parameters", "constraints", "note"}:
        assert load_space(path)
    else:
        schema = study_schema()
        schema.pop("required")
        jsonschema.validate(value, schema)


def test_example_files_are_yaml() -> None:
    for path in (ROOT / "docs" / "examples").glob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def test_commands_of_the_example_workflow_parse() -> None:
    flow = yaml.safe_load((ROOT / "docs/examples/retune.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in flow["jobs"]["retune"]["steps"] if "run" in step]
    lines = [line for script in scripts for line in script.splitlines()]
    assert len(lines) == 6
    for line in lines:
        understand(line.partition(" > ")[0], is_complete=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        assert "://" not in name, "pages are read without the network"
        file = page.parent / name if name else page
        assert file.is_file(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as both GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_has_an_entry(kind: FailureKind) -> None:
    entry = re.search(rf"^### {kind.label}\n\n(.+?)(?=^#)", TROUBLE, re.S | re.M)
    assert entry is not None
    assert len(entry[1]) > 80


def warning_entries() -> list[str]:
    """The fragments of messages that the entries about warnings quote first."""
    part = TROUBLE.partition("## Warnings of a trial")[2].partition("## Collectives")[0]
    return re.findall(r"^### .+\n\n`([^`]+)`", part, re.M)


SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tuner").rglob("*.py"))


@pytest.mark.parametrize("fragment", warning_entries())
def test_an_entry_quotes_what_the_program_says(fragment: str) -> None:
    joined = re.sub(r'"\s*\n\s*f?"', "", SOURCES)
    assert fragment.strip() in joined


WARNING = re.compile(r'(?:return \[|append\(|found = \[|\+= \[|return )\s*f?"([^"]{12,})"')


@pytest.mark.parametrize(
    "module",
    ["measure/checks.py", "measure/series.py", "host/load.py", "host/gpu_sampler.py"],
)
def test_every_warning_of_a_measurement_has_an_entry(module: str) -> None:
    text = re.sub(r'"\s*\n\s*f?"', "", (ROOT / "tuner" / module).read_text(encoding="utf-8"))
    warnings = [w for w in WARNING.findall(text) if not re.search(r": \{(text|note)\}$", w)]
    assert warnings, "the pattern finds nothing any more"
    for warning in warnings:
        assert any(entry.strip() in warning for entry in warning_entries()), warning


def test_the_readme_is_short_and_has_a_marked_run() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 120 <= text.count("\n") <= 180
    assert text.count("<!-- run -->") == text.count("<!-- /run -->") == 1


def test_json_keys_of_check_are_documented() -> None:
    study = str(ROOT / "studies" / "quickstart.yaml")
    found = CliRunner().invoke(build_app(), ["check", study, "--json"])
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| `tuner check`"))
    assert [key for key in json.loads(found.stdout) if f"`{key}" not in row] == []


@pytest.mark.parametrize("text", blocks("python"))
def test_a_python_block_names_what_exists(text: str) -> None:
    compile(text, "page", "exec")
    for name in re.findall(r"\bapi\.(\w+)", text):
        assert name in api.__all__
    for name in re.findall(r"\bdone\.(\w+)", text):
        assert hasattr(api.Results, name)
