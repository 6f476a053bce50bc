"""Owns `Fingerprint`: what must be equal before two measurements may be compared."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner import __version__
from tuner.errors import Difference
from tuner.host.content import content_hash
from tuner.host.environment import relevant_environment
from tuner.host.gpus import Gpu, list_gpus
from tuner.host.machine import machine_fields


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Host, GPUs, engine, environment and models as text.

    `fields` decide what is comparable; `details` (host name, exact kernel, tuner version) only
    inform and may change between two runs.
    """

    fields: Mapping[str, str]
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Equal for everything whose measurements may be compared."""
        text = json.dumps(dict(self.fields), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is fingerprinted beside the machine.

    Args:
        engine: kind and version text of the engine.
        model: path or name; draft_model likewise, None without one.
        study_env: names the study sets or removes itself; it records those.
    """

    engine: str
    model: str
    draft_model: str | None = None
    study_env: tuple[str, ...] = ()


def take(
    subject: Subject,
    *,
    environ: Mapping[str, str] | None = None,
    gpus: Sequence[Gpu] | None = None,
) -> Fingerprint:
    """The fingerprint of this machine for a subject.

    Args:
        subject: engine and models.
        environ: the environment servers inherit; None: ours.
        gpus: the GPUs to be used; None: all that are visible here.
    """
    inherited = relevant_environment(
        os.environ if environ is None else environ, without=subject.study_env
    )
    fields = {
        "engine": subject.engine,
        "model": content_hash(subject.model),
        "draft_model": content_hash(subject.draft_model) if subject.draft_model else "none",
        **machine_fields(),
        **gpu_fields(list_gpus() if gpus is None else gpus),
        **{f"env.{name}": value for name, value in inherited.items()},
    }
    return Fingerprint(fields, _details())


def gpu_fields(gpus: Sequence[Gpu]) -> dict[str, str]:
    """`gpus` as `8 x NAME, 141 GiB`, and the driver; nothing without GPUs."""
    if not gpus:
        return {}
    names = [f"{gpu.name}, {round(gpu.memory_bytes / (1 << 30))} GiB" for gpu in gpus]
    counted = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    return {"gpus": "; ".join(counted), "gpu_driver": gpus[0].driver or "unknown"}


def compare(stored: Fingerprint, present: Fingerprint) -> list[Difference]:
    """Every deciding field in which two fingerprints differ, in a stable order."""
    names = dict.fromkeys([*stored.fields, *present.fields])
    return [
        Difference(name, stored.fields.get(name, "absent"), present.fields.get(name, "absent"))
        for name in names
        if stored.fields.get(name) != present.fields.get(name)
    ]


def _details() -> dict[str, str]:
    return {
        "host": socket.gethostname(),
        "kernel_release": platform.release(),
        "python": platform.python_version(),
        "tuner": __version__,
    }
