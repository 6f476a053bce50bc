"""Owns what a bundle carries so that it can be measured again: prompts, load, recorded launches.

`prompts.jsonl` holds the held-out prompts with the answers the confirmation got; the rest stands
in the manifest under `evidence`. Knows no server and no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.config.workload import LimitsConfig, TimeoutsConfig
from tuner.errors import StoreError
from tuner.measure.prompts import Blocks, Workload
from tuner.measure.records import LoadPoint, Prompt, Sampling

PROMPTS = "prompts.jsonl"
SERVER, BASELINE = "server", "baseline"
_AGAIN = "Export it again with a study whose prompts are still there."

Launches = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """How the exported server was confirmed, and what came out.

    Args:
        workload: the held-out blocks and how they are asked, at its load points in turn.
        load: the load point the result is valid for.
        metric, direction: the objective.
        launches: the objective per held-out block of each confirmation launch, for `server` and
            `baseline`; empty for a server that was not confirmed.
        answers: the baseline's answers by prompt, of its first two launches.
        is_greedy: the answers may be compared text by text.
        is_strict: no answer may differ.
        section: the study's engine section, from which the adapter is made again.
        study_env: variables the study set or searched; the fingerprint leaves them out.
    """

    workload: Workload
    load: LoadPoint
    metric: str
    direction: str
    section: Mapping[str, Any]
    launches: Mapping[str, Launches] = field(default_factory=dict)
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_greedy: bool = True
    is_strict: bool = False
    study_env: Sequence[str] = ()


def render_prompts(evidence: Evidence) -> str:
    """`prompts.jsonl`: one held-out prompt per line, in measuring order."""
    lines = [
        {
            "block": index,
            "id": prompt.id,
            "category": prompt.category,
            "messages": [dict(message) for message in prompt.messages],
            "answers": list(evidence.answers.get(prompt.id, ())),
        }
        for index, block in enumerate(evidence.workload.held_out_blocks)
        for prompt in block
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def evidence_document(evidence: Evidence) -> dict[str, Any]:
    """What stands in the manifest: plain JSON."""
    workload = evidence.workload
    limits = workload.limits
    trace = workload.traces.get(evidence.load.trace or "")
    return {
        "metric": evidence.metric,
        "direction": evidence.direction,
        "load": asdict(evidence.load),
        "sweep": [asdict(load) for load in workload.loads],
        "arrivals_s": None if trace is None else list(trace),
        "sampling": asdict(workload.sampling),
        "warm_up": workload.warm_up,
        "cache": workload.cache,
        "seed": workload.seed,
        "timeouts": workload.timeouts.model_dump(mode="json"),
        "limits": None if limits is None else limits.model_dump(mode="json"),
        "launches": {name: [list(v) for v in each] for name, each in evidence.launches.items()},
        "is_greedy": evidence.is_greedy,
        "is_strict": evidence.is_strict,
        "engine": dict(evidence.section),
        "study_env": sorted(evidence.study_env),
    }


def read_evidence(manifest: Mapping[str, Any], files: Mapping[str, str]) -> Evidence:
    """Inverse of `render_prompts` and `evidence_document`.

    Raises:
        StoreError: the bundle has none, or it cannot be understood.
    """
    data = manifest.get("evidence")
    if data is None or PROMPTS not in files:
        raise StoreError(
            f"bundle: must hold {PROMPTS} and how it was measured, got neither.", _AGAIN
        )
    lines = files[PROMPTS].split("\n")  # splitlines would cut inside a prompt, at U+2028
    try:
        return _evidence(data, [json.loads(line) for line in lines if line])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"bundle: must hold readable evidence, got: {error}.", _AGAIN) from error


def _evidence(data: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Evidence:
    return Evidence(
        workload=_workload(data, _blocks(lines)),
        load=LoadPoint(**data["load"]),
        metric=data["metric"],
        direction=data["direction"],
        section=data["engine"],
        launches=data["launches"],
        answers={line["id"]: tuple(line["answers"]) for line in lines if line["answers"]},
        is_greedy=data["is_greedy"],
        is_strict=data["is_strict"],
        study_env=tuple(data["study_env"]),
    )


def _workload(data: Mapping[str, Any], blocks: Blocks) -> Workload:
    load = LoadPoint(**data["load"])
    arrivals = data["arrivals_s"]
    limits = data["limits"]
    return Workload(
        blocks=(),
        held_out_blocks=blocks,
        warm_up_prompts=(),
        loads=tuple(LoadPoint(**each) for each in data["sweep"]),
        sampling=Sampling(**data["sampling"]),
        warm_up=data["warm_up"],
        cache=data["cache"],
        seed=data["seed"],
        timeouts=TimeoutsConfig(**data["timeouts"]),
        limits=None if limits is None else LimitsConfig(**limits),
        traces={} if arrivals is None else {load.trace or "": tuple(arrivals)},
    )


def _blocks(lines: Sequence[Mapping[str, Any]]) -> Blocks:
    found: dict[int, list[Prompt]] = {}
    for line in lines:
        prompt = Prompt(line["id"], tuple(line["messages"]), line["category"])
        found.setdefault(int(line["block"]), []).append(prompt)
    return tuple(tuple(found[index]) for index in sorted(found))
