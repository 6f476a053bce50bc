"""Owns the canonical form of a server's flags: what SGLang resolves silently, done beforehand.

Each rewrite is a row of the rule table; `canonical` applies them until nothing changes. Knows
no search space and no process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.args import FlagValue, ServerArgs
from tuner.engines.sglang import flags as F
from tuner.engines.sglang.view import ServerView

Changes = Mapping[str, FlagValue | None]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A row of the rule table: flags that SGLang replaces without refusing them.

    Args:
        name: stable rule name.
        applies: what servers it is about, in words.
        text: the rule, for people.
        source: file and line of SGLang where it is, with the version read.
        changes: flags to set (None: remove); an empty mapping when the rule does not apply.
    """

    name: str
    applies: str
    text: str
    source: str
    changes: Callable[[ServerView], Changes]


def _off(view: ServerView) -> Changes:
    if view.algorithm:
        return {}
    return {name: None for name in view.args.flags if F.is_speculative_flag(name)}


def _alias(view: ServerView) -> Changes:
    return {F.ALGORITHM: view.algorithm} if view.algorithm else {}


def _chain(view: ServerView) -> Changes:
    if view.algorithm not in F.EAGLE_FAMILY or view.topk != 1 or view.steps is None:
        return {}
    return {F.DRAFT_TOKENS: view.steps + 1}


def _blocks(view: ServerView) -> Changes:
    if view.algorithm not in F.BLOCK_ALGORITHMS:
        return {}
    return {F.STEPS: None, F.TOPK: None}


def _dflash_block(view: ServerView) -> Changes:
    block = view.integer(F.DFLASH_BLOCK)
    if view.algorithm != "DFLASH" or block is None or view.draft_tokens not in (None, block):
        return {}
    return {F.DRAFT_TOKENS: block, F.DFLASH_BLOCK: None}


def _dspark_block(view: ServerView) -> Changes:
    block = view.integer(F.DSPARK_BLOCK)
    if view.algorithm != "DSPARK" or block is None or view.draft_tokens is not None:
        return {}
    return {F.DRAFT_TOKENS: block + 1}


def _ngram(view: ServerView) -> Changes:
    if view.algorithm != "NGRAM":
        return {}
    return {F.TOPK: None, F.STEPS: None, F.DRAFT_TOKENS: view.draft_tokens or 12}


def _ngram_only(view: ServerView) -> Changes:
    if view.algorithm == "NGRAM":
        return {F.DRAFT_PATH: None}
    return {n: None for n in view.args.flags if n.startswith("speculative-ngram-")}


def _mixed_chunk(view: ServerView) -> Changes:
    dropped = view.algorithm in {"STANDALONE", "NGRAM", "FROZEN_KV_MTP"}
    return {"enable-mixed-chunk": None} if dropped else {}


def adaptive_obstacle(view: ServerView) -> str:
    """Why SGLang would fall back to static parameters; "" when adaptive drafting works."""
    if view.algorithm not in {"EAGLE", "EAGLE3"}:
        return f"the algorithm must be EAGLE or EAGLE3, got {view.algorithm or 'off'}"
    if view.topk not in (None, 1):
        return f"topk must be 1, got {view.topk}"
    if view.attention_dp:
        return "attention must not be data-parallel"
    names = ("enable-multi-layer-eagle", "enable-two-batch-overlap", "enable-pdmux")
    found = [name for name in names if view.on(name)]
    return f"{found[0]} must be off" if found else ""


def _adaptive(view: ServerView) -> Changes:
    if not view.on("speculative-adaptive"):
        return {"speculative-adaptive-config": None}
    if adaptive_obstacle(view):
        return {"speculative-adaptive": None, "speculative-adaptive-config": None}
    return {F.TOPK: 1}


def _block_verification(view: ServerView) -> Changes:
    name = "speculative-use-block-verification"
    if view.algorithm in {"EAGLE", "EAGLE3"} and view.on(name):
        return {"speculative-use-rejection-sampling": True}
    return {}


def _token_map(view: ServerView) -> Changes:
    return {"speculative-token-map": None} if view.algorithm == "EAGLE3" else {}


def _defaults(view: ServerView) -> Changes:
    flags = view.args.flags
    return {
        name: None
        for name, value in F.SPECULATIVE_DEFAULTS.items()
        if name in flags and not isinstance(flags[name], bool) and flags[name] == value
    }


REWRITES: tuple[Rewrite, ...] = (
    Rewrite("off-has-no-draft", "speculation off (absent or NONE)",
            "Without an algorithm every other speculative flag means nothing and is left out.",
            "srt/arg_groups/speculative_hook.py:254 (0.5.23)", _off),
    Rewrite("algorithm-alias", "all",
            "Algorithm names are upper-cased; NEXTN (and MTP) is EAGLE.",
            "srt/arg_groups/speculative_hook.py:81-120 (0.5.23)", _alias),
    Rewrite("topk-1-is-a-chain", "EAGLE, EAGLE3, STANDALONE",
            "With topk 1 the number of draft tokens is steps + 1, whatever was asked for.",
            "srt/arg_groups/speculative_hook.py:1255-1266 (0.5.23)", _chain),
    Rewrite("block-drafts-have-one-step", "DFLASH, DSPARK",
            "Steps and topk are forced to 1; the block size alone says how much is drafted.",
            "srt/arg_groups/speculative_hook.py:330-372, 757-797 (0.5.23)", _blocks),
    Rewrite("dflash-block-is-draft-tokens", "DFLASH",
            "The block size is another name of the number of draft tokens.",
            "srt/arg_groups/speculative_hook.py:374-395 (0.5.23)", _dflash_block),
    Rewrite("dspark-block-plus-one", "DSPARK",
            "The number of draft tokens is the block size (gamma) + 1.",
            "srt/arg_groups/speculative_hook.py:826-840 (0.5.23)", _dspark_block),
    Rewrite("ngram-breadth-is-topk", "NGRAM",
            "topk is the breadth of the search, steps mean nothing, draft tokens default to 12.",
            "srt/arg_groups/speculative_hook.py:1309-1334 (0.5.23)", _ngram),
    Rewrite("ngram-flags-of-ngram", "all",
            "N-gram flags mean nothing to other algorithms; NGRAM has no draft model.",
            "srt/speculative/ngram_worker.py (0.5.23)", _ngram_only),
    Rewrite("mixed-chunk-off", "STANDALONE, NGRAM, FROZEN_KV_MTP",
            "Mixed chunked prefill is switched off by speculation.",
            "srt/arg_groups/speculative_hook.py:1104-1118, 1003-1011, 1304-1308 (0.5.23)",
            _mixed_chunk),
    Rewrite("adaptive-or-static", "EAGLE, EAGLE3",
            "Adaptive drafting is a chain (topk 1); where it cannot work it is silently static.",
            "srt/arg_groups/speculative_hook.py:1374-1428 (0.5.23)", _adaptive),
    Rewrite("block-verification-samples", "EAGLE, EAGLE3",
            "Block verification switches rejection sampling on.",
            "srt/arg_groups/speculative_hook.py:175-195 (0.5.23)", _block_verification),
    Rewrite("eagle3-has-no-token-map", "EAGLE3",
            "A token map is ignored: the draft checkpoint has its own vocabulary map.",
            "srt/speculative/eagle_worker_v2.py:325 (0.5.23)", _token_map),
    Rewrite("defaults-left-out", "all",
            "A speculative flag at its default is the same server without it.",
            "srt/arg_groups/fields/spec.py (0.5.23)", _defaults),
)  # fmt: skip
"""Order matters only in that `off-has-no-draft` comes first."""


def canonical(args: ServerArgs) -> ServerArgs:
    """The canonical form: spelled flags, false switches dropped, every rewrite applied.

    Idempotent, and total on any flags.
    """
    args = ServerArgs(_spelled(args.flags), dict(args.env))
    for _ in range(8):  # a rewrite may enable one other; eight rounds are never reached
        before = args
        for rule in REWRITES:
            changes = rule.changes(ServerView(args))
            args = args.replace(changes) if changes else args
        if args == before:
            break
    return args


def rewritten(args: ServerArgs) -> list[Rewrite]:
    """The rules that change or drop a value somebody asked for, in table order."""
    view = ServerView(ServerArgs(_spelled(args.flags), dict(args.env)))
    asked = view.args.flags
    return [
        rule
        for rule in REWRITES
        if rule.changes is not _defaults
        and any(name in asked and asked[name] != v for name, v in rule.changes(view).items())
    ]


def _spelled(flags: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
    spelled: dict[str, FlagValue] = {}
    for name, value in flags.items():
        key = F.spelled(name)
        empty_list = isinstance(value, list) and not value
        dropped = value is False and key not in F.NEGATABLE
        if value is not None and not empty_list and not dropped:
            spelled[key] = value
    return spelled
