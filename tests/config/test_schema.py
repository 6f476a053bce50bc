"""The JSON Schemas accept every good file and describe every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tuner.config.loader import PLAIN_SWITCHES
from tuner.config.schema import space_schema, study_schema

ROOT = Path(__file__).parent.parent.parent
STUDIES = [*ROOT.glob("studies/*.yaml"), *ROOT.glob("tests/configs/good/*.yaml")]
SPACES = [*ROOT.glob("search_spaces/*.yaml"), *ROOT.glob("tests/configs/good/spaces/*.yaml")]


class Yaml12Loader(yaml.SafeLoader):
    """Reads `off` as text, as the tuner does where it is a word of the format."""


Yaml12Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Yaml12Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def errors(schema: dict[str, Any], path: Path) -> list[str]:
    value = yaml.load(path.read_text(), Loader=Yaml12Loader)
    return [error.message for error in validator(schema).iter_errors(value)]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_study_schema_accepts_a_good_study(path: Path) -> None:
    assert errors(study_schema(), path) == []


@pytest.mark.parametrize("path", SPACES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_space_schema_accepts_a_shipped_space(path: Path) -> None:
    assert errors(space_schema(), path) == []


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for owner, definition in [("", schema), *schema["$defs"].items()]:
        for key, value in definition.get("properties", {}).items():
            yield f"{owner}.{key}", value


def test_every_key_is_described() -> None:
    bare = [
        name
        for name, value in properties(study_schema())
        if not {"description", "$ref", "const"} & set(value)
        and not any("$ref" in branch for branch in value.get("anyOf", value.get("oneOf", [])))
    ]
    assert bare == ["FakeConfig.model", "ReplayConfig.model"]


def test_unknown_keys_and_two_of_one_are_refused() -> None:
    check = validator(space_schema())
    bad = [
        {"parameter": {}},
        {"parameters": {"a": {"flag": "a", "env": "A", "int": [1, 2]}}},
        {"parameters": {"a": {"flag": "a", "int": [1, 2], "choices": [1]}}},
        {"parameters": {"a": {"flag": "a", "int": [1, 2, 3]}}},
    ]
    assert [check.is_valid(value) for value in bad] == [False] * 4


def test_plain_off_is_allowed_exactly_where_the_schema_lists_it() -> None:
    schema = study_schema()
    engines = dict.fromkeys(("SglangConfig", "VllmConfig", "FakeConfig"), "engine")
    sections = {"WorkloadConfig": "workload", "FidelityConfig": "fidelity", **engines}
    every = [name for name, value in properties(schema) if "off" in value.get("enum", [])]
    split = (name.split(".") for name in every)
    assert {(sections[model], key) for model, key in split} == set(PLAIN_SWITCHES)
