"""Owns the rules that llama-server arguments must keep before they are worth a launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches

from tuner.args import FlagValue, ServerArgs
from tuner.engines.base import EngineFacts, Violation
from tuner.engines.llamacpp import flags as known
from tuner.engines.llamacpp.canonical import speculative_types

Flags = Mapping[str, FlagValue]
_NGRAM_CACHE_DRAFT = 8  # fixed in the engine: no flag sets it


def violations(args: ServerArgs, facts: EngineFacts) -> list[Violation]:
    """Every broken rule, for canonical arguments."""
    found = [*_unknown_flags(args.flags, facts), *_environment(args)]
    for rule in RULES:
        found += rule(args.flags)
    return found


def _unknown_flags(flags: Flags, facts: EngineFacts) -> Iterator[Violation]:
    removed: Mapping[str, str] = facts.values.get("removed", {})
    for name in flags:
        if name in removed or (name in known.RENAMED and not _is_known(name, facts)):
            hint = removed.get(name) or f"use --{known.RENAMED.get(name, '')}"
            yield Violation(
                "unknown flag", f"--{name} was removed from llama-server", _sentence(hint)
            )
        elif facts.flags is not None and not _is_known(name, facts):
            yield Violation(
                "unknown flag",
                f"--{name} is not known to this build ({facts.version or 'unknown version'})",
                _near(name, facts.flags),
            )
    yield from _unknown_types(flags, facts)
    yield from _other_defaults(flags, facts)


def _is_known(name: str, facts: EngineFacts) -> bool:
    return facts.flags is not None and name in facts.flags


def _near(name: str, names: frozenset[str]) -> str:
    for old, new in known.RENAMED.items():
        if name in new.replace(" or ", " ").split() and old in names:
            return f"Use --{old}, the name before it was renamed, or a newer build."
    close = get_close_matches(name, sorted(n for n in names if len(n) > 2), n=1)
    return f"Did you mean --{close[0]}?" if close else "Remove it."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text and not text.endswith(".") else text


def _unknown_types(flags: Flags, facts: EngineFacts) -> Iterator[Violation]:
    accepted = facts.values.get("spec_types") or list(known.METHODS)
    for method in speculative_types(flags.get("spec-type", "")):
        if method not in accepted:
            yield Violation(
                "speculative type",
                f"spec-type must be one of {', '.join(accepted)}, got {method}",
            )


def _other_defaults(flags: Flags, facts: EngineFacts) -> Iterator[Violation]:
    """Left-out flags whose default in this build is not the one that was left out."""
    defaults: Mapping[str, str] = facts.values.get("defaults", {})
    for method in speculative_types(flags.get("spec-type", "")):
        for name in sorted(known.METHOD_FLAGS.get(method, ())):
            expected, built_in = known.DEFAULTS.get(name), defaults.get(name)
            if name not in flags and built_in and _differs(expected, built_in):
                yield Violation(
                    "default changed",
                    f"--{name} is {built_in} in this build when left out, {expected} is meant",
                    f"Leave {expected} out of the space or use another build.",
                )


def _differs(expected: object, built_in: str) -> bool:
    if isinstance(expected, int | float):
        try:
            return not math.isclose(float(built_in), expected, abs_tol=1e-9)
        except ValueError:
            return False
    return isinstance(expected, str) and expected != built_in


def _environment(args: ServerArgs) -> Iterator[Violation]:
    for name in sorted(args.env):
        if args.env[name] is not None and name in known.SPECULATIVE_ENV:
            yield Violation(
                "environment",
                f"{name} must not be set: the baseline would draft too",
                "Use the flag instead.",
            )


def _draft_model(flags: Flags) -> Iterator[Violation]:
    needing = [m for m in speculative_types(flags.get("spec-type", "")) if
               m in known.NEEDS_DRAFT_MODEL]  # fmt: skip
    if needing and not flags.get("spec-draft-model") and not flags.get("spec-draft-hf"):
        yield Violation(
            "draft model",
            f"{needing[0]} needs a draft model, got none: the server would start and never draft",
            "Set engine.draft_model.",
        )


def _ordered(low: str, high: str) -> Callable[[Flags], Iterator[Violation]]:
    def rule(flags: Flags) -> Iterator[Violation]:
        if low not in flags and high not in flags:
            return
        first, second = _effective(flags, low), _effective(flags, high)
        if first is not None and second is not None and first > second:
            yield Violation(
                "order", f"{low} <= {high} must hold, got {first:g} > {second:g}", f"Lower {low}."
            )

    return rule


def _effective(flags: Flags, name: str) -> float | None:
    value = flags.get(name, known.DEFAULTS.get(name))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, int | float) else None


def _ranges(flags: Flags) -> Iterator[Violation]:
    for name, value in flags.items():
        low, high = _RANGES.get(name, _any_range(name))
        if low is None:
            continue
        if isinstance(value, bool | str) or not isinstance(value, int | float):
            kind = "an integer" if name in known.INTEGERS else "a number"
            yield Violation("value", f"{name} must be {kind}, got {value!r}")
        elif not low <= value <= high:
            yield Violation("value", f"{name} must be in {low:g} to {high:g}, got {value:g}")


def _any_range(name: str) -> tuple[float | None, float]:
    if name.startswith("spec-ngram-"):
        return (0 if name.endswith("n-min") else 1), 65535
    if name in known.INTEGERS or name in known.NUMBERS:
        return -math.inf, math.inf
    return None, 0


_RANGES: dict[str, tuple[float | None, float]] = {
    # 0 aborts the server at the first request (build 11549)
    "spec-draft-n-max": (1, 65535),
    "spec-draft-n-min": (0, 65535),
    "spec-draft-p-min": (0, 1),
    "spec-draft-p-split": (0, 1),
    "parallel": (-1, 65535),
}


def _synthetic(flags: Flags) -> Iterator[Violation]:
    if "spec-synth-len" in flags and "spec-synth-rates" in flags:
        yield Violation("synthetic", "spec-synth-len and spec-synth-rates exclude each other")
    limit = longest_draft(flags)
    length = flags.get("spec-synth-len")
    if isinstance(length, int | float) and limit and not 1 <= length <= limit + 1:
        yield Violation("synthetic", f"spec-synth-len must be in 1 to {limit + 1}, got {length:g}")
    if "spec-synth-rates" in flags:
        yield from _synthetic_rates(str(flags["spec-synth-rates"]), limit)


def _synthetic_rates(text: str, limit: int | None) -> Iterator[Violation]:
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        yield Violation("synthetic", f"spec-synth-rates must be numbers, got {text!r}")
        return
    if limit is not None and len(rates) != limit:
        yield Violation(
            "synthetic", f"spec-synth-rates must hold {limit} values, got {len(rates)}"
        )
    if not all(0 <= rate <= 1 for rate in rates) or rates != sorted(rates, reverse=True):
        yield Violation("synthetic", f"spec-synth-rates must fall within [0, 1], got {text}")


def longest_draft(flags: Flags) -> int | None:
    """The most tokens a verification step can carry; None when a type is not known."""
    limits: list[int] = []
    for method in speculative_types(flags.get("spec-type", "")):
        name = _LONGEST.get(method, "spec-draft-n-max")
        known_limit = float(_NGRAM_CACHE_DRAFT) if not name else _effective(flags, name)
        if known_limit is None or method not in known.METHOD_FLAGS:
            return None
        limits.append(int(known_limit))
    return max(limits, default=None)


_LONGEST = {
    "ngram-simple": "spec-ngram-simple-size-m",
    "ngram-map-k": "spec-ngram-map-k-size-m",
    "ngram-map-k4v": "spec-ngram-map-k4v-size-m",
    "ngram-mod": "spec-ngram-mod-n-max",
    "ngram-cache": "",
}


def _api_key(flags: Flags) -> Iterator[Violation]:
    if "api-key" in flags or "api-key-file" in flags:
        yield Violation(
            "api key",
            "api-key must not be set: the server would refuse the tuner's requests",
            "Add it when you deploy.",
        )


RULES: tuple[Callable[[Flags], Iterator[Violation]], ...] = (
    _draft_model,
    _ordered("spec-draft-n-min", "spec-draft-n-max"),
    _ordered("spec-ngram-mod-n-min", "spec-ngram-mod-n-max"),
    _ranges,
    _synthetic,
    _api_key,
)
