"""Owns `manifest.json`: what a bundle is, where its numbers come from, and its files' hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tuner import __version__
from tuner.export.subject import Subject, reason_text

NAME = "manifest.json"
FORMAT = 1
_MAPPINGS = (
    ("study",), ("engine",), ("server", "args", "flags"), ("server", "args", "env"),
    ("server", "effective"), ("digests",), ("fingerprint",), ("files",), ("evidence", "engine"),
)  # fmt: skip
"""What readers take apart: of the right kind where it stands at all."""


def build_manifest(
    subject: Subject, marks: tuple[str, ...], files: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest of these files; equal input gives equal output (no time of export)."""
    provenance, trial = subject.provenance, subject.trial
    return {
        "format": FORMAT,
        "tuner": __version__,
        "study": {
            "name": provenance.study,
            "objective": provenance.objective,
            "digest": provenance.digests.get("study", ""),
        },
        "trial": None if subject.schedule else trial.number,
        "verdict": "keep_baseline" if subject.keeps_baseline else "use",
        "engine": dict(provenance.engine),
        "server": {
            "digest": subject.args.digest,
            "effective_digest": "" if subject.schedule else trial.effective_digest,
            "args": subject.args.to_json(),
            "effective": {} if subject.schedule else dict(trial.effective_args),
        },
        "confirmed": _confirmed(subject),
        "measured": None if subject.schedule else _measured(subject),
        "valid_for": {"load": provenance.load, "prompts": provenance.digests.get("prompts", "")},
        "digests": dict(provenance.digests),
        "driver": provenance.fingerprint.get("gpu_driver"),
        "fingerprint": dict(provenance.fingerprint),
        "left_out_env": subject.left_out,
        "marks": list(marks),
        "flags": list(subject.flags),
        "refused_without_flags": {name: reason_text(name) for name in subject.flags},
        "files": {name: sha256(text) for name, text in sorted(files.items())},
    }


def render_manifest(manifest: Mapping[str, Any]) -> str:
    """The manifest as text."""
    return json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def parse_manifest(text: str) -> dict[str, Any]:
    """Inverse of `render_manifest`; raises ValueError for anything that is no manifest."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise ValueError(f"{NAME}: format must be {FORMAT}, got {found!r}")
    for path in _MAPPINGS:
        value: Any = data
        for key in path:
            value = value.get(key, {})
            if not isinstance(value, dict):
                raise ValueError(f"{NAME}: {'.'.join(path)} must be a mapping, got {value!r}")
    return data


def sha256(text: str) -> str:
    """Hash of a file's text as it is written."""
    return hashlib.sha256(text.encode()).hexdigest()


def _confirmed(subject: Subject) -> dict[str, Any] | None:
    if subject.schedule is not None:
        return subject.schedule.model_dump(mode="json", exclude={"server_args", "files"})
    found = subject.recommendation
    if found is None or subject.keeps_baseline:
        finalist = subject.finalist
        return None if finalist is None else finalist.model_dump(mode="json")
    return {
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "level": 0.95,
        "held_out": found.held_out,
        "constraints_met": found.constraints_met,
        "fidelity": found.fidelity,
        "launches": None if subject.finalist is None else subject.finalist.launches,
        "value": None if subject.finalist is None else subject.finalist.value,
        "finished_utc": found.finished_utc,
    }


def _measured(subject: Subject) -> dict[str, Any]:
    trial = subject.trial
    return {
        "value": trial.value,
        "half_width": trial.half_width,
        "vs_baseline": trial.vs_baseline,
        "acceptance_length": trial.acceptance_length,
        "metrics": {k: v for k, v in sorted(trial.metrics.items()) if v == v},
        "finished_utc": trial.finished_utc,
    }
