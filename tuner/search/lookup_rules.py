"""Owns which rule a lookup server follows: from its method and flags to a rule that can be played.

What an engine fills in for a flag that is not given is filled in here too. A method that is not
known, or depends on what cannot be known before launching, has no rule: it is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.model.lookup import LookupRule, Rule
from tuner.model.lookup_tables import MapRule, ModRule, SimpleRule
from tuner.model.lookup_trees import SuffixRule, TrieRule
from tuner.search.model_servers import Roles, number

Flags = Mapping[str, object]


def rule_of(roles: Roles) -> Rule | None:
    """The rule a server's lookup follows; None where none is known."""
    make = RULES.get(roles.method) if roles.is_lookup else None
    return make(roles.flags) if make else None


def slots_of(roles: Roles) -> int:
    """Slots of a server that its arguments name; 1 where they do not."""
    return max(1, int(number(roles.flags.get("parallel", 1))))


def _value(flags: Flags, name: str, default: float) -> float:
    """A flag by the end of its name."""
    known = (value for flag, value in flags.items() if flag.endswith(name))
    return number(next(known, default))


def _simple(flags: Flags) -> Rule:
    match = _value(flags, "size-n", 12)
    return SimpleRule(int(match), int(_value(flags, "size-m", 48)))


def _map(flags: Flags) -> Rule:
    match = _value(flags, "size-n", 12)
    return MapRule(int(match), int(_value(flags, "size-m", 48)))


def _mod(flags: Flags) -> Rule:
    match, depth = _value(flags, "n-match", 24), _value(flags, "n-max", 64)
    return ModRule(int(match), int(depth), int(_value(flags, "n-min", 48)))


def _prompt_lookup(flags: Flags) -> Rule | None:
    """The longest match wins, and of equally long ones the first."""
    depth = int(_value(flags, "num-speculative-tokens", 0))
    least = _value(flags, "prompt-lookup-min", 0)
    most = _value(flags, "prompt-lookup-max", 0) or least or 5
    if not depth:
        return None
    return LookupRule(int(most), depth, least=int(least or most), is_latest=False)


def _suffix(flags: Flags) -> Rule:
    tree = int(_value(flags, "suffix-decoding-max-tree-depth", 24))
    return SuffixRule(
        int(_value(flags, "num-speculative-tokens", tree)),
        tree,
        _value(flags, "suffix-decoding-max-spec-factor", 1.0),
        _value(flags, "suffix-decoding-min-token-prob", 0.1),
        remembers=_value(flags, "suffix-decoding-max-cached-requests", 10_000) > 0,
    )


def _trie(flags: Flags) -> Rule | None:
    if any(flag.endswith("ngram-external-corpus-path") for flag in flags):
        return None  # what the corpus holds is not known here
    return TrieRule(
        int(_value(flags, "num-draft-tokens", 12)),
        int(_value(flags, "ngram-max-trie-depth", 18)),
        int(_value(flags, "ngram-min-bfs-breadth", 1)),
        int(_value(flags, "ngram-max-bfs-breadth", 10)),
        by_chance=any(value == "PROB" for value in flags.values()),
    )


RULES: Mapping[str, Callable[[Flags], Rule | None]] = {
    "ngram-simple": _simple,
    "ngram-map-k": _map,
    "ngram-mod": _mod,
    "ngram": _prompt_lookup,
    "ngram_gpu": _prompt_lookup,
    "suffix": _suffix,
    "NGRAM": _trie,
}
"""By method, as each engine names it."""
