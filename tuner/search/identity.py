"""Owns what a study was made with, and where that differs from the present: field by field.

Trials are comparable only when all of this is equal; budgets, samplers and pruners may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner import __version__
from tuner.args import digest_of
from tuner.config.loader import LoadedStudy
from tuner.config.study import ObjectiveConfig, StudyConfig
from tuner.config.workload import LoadConfig
from tuner.errors import Difference
from tuner.host.fingerprint import Fingerprint
from tuner.measure.records import LoadPoint
from tuner.redaction import hide_value
from tuner.space import Parameter, SearchSpace, describe_changes
from tuner.store.plain import json_safe

FORMAT_VERSION = 1

_NOT_IDENTITY = {
    # Where things lie may change; what they are is in the fingerprint, by content.
    "executable", "model", "draft_model", "launch_timeout",
    "nccl_probe", "measure_cycle",  # say what is looked at beside the measured launches
    "kind", "args", "env",  # compared one by one
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StudySetup:
    """Everything a study is made with.

    Args:
        loaded: the study file.
        space: its search space.
        workload_digest: identity of prompts, blocks and sampling.
        fingerprint: host, engine, model and draft.
    """

    loaded: LoadedStudy
    space: SearchSpace
    workload_digest: str
    fingerprint: Fingerprint

    @property
    def name(self) -> str:
        """The study's name in its file."""
        return self.loaded.config.name

    @property
    def direction(self) -> str:
        """Optuna's word for the objective's direction."""
        return "maximize" if self.loaded.config.objective.maximize else "minimize"

    @property
    def metric(self) -> str:
        """The metric that is optimised."""
        objective = self.loaded.config.objective
        return objective.maximize or objective.minimize or ""

    @property
    def load(self) -> str:
        """Label of the load point the objective is read at."""
        config = self.loaded.config
        return _label(config.objective.at or config.workload.load[0])


@dataclass(frozen=True, slots=True)
class Identity:
    """What must be equal, by field; the space and the fingerprint are compared by their parts."""

    fields: Mapping[str, str]
    space: SearchSpace
    fingerprint: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "format": FORMAT_VERSION,
            "tuner": __version__,
            "fields": dict(self.fields),
            "space": json_safe(self.space.to_json()),
            "space_digest": self.space.digest,
            "fingerprint": dict(self.fingerprint),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """Inverse of `to_json`; raises KeyError or TypeError for anything else."""
        return cls(dict(data["fields"]), space_from_json(data["space"]), dict(data["fingerprint"]))


def identity_of(setup: StudySetup) -> Identity:
    """The identity of a study about to be opened."""
    config = setup.loaded.config
    return Identity(
        fields={
            "engine.kind": config.engine.kind,
            **_prefixed("engine.args", config.engine.args),
            **_prefixed("engine.env", config.engine.env),
            **_prefixed("engine", config.engine.model_dump(exclude=_NOT_IDENTITY)),
            **_objective_fields(setup, config.objective),
            **_workload_fields(setup, config),
            **_execution_fields(config),
        },
        space=setup.space,
        fingerprint=dict(setup.fingerprint.fields),
    )


def differences(stored: Identity, present: Identity) -> list[Difference]:
    """Every field in which two identities differ; [] when their trials may be compared."""
    return [
        *_compare(stored.fields, present.fields, ""),
        *describe_changes(stored.space, present.space),
        *_compare(stored.fingerprint, present.fingerprint, "fingerprint."),
    ]


def space_from_json(data: Mapping[str, Any]) -> SearchSpace:
    """Inverse of `SearchSpace.to_json`."""
    parameters = tuple(
        Parameter(name=name, **{**fields, "values": tuple(fields["values"])})
        for name, fields in data["parameters"].items()
    )
    return SearchSpace(parameters, tuple(data["constraints"]))


def _compare(
    stored: Mapping[str, str], present: Mapping[str, str], prefix: str
) -> list[Difference]:
    return [
        Difference(prefix + name, stored.get(name, "absent"), present.get(name, "absent"))
        for name in dict.fromkeys([*stored, *present])
        if stored.get(name) != present.get(name)
    ]


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{prefix}.{name}": _text(hide_value(name, value))
        for name, value in sorted(values.items())
    }


def _text(value: Any) -> str:
    if value is None:
        return "removed"
    return value if isinstance(value, str) else str(json_safe(value))


def _objective_fields(setup: StudySetup, objective: ObjectiveConfig) -> dict[str, str]:
    return {
        "objective": f"{setup.direction} {setup.metric}",
        "objective.at": setup.load,
        "objective.constraints": "; ".join(sorted(objective.constraints)) or "none",
    }


def _workload_fields(setup: StudySetup, config: StudyConfig) -> dict[str, str]:
    load = ", ".join(_label(each) for each in config.workload.load)
    settings = config.workload.model_dump(mode="json", exclude={"load", "timeouts"})
    return {
        "workload.load": load,
        "workload.settings": digest_of(settings),
        "workload.prompts": setup.workload_digest,
    }


def _execution_fields(config: StudyConfig) -> dict[str, str]:
    """How crowded a measured server is; nothing for one server at a time."""
    crowd = config.execution.parallel
    return {"execution.parallel": str(crowd)} if crowd > 1 else {}


def _label(load: LoadConfig) -> str:
    return LoadPoint(load.concurrency, load.rate, load.arrivals, load.trace).label
