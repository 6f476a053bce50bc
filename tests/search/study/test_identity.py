"""What a study was made with: stored, read back, compared field by field; nothing else counts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tuner.config.loader import load_study
from tuner.search.identity import Identity, differences, identity_of
from tuner.space import build_space


def identity(workshop: Any, old: str = "", new: str = "", **changes: Any) -> Identity:
    """The identity of the study, its text edited."""
    setup = workshop.setup(**changes)
    text = setup.loaded.path.read_text()
    assert old in text
    setup.loaded.path.write_text(text.replace(old, new) if old else text)
    loaded = load_study(setup.loaded.path)
    return identity_of(replace(setup, loaded=loaded, space=build_space(loaded)))


def changed(stored: Identity, present: Identity) -> dict[str, tuple[str, str]]:
    return {each.field: (each.stored, each.present) for each in differences(stored, present)}


def test_it_survives_its_json(workshop: Any) -> None:
    made = identity(workshop)
    read = Identity.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False)))
    assert differences(read, made) == differences(made, read) == []
    assert read.space.digest == made.space.digest
    assert (read.fields, read.fingerprint) == (made.fields, made.fingerprint)


ENGINE = "engine: {kind: fake}"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            ENGINE, "engine: {kind: fake, args: {threads: 2}}",
            {"engine.args.threads": ("absent", "2")},
        ),
        (
            ENGINE, "engine: {kind: fake, env: {NCCL_DEBUG: null}}",
            {"engine.env.NCCL_DEBUG": ("absent", "removed")},
        ),
        (
            "at: {concurrency: 1}", "at: {concurrency: 8}",
            {"objective.at": ("c1", "c8")},
        ),
        (
            "at: {concurrency: 1}", 'at: {concurrency: 1}, constraints: ["error_rate == 0"]',
            {"objective.constraints": ("none", "error_rate == 0")},
        ),
        (
            "load: [{concurrency: 1}, {concurrency: 8}]", "load: [{concurrency: 1}]",
            {"workload.load": ("c1, c8", "c1")},
        ),
        (
            "choices: [1, 2, 4]", "choices: [1, 2]",
            {"space.parameters.topk": ("flag topk [1, 2, 4]", "flag topk [1, 2]")},
        ),
    ],
)  # fmt: skip
def test_what_makes_trials_incomparable_is_named(
    workshop: Any, old: str, new: str, found: dict[str, tuple[str, str]]
) -> None:
    assert changed(identity(workshop), identity(workshop, old, new)) == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ENGINE, "engine: {kind: fake, launch_timeout: 99s}"),
        (ENGINE, "engine: {kind: fake}\nbudget: {launches: 3}"),
        (ENGINE, "engine: {kind: fake}\nconfirm: {rounds: 6}"),
        (ENGINE, "engine: {kind: fake}\nexecution: {kind: local, parallel: 1}"),
        ("sampler: tpe, seed: 7", "sampler: random, seed: 8"),
        ("start: []", "start: [{steps: 1, topk: 1}]"),
    ],
)
def test_what_does_not_change_a_measurement_may_change(workshop: Any, old: str, new: str) -> None:
    assert changed(identity(workshop), identity(workshop, old, new)) == {}


def test_how_crowded_the_machine_was_counts(workshop: Any) -> None:
    crowd = identity(workshop, ENGINE, f"{ENGINE}\nexecution: {{kind: local, parallel: 2}}")
    assert changed(identity(workshop), crowd) == {"execution.parallel": ("absent", "2")}


def test_prompts_and_host_are_compared_by_what_they_are(workshop: Any) -> None:
    setup = workshop.setup()
    stored = identity_of(setup)
    other = identity_of(replace(setup, workload_digest="workload-2"))
    assert changed(stored, other) == {"workload.prompts": ("workload-1", "workload-2")}
    moved = identity_of(workshop.setup(fingerprint={"gpu": "none", "cores": "8"}))
    assert changed(stored, moved) == {
        "fingerprint.driver": ("1", "absent"),
        "fingerprint.cores": ("absent", "8"),
    }
