"""Owns the canonical form of vLLM's `--speculative-config`; knows no other flag and no process.

Fields are those of `vllm/config/speculative.py` (0.11 to 0.32). A field that is not named here
is passed on untouched, so newer versions work; a field that vLLM ignores for the chosen method
is dropped, so that points that differ only in it are one server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuner.engines.base import DraftSource
from tuner.engines.vllm.schedule import (
    SCHEDULE,
    Speculation,
    normalize_schedule,
    read_schedule,
)

OFF = (None, False, "", "off", "none", "None", "unset")
"""Values of `method` that mean no speculation; YAML reads a bare `off` as False."""

LOOKUP = frozenset({"ngram", "ngram_gpu"})
NEEDS_MODEL = frozenset({"eagle", "eagle3", "draft_model", "medusa", "mlp_speculator", "dflash"})
MAY_HAVE_MODEL = frozenset({"mtp", "dspark", "custom_class"})
KEEPS_ASYNC = frozenset(
    {"eagle", "eagle3", "mtp", "dflash", "dspark", "extract_hidden_states", "draft_model"}
    | {"ngram_gpu"}
)
"""Methods that keep asynchronous scheduling; any other turns it off (config/vllm.py, 0.32)."""

_WHOLE_KEYS = frozenset(
    {"num_speculative_tokens", "max_model_len", "draft_tensor_parallel_size", "prompt_lookup_max"}
    | {"prompt_lookup_min"}
)
_JSON_KEYS = frozenset({SCHEDULE, "synthetic_acceptance_rates", "draft_load_config"})
_LOOKUP_KEYS = frozenset({"prompt_lookup_min", "prompt_lookup_max"})
_SUFFIX_DEFAULTS: dict[str, Any] = {
    "suffix_decoding_max_tree_depth": 24,
    "suffix_decoding_max_cached_requests": 10000,
    "suffix_decoding_max_spec_factor": 1.0,
    "suffix_decoding_min_token_prob": 0.1,
}
_MODEL_KEYS = frozenset(
    {
        "model", "draft_tensor_parallel_size", "quantization", "moe_backend", "attention_backend",
        "kv_cache_dtype", "max_model_len", "revision", "code_revision", "draft_load_config",
        "parallel_drafting", "draft_sample_method", "disable_padded_drafter_batch",
        "disable_eagle_block_drop", "use_local_argmax_reduction", "use_heterogeneous_vocab",
        "enforce_eager", "index_share_for_mtp_iteration", "enable_adaptive_verification",
        "dspark_draft_topk",
    }
)  # fmt: skip
_ONLY_FOR = {
    "use_heterogeneous_vocab": frozenset({"draft_model"}),
    "dspark_draft_topk": frozenset({"dspark"}),
    "index_share_for_mtp_iteration": frozenset({"mtp"}),
    "disable_eagle_block_drop": frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark"}),
}
_DEFAULTS = {"rejection_sample_method": "standard", **_SUFFIX_DEFAULTS}


def read_speculation(value: object) -> Speculation | None:
    """The mapping that a `speculative-config` value holds (JSON text allowed); None: no mapping.

    Keys come out with underscores, as vLLM itself reads them.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return None
    if not isinstance(value, Mapping):
        return None
    return {str(key).replace("-", "_"): item for key, item in value.items()}


def canonical_speculation(
    given: Mapping[str, Any], *, draft_model: str | None, tensor_parallel: int
) -> Speculation | None:
    """The canonical mapping of `given`; None: the server does not speculate.

    Args:
        given: fields as written, points of a space applied.
        draft_model: the study's draft model, for methods that need one.
        tensor_parallel: the target's tensor parallel size; a draft's equal one is dropped.
    """
    spec = {key: _value(key, value) for key, value in given.items() if value != "unset"}
    if _is_off(spec):
        return None
    method = method_of(spec, draft_model)
    spec["method"] = method
    if method in NEEDS_MODEL or (method in MAY_HAVE_MODEL and draft_model):
        spec.setdefault("model", draft_model)
    spec = {k: v for k, v in spec.items() if v is not None and _applies(k, method)}
    _fill(spec, method)
    return _without_defaults(spec, method, tensor_parallel)


def method_of(spec: Mapping[str, Any], draft_model: str | None = None) -> str:
    """The method vLLM would use: aliases resolved, a missing one inferred as vLLM infers it."""
    method = spec.get("method")
    if method not in OFF:
        name = str(method).strip("[]")
        return "mtp" if name.endswith("_mtp") else name
    model = str(spec.get("model") or draft_model or "").lower()
    if model.strip("[]") == "ngram":
        return "ngram"
    marks = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
    return next((name for mark, name in marks if mark in model), "draft_model")


def draft_tokens(spec: Mapping[str, Any]) -> int | None:
    """How many tokens are drafted per step at most; None: the draft model's own default."""
    tokens = spec.get("num_speculative_tokens")
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None


def source_of(spec: Mapping[str, Any]) -> DraftSource:
    """Who proposes: n-gram and suffix look up, everything else is a model."""
    return "lookup" if spec.get("method") in LOOKUP | {"suffix"} else "model"


def is_synthetic(spec: Mapping[str, Any]) -> bool:
    """True when vLLM is told what to accept."""
    return spec.get("rejection_sample_method") == "synthetic" or any(
        spec.get(key) is not None
        for key in ("synthetic_acceptance_rates", "synthetic_acceptance_length")
    )


def is_lossy(spec: Mapping[str, Any]) -> bool:
    """True when accepted tokens may differ from what the target alone would sample.

    `standard`, `strict` and `block` rejection keep the target's tokens or distribution.
    `probabilistic` settings keep it only up to numerics, typical acceptance not at all.
    """
    rejection = spec.get("rejection_sample_method", "standard")
    return (
        is_synthetic(spec)
        or rejection not in ("standard", "strict", "block")
        or spec.get("draft_sample_method") == "probabilistic"
        or spec.get("acceptance_method") == "typical_acceptance_sampler"
    )


def _is_off(spec: Mapping[str, Any]) -> bool:
    if "method" in spec:
        return spec["method"] in OFF or draft_tokens(spec) == 0
    return not spec.get("model") or draft_tokens(spec) == 0


def _value(key: str, value: Any) -> Any:
    if key == SCHEDULE:
        return read_schedule(value)
    if key in _WHOLE_KEYS and isinstance(value, str) and value.isdecimal():
        return int(value)  # vLLM takes "65536" for 65536
    if key in _JSON_KEYS and isinstance(value, str):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def _applies(key: str, method: str) -> bool:
    if key in _ONLY_FOR:
        return method in _ONLY_FOR[key]
    if key in _LOOKUP_KEYS:
        return method in LOOKUP
    if key in _SUFFIX_DEFAULTS:
        return method == "suffix"
    return key not in _MODEL_KEYS or method not in LOOKUP | {"suffix"}


def _fill(spec: Speculation, method: str) -> None:
    """Write out what vLLM would fill in, where the same server can be written in two ways."""
    if method in LOOKUP:
        low, high = spec.get("prompt_lookup_min"), spec.get("prompt_lookup_max")
        # 5 and 5 when neither is given, else the other one (vLLM 0.9 to 0.32).
        spec["prompt_lookup_min"] = low if low is not None else high if high is not None else 5
        spec["prompt_lookup_max"] = high if high is not None else spec["prompt_lookup_min"]
    if method == "suffix":
        depth = spec.get("suffix_decoding_max_tree_depth", 24)
        spec.setdefault("num_speculative_tokens", depth)
    if SCHEDULE in spec:
        spec[SCHEDULE] = normalize_schedule(spec[SCHEDULE], draft_tokens(spec))


def _without_defaults(spec: Speculation, method: str, tensor_parallel: int) -> Speculation:
    default_tp = 1 if method == "mlp_speculator" else tensor_parallel
    defaults = {**_DEFAULTS, "draft_tensor_parallel_size": default_tp}
    if tensor_parallel == 1:  # nothing to reduce over one GPU
        defaults["use_local_argmax_reduction"] = True
    return {
        key: value
        for key, value in sorted(spec.items())
        if value is not False and not (key in defaults and value == defaults[key])
    }
