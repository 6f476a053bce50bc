"""Owns the rules of vLLM's speculative configuration, each with its source (vLLM 0.32).

The installed version's own parser has the last word (see `discovery`); these rules say the same
without an import that takes seconds, for every version, and with a hint.
"""

from __future__ import annotations

import difflib
from typing import Any

from tuner.engines.vllm.arguments import SPECULATIVE
from tuner.engines.vllm.case import Case, Rule, vocabulary
from tuner.engines.vllm.schedule import SCHEDULE, schedule_problem
from tuner.engines.vllm.speculation import (
    KEEPS_ASYNC,
    LOOKUP,
    NEEDS_MODEL,
    draft_tokens,
)

_CONFIG = "vllm/config/speculative.py"


def _is_mapping(case: Case) -> str:
    value = case.args.flags.get(SPECULATIVE, {})
    return "" if isinstance(value, dict) else f"{SPECULATIVE} must be a JSON object, got {value!r}"


def _method_known(case: Case) -> str:
    methods = case.known("methods")
    if methods is None or not case.method or case.method in methods:
        return ""
    return f"method must be one of {', '.join(sorted(methods))}, got {case.method!r}"


def _fields_known(case: Case) -> str:
    fields = case.known("fields")
    for key in case.spec if fields is not None else ():
        if key not in (fields or ()):
            near = difflib.get_close_matches(key, fields or (), 1)
            return f"{key!r} is no field of the installed vLLM" + (
                f", did you mean {near[0]!r}?" if near else ""
            )
    return ""


def _target_is_plain(case: Case) -> str:
    if not {"speculators_config", "speculators_model_type"} & case.facts.target_config.keys():
        return ""
    return "model must be a plain target: vLLM speculates with a speculators checkpoint unasked"


def _no_target_tp(case: Case) -> str:
    if "tensor_parallel_size" in case.spec:
        return "tensor_parallel_size is refused here"
    return ""


def _tokens_given(case: Case) -> str:
    has_own = any(key in case.facts.draft_config for key in ("n_predict", "speculators_config"))
    needs = LOOKUP | NEEDS_MODEL - {"medusa", "mlp_speculator", "dflash"}
    if case.method in needs and "num_speculative_tokens" not in case.spec and not has_own:
        return f"num_speculative_tokens must be given for {case.method}"
    return ""


def _tokens_positive(case: Case) -> str:
    given = case.spec.get("num_speculative_tokens", 1)
    tokens = draft_tokens(case.spec) if "num_speculative_tokens" in case.spec else 1
    if tokens is None or tokens < 1:
        return f"num_speculative_tokens must be an integer of at least 1, got {given!r}"
    return ""


def _needs_model(case: Case) -> str:
    if case.method in NEEDS_MODEL and not case.spec.get("model"):
        return f"{case.method} must have a draft model"
    return ""


def _lookup_window(case: Case) -> str:
    if case.method not in LOOKUP:
        return ""
    low, high = case.spec.get("prompt_lookup_min"), case.spec.get("prompt_lookup_max")
    if not isinstance(low, int) or not isinstance(high, int) or not 1 <= low <= high:
        return f"1 <= prompt_lookup_min <= prompt_lookup_max must hold, got {low} and {high}"
    return ""


def _draft_tp(case: Case) -> str:
    draft, target = case.spec.get("draft_tensor_parallel_size"), case.size("tensor-parallel-size")
    if draft is None or draft in (1, target):
        return ""
    return f"draft_tensor_parallel_size must be 1 or {target} (the target's), got {draft}"


def _same_vocabulary(case: Case) -> str:
    if case.method != "draft_model" or case.spec.get("use_heterogeneous_vocab"):
        return ""
    target, draft = vocabulary(case.facts.target_config), vocabulary(case.facts.draft_config)
    if target is None or draft is None or target == draft:
        return ""
    return f"draft and target must have one vocabulary size, got {draft} and {target}"


def _mixed_vocabulary_greedy(case: Case) -> str:
    if not case.spec.get("use_heterogeneous_vocab"):
        return ""
    sampling = case.spec.get("draft_sample_method", "greedy")
    return "" if sampling == "greedy" else f"draft_sample_method must be greedy, got {sampling!r}"


def _draft_length(case: Case) -> str:
    draft, target = case.spec.get("max_model_len"), case.args.flags.get("max-model-len")
    if not isinstance(draft, int) or not isinstance(target, int) or draft <= target:
        return ""
    return f"the draft's max_model_len must not exceed the target's {target}, got {draft}"


def _divisible(case: Case) -> str:
    layers = case.facts.target_config.get("num_nextn_predict_layers")
    of_deepseek = case.facts.target_config.get("model_type") in ("deepseek_v3", "deepseek_v32")
    tokens = draft_tokens(case.spec)
    if case.method != "mtp" or not of_deepseek or not isinstance(layers, int) or not tokens:
        return ""
    if layers < 1 or tokens <= layers or tokens % layers == 0:
        return ""
    return f"num_speculative_tokens must be a multiple of the {layers} MTP layers, got {tokens}"


def _schedule_form(case: Case) -> str:
    if SCHEDULE not in case.spec:
        return ""
    problem = schedule_problem(case.spec[SCHEDULE])
    return f"{SCHEDULE}: {problem}" if problem else ""


def _schedule_limit(case: Case) -> str:
    if SCHEDULE in case.spec and draft_tokens(case.spec) is None:
        return f"{SCHEDULE} must come with num_speculative_tokens, its upper limit"
    return ""


def _schedule_without_dp(case: Case) -> str:
    replicas = case.size("data-parallel-size")
    if SCHEDULE in case.spec and replicas > 1:
        return f"{SCHEDULE} must not be used with data-parallel-size {replicas}"
    return ""


def _suffix_installed(case: Case) -> str:
    if case.method == "suffix" and case.facts.values.get("has_arctic_inference") is False:
        return "suffix decoding must have the package arctic-inference beside vLLM"
    return ""


def _suffix_ranges(case: Case) -> str:
    ranges: dict[str, tuple[float, float]] = {
        "suffix_decoding_max_tree_depth": (1, float("inf")),
        "suffix_decoding_max_cached_requests": (0, float("inf")),
        "suffix_decoding_max_spec_factor": (0, float("inf")),
        "suffix_decoding_min_token_prob": (0, 1),
    }
    for key, (low, high) in ranges.items():
        value = case.spec.get(key, low)
        if not isinstance(value, int | float) or not low <= value <= high:
            return f"{key} must be in [{low}, {high}], got {value!r}"
    return ""


def _async_scheduling(case: Case) -> str:
    if case.args.flags.get("async-scheduling") is not True or not case.method:
        return ""
    if case.method not in KEEPS_ASYNC:
        return f"async-scheduling must not be asked for with {case.method}"
    if case.spec.get("disable_padded_drafter_batch"):
        return "async-scheduling must not be asked for with disable_padded_drafter_batch"
    return ""


def _synthetic(case: Case) -> str:
    rates = case.spec.get("synthetic_acceptance_rates")
    length = case.spec.get("synthetic_acceptance_length")
    if case.spec.get("rejection_sample_method") != "synthetic":
        if rates is None and length is None:
            return ""
        return "synthetic_acceptance_* must come with rejection_sample_method synthetic"
    if (rates is None) == (length is None):
        return "exactly one of synthetic_acceptance_rates and _length must be given"
    return _synthetic_values(rates, length, draft_tokens(case.spec) or 0)


def _synthetic_values(rates: Any, length: Any, tokens: int) -> str:
    if rates is None:
        if isinstance(length, int | float) and 1 <= length <= tokens + 1:
            return ""
        return f"synthetic_acceptance_length must be in [1, {tokens + 1}], got {length!r}"
    numbers = isinstance(rates, list) and all(isinstance(r, int | float) for r in rates)
    if numbers and len(rates) == tokens and sorted(rates, reverse=True) == rates:
        return "" if all(0 <= r <= 1 for r in rates) else f"rates must be in [0, 1], got {rates}"
    return f"rates must be {tokens} numbers that never rise, got {rates!r}"


SPEC_RULES = (
    Rule("speculative-config", "`speculative-config` is one JSON object.",
         "vllm/engine/arg_utils.py", _is_mapping, "Write it as a mapping, not as text."),
    Rule("method-known", "The method is one that the installed vLLM lists.", _CONFIG,
         _method_known, "Use a listed method, or upgrade vLLM."),
    Rule("field-known", "Every field is one of the installed vLLM's `SpeculativeConfig`.",
         _CONFIG, _fields_known, "Correct or remove the field."),
    Rule("target-is-plain", "The model is no speculators checkpoint, or nothing were a baseline.",
         "vllm/transformers_utils/config.py", _target_is_plain,
         "Set engine.model to its verifier and engine.draft_model to it."),
    Rule("draft-tp-name", "The draft's size is `draft_tensor_parallel_size`.", _CONFIG,
         _no_target_tp, "Rename it to draft_tensor_parallel_size."),
    Rule("draft-tokens-given", "`num_speculative_tokens` is given unless the draft names its own.",
         _CONFIG, _tokens_given, "Add num_speculative_tokens."),
    Rule("draft-tokens-positive", "`num_speculative_tokens` is at least 1.", _CONFIG,
         _tokens_positive, "Use method off instead of 0 tokens."),
    Rule("needs-model", "EAGLE, draft-model, Medusa and MLP methods have a draft model.", _CONFIG,
         _needs_model, "Set engine.draft_model."),
    Rule("lookup-window", "1 <= `prompt_lookup_min` <= `prompt_lookup_max`.", _CONFIG,
         _lookup_window, "Add the constraint lookup_min <= lookup_max to the space."),
    Rule("draft-tp", "The draft's tensor parallel size is 1 or the target's.", _CONFIG, _draft_tp,
         "Use 1 or leave it out."),
    Rule("same-vocabulary", "Draft model and target have one vocabulary size.", _CONFIG,
         _same_vocabulary, "Use a draft of the same family, or use_heterogeneous_vocab."),
    Rule("mixed-vocabulary-greedy", "`use_heterogeneous_vocab` drafts greedily.", _CONFIG,
         _mixed_vocabulary_greedy, "Remove draft_sample_method."),
    Rule("draft-length", "The draft's `max_model_len` is at most the target's.", _CONFIG,
         _draft_length, "Remove max_model_len from speculative-config."),
    Rule("mtp-divisible", "MTP depth beyond the model's layers is a multiple of them.", _CONFIG,
         _divisible, "Use a multiple of the MTP layers."),
    Rule("schedule-form", "The per-batch-size table starts at 1 and its ranges do not overlap.",
         "vllm/v1/spec_decode/dynamic/utils.py", _schedule_form, "Correct the table."),
    Rule("schedule-limit", "The table comes with `num_speculative_tokens`.", _CONFIG,
         _schedule_limit, "Add the table's largest value."),
    Rule("schedule-without-dp", "The table is not used with data parallelism (vLLM drops it).",
         "vllm/config/vllm.py", _schedule_without_dp, "Use one depth, or data-parallel-size 1."),
    Rule("suffix-installed", "Suffix decoding has arctic-inference installed.", _CONFIG,
         _suffix_installed, "Install arctic-inference into vLLM's environment."),
    Rule("suffix-ranges", "Suffix settings are within their ranges.", _CONFIG, _suffix_ranges,
         "Correct the value."),
    Rule("async-scheduling", "Asynchronous scheduling is not forced on a method that lacks it.",
         "vllm/config/vllm.py", _async_scheduling, "Leave async-scheduling out."),
    Rule("synthetic", "Synthetic acceptance is complete and only with its rejection method.",
         _CONFIG, _synthetic, "Correct the synthetic settings."),
)  # fmt: skip
"""Every rule of the speculative configuration, in the order they are reported."""
