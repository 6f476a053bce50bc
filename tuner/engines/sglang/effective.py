"""Owns what the running server says it really uses, and how that differs from what was asked.

Reads `/server_info` (or `/get_server_info` of older versions): flattened resolved arguments plus
one `internal_states` entry per data-parallel rank. What changes by itself from launch to launch
(port, seed, measured memory) is left out, so that equal servers have equal effective values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuner.args import FlagValue, ServerArgs
from tuner.engines.base import Drift
from tuner.engines.sglang import flags as F
from tuner.redaction import is_secret

_VOLATILE = frozenset({
    "port", "host", "nccl-port", "grpc-port", "random-seed", "startup-time", "launch-command",
    "status", "internal-states", "last-gen-throughput", "avg-spec-accept-length",
    "step-time-dict", "memory-usage", "max-total-num-tokens", "max-req-input-len", "env-vars",
    "decode-cuda-graph-memory-gb", "dspark-info-record", "gated-launch-port",
    "smg-http-sidecar-port", "decoupled-spec-bind-endpoint", "load-publish-endpoint",
    "forward-pass-metrics-ipc-name", "custom-sigquit-handler", "kv-events", "token-capacity",
    "weight-version", "disaggregation-bootstrap-port", "engine-info-bootstrap-port",
    "encoder-bootstrap-port",
})  # fmt: skip
_VOLATILE_ENDINGS = ("-port", "-ports", "-pid", "-endpoint", "-uptime", "-timestamp", "-time",
                     "-throughput", "-ipc-name", "-socket-path")  # fmt: skip
"""What fields of other versions are called that change by themselves."""
_SECRET = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password", "watermark-key",
                     "watermark-key-b", "watermark-config"})  # fmt: skip
_OLD_NAMES = {
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "tensor-parallel-size": "tp-size",
    "speculative-draft-model": F.DRAFT_PATH,
    "effective-max-running-requests-per-dp": "effective-max-running-requests-per-dp",
}
"""Field names of versions before 0.5.23 and what they are called here."""

CHANGED_BY_SPECULATION = (
    "max-running-requests", "disable-overlap-schedule", "enable-mixed-chunk",
    "attention-backend", "prefill-attention-backend", "decode-attention-backend", "page-size",
    "chunked-prefill-size", "cuda-graph-max-bs-decode", "cuda-graph-config",
    "disable-cuda-graph", "mem-fraction-static", "effective-max-running-requests-per-dp",
    "disable-custom-all-reduce", "kv-cache-dtype", "schedule-conservativeness",
)  # fmt: skip
"""What speculation, or topk alone, changes besides drafting."""

_FORCED_ALGORITHM = {"FROZEN_KV_MTP": {"EAGLE"}}


def parse_server_info(text: str) -> dict[str, Any]:
    """Effective values by flag name; {} when the text is no server information."""
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(data, dict) or not ({"model_path", "server_args"} & data.keys()):
        return {}
    nested = data.get("server_args")
    merged = {**(nested if isinstance(nested, dict) else {}), **data}
    states = data.get("internal_states")
    first = states[0] if isinstance(states, list) and states else {}
    for key, value in (first if isinstance(first, dict) else {}).items():
        merged.setdefault(key, value)
    return effective_flags(merged)


def effective_flags(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Resolved arguments by canonical flag name, volatile and secret ones left out."""
    values: dict[str, Any] = {}
    for key, value in resolved.items():
        name = F.spelled(str(key))
        name = _OLD_NAMES.get(name, name)
        by_itself = name in _VOLATILE or name.endswith(_VOLATILE_ENDINGS)
        hidden = str(key).startswith("_") or by_itself or name in _SECRET or is_secret(name)
        if not hidden and name not in {"server-args", "sidecar-args"}:
            values[name] = value
    return values


def drift_of(args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
    """Flags whose effective value is not what was asked for, then what speculation changed."""
    if not effective:
        return []
    asked = [_asked(name, value, effective) for name, value in sorted(args.flags.items())]
    return [*(drift for drift in asked if drift is not None), *_silent(args, effective)]


def _asked(name: str, value: FlagValue, effective: Mapping[str, Any]) -> Drift | None:
    if name not in effective or same_value(value, effective[name]):
        return None
    if name == F.ALGORITHM and _same_algorithm(str(value), str(effective[name])):
        return None
    confounds = name in CHANGED_BY_SPECULATION
    text = f"{name} was asked to be {_word(value)} and is {_word(effective[name])}"
    return Drift(name, _word(value), _word(effective[name]), confounds, text)


def _same_algorithm(asked: str, found: str) -> bool:
    name = F.algorithm_of({F.ALGORITHM: asked})
    other = F.algorithm_of({F.ALGORITHM: found})
    return name == other or name in _FORCED_ALGORITHM.get(other, ())


def _silent(args: ServerArgs, effective: Mapping[str, Any]) -> list[Drift]:
    """What a speculative server changed without being asked, known without its baseline."""
    if not F.algorithm_of(args.flags):
        return []
    found = []
    limit = effective.get("max-running-requests")
    if "max-running-requests" not in args.flags and limit == 48:
        text = "speculation limits running requests to 48; the baseline has no such limit"
        found.append(Drift("max-running-requests", "unset", "48", True, text))
    if effective.get("disable-overlap-schedule") and not args.flags.get(
        "disable-overlap-schedule"
    ):
        text = "speculation switched the overlap schedule off"
        found.append(Drift("disable-overlap-schedule", "unset", "true", True, text))
    if F.algorithm_of({F.ALGORITHM: effective.get(F.ALGORITHM) or ""}) == "":
        text = "the server runs without speculation although it was asked for"
        found.append(Drift(F.ALGORITHM, str(args.flags[F.ALGORITHM]), "off", False, text))
    return found


def same_value(asked: object, found: object) -> bool:
    """True when two spellings of a value are the same: 1 and 1.0, a tuple and a list, JSON."""
    if isinstance(asked, bool) or isinstance(found, bool):
        return bool(asked) is bool(found) and not isinstance(asked, str)
    if isinstance(asked, dict | list) and isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return False
    if isinstance(asked, dict) and isinstance(found, dict):
        return all(k in found and same_value(v, found[k]) for k, v in asked.items())
    if isinstance(asked, list) and isinstance(found, list):
        return [str(item) for item in asked] == [str(item) for item in found]
    if isinstance(asked, int | float) and isinstance(found, int | float):
        return asked == found
    return str(asked) == str(found) or _same_path(str(asked), str(found))


def _same_path(asked: str, found: str) -> bool:
    """A path the server resolved (a trailing slash, a snapshot of a model name)."""
    return asked.rstrip("/") == found.rstrip("/") and "/" in asked


def _word(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
