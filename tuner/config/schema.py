"""Owns the JSON Schema of a study file and of a space file, for editors."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tuner.config.space import SpaceFile
from tuner.config.study import StudyConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def study_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a study file."""
    return _schema(StudyConfig, "A study of speculative-decoding settings")


def space_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a search-space file."""
    return _schema(SpaceFile, "A search space for studies to include")


def _schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    return {"$schema": DIALECT, **schema, "title": title}


class _Generator(GenerateJsonSchema):
    """Describes sections by the first lines of their docstrings, and says nothing twice."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A model's schema with its description cut to the summary."""
        result = super().model_schema(schema)
        if "description" in result:
            text = inspect.cleandoc(str(result["description"]))
            result["description"] = " ".join(text.split("\n\n")[0].split())
        for value in result.get("properties", {}).values():
            value.pop("title", None)
        return result
