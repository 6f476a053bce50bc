"""The evidence of a bundle: written, read back, refused when it is not there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.workload import LimitsConfig
from tuner.errors import StoreError
from tuner.export.bundle import build_bundle
from tuner.export.evidence import (
    PROMPTS,
    Evidence,
    evidence_document,
    read_evidence,
    render_prompts,
)
from tuner.export.subject import Subject
from tuner.measure.prompts import Workload
from tuner.measure.records import LoadPoint, Prompt, Sampling

HELD = (
    (Prompt("a", ({"role": "user", "content": 'é "q" \n line'},), "code"),),
    (Prompt("b", ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})),),
)


def evidence(**changes: Any) -> Evidence:
    load = LoadPoint(trace="t.txt")
    workload = Workload(
        blocks=(), held_out_blocks=HELD, warm_up_prompts=(), loads=(load,),
        sampling=Sampling(max_tokens=9), warm_up=2, cache="unique", seed=7,
        limits=LimitsConfig(ttft_ms=200.0), traces={"t.txt": (0.0, 0.5)},
    )  # fmt: skip
    fields: dict[str, Any] = {
        "workload": workload, "load": load, "metric": "tpot_ms", "direction": "minimize",
        "section": {"kind": "fake", "model": "m"}, "launches": {"server": [[1.0, 2.0]]},
        "answers": {"a": ("x", "y")}, "is_strict": True, "study_env": ("A", "B"),
    }  # fmt: skip
    return Evidence(**(fields | changes))


def test_it_is_read_back() -> None:
    written = evidence()
    document = json.loads(json.dumps(evidence_document(written)))
    read = read_evidence({"evidence": document}, {"prompts.jsonl": render_prompts(written)})
    assert read == written


def test_a_bundle_holds_it_under_its_hash(engine: Any, subject: Subject, tmp_path: Any) -> None:
    files = build_bundle(engine, subject, folder=tmp_path, evidence=evidence())
    manifest = json.loads(files["manifest.json"])
    assert manifest["evidence"]["engine"] == {"kind": "fake", "model": "m"}
    assert "prompts.jsonl" in manifest["files"]
    assert read_evidence(manifest, files).answers == {"a": ("x", "y")}


@pytest.mark.parametrize(
    ("manifest", "files", "message"),
    [
        ({}, {"prompts.jsonl": ""}, "must hold prompts.jsonl and how it was measured"),
        ({"evidence": {}}, {}, "must hold prompts.jsonl and how it was measured"),
        ({"evidence": {}}, {"prompts.jsonl": ""}, "must hold readable evidence, got: 'load'"),
        ({"evidence": {}}, {"prompts.jsonl": "{"}, "must hold readable evidence"),
    ],
)
def test_what_is_missing_is_named(manifest: Any, files: Any, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        read_evidence(manifest, files)


@given(st.text(), st.text())
def test_any_prompt_and_any_answer_is_read_back(prompt: str, answer: str) -> None:
    """Also one with U+2028 in it, which `splitlines` takes for the end of a line."""
    held = ((Prompt("a", ({"role": "user", "content": prompt},), "code"),),)
    plain = evidence()
    workload = replace(plain.workload, held_out_blocks=held)
    written = replace(plain, workload=workload, answers={"a": (answer, "x\u2028y\x85z")})
    document = json.loads(json.dumps(evidence_document(written)))
    assert read_evidence({"evidence": document}, {PROMPTS: render_prompts(written)}) == written
