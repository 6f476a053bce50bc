"""Owns what SGLang refuses about devices, parallelism and memory: more rule conditions.

As in `refusals`: a canonical server in, one line of what is wrong out, "" for nothing.
"""

from __future__ import annotations

from tuner.config.environment import is_nccl
from tuner.engines import nccl
from tuner.engines.sglang import flags as F
from tuner.engines.sglang.canonical import adaptive_obstacle
from tuner.engines.sglang.view import ServerView

BUILT_IN_CANDIDATES = frozenset({0, 1, 3, 5, 7})
"""Step counts of the adaptive schedule that is used without a file (0.5.23)."""


def device(view: ServerView) -> str:
    """Devices each algorithm runs on."""
    allowed = {
        "DFLASH": ("cuda", "npu", "xpu"),
        "DSPARK": ("cuda", "npu", "xpu"),
        "NGRAM": ("cuda", "cpu", "xpu"),
        "UNO": ("cuda",),
    }.get(view.algorithm)
    if allowed is None or view.device in {"", *allowed}:
        return ""
    return f"{view.algorithm} must run on {', '.join(allowed)}, got {view.device}"


def attention_dp(view: ServerView) -> str:
    """Data-parallel attention and speculation."""
    if not view.attention_dp or view.algorithm not in {"STANDALONE", "NGRAM", "DFLASH", "DSPARK"}:
        return ""
    if view.algorithm in F.BLOCK_ALGORITHMS:
        if view.on("enable-dp-lm-head"):
            return ""
        return f"{view.algorithm} with data-parallel attention must set enable-dp-lm-head"
    return f"{view.algorithm} must run without data-parallel attention"


def pipeline(view: ServerView) -> str:
    """Pipeline parallelism and speculation."""
    if not view.algorithm or (view.integer("pp-size", 1) or 1) <= 1:
        return ""
    if view.algorithm == "EAGLE" and not view.on("enable-multi-layer-eagle"):
        prefill = view.text("disaggregation-mode") == "prefill"
        if prefill or view.env_on("SGLANG_ENABLE_PP_SPEC"):
            return ""
        return "pp-size > 1 with EAGLE must run on a prefill node or with SGLANG_ENABLE_PP_SPEC=1"
    return f"pp-size must be 1 with {view.algorithm}, got {view.integer('pp-size')}"


def one_node(view: ServerView) -> str:
    """The tuner starts servers on one machine."""
    nodes = view.integer("nnodes", 1) or 1
    return "" if nodes == 1 else f"nnodes must be 1 while tuning, got {nodes}"


def chunk_of_pages(view: ServerView) -> str:
    """Chunked prefill works on whole pages."""
    chunk, page = view.integer("chunked-prefill-size"), view.page_size
    if chunk is None or chunk <= 0 or chunk % page == 0:
        return ""
    return f"chunked-prefill-size must be a multiple of page size {page}, got {chunk}"


def mamba_interval(view: ServerView) -> str:
    """State snapshots of hybrid models are at least a draft apart."""
    interval, draft = view.integer("mamba-track-interval"), view.draft_tokens
    if not view.algorithm or interval is None or draft is None or interval >= draft:
        return ""
    return f"mamba-track-interval must be >= the draft tokens {draft}, got {interval}"


def dflash_block(view: ServerView) -> str:
    """Block size and draft tokens of DFLASH are one number."""
    block = view.integer(F.DFLASH_BLOCK)
    if view.algorithm != "DFLASH" or block is None:
        return ""
    if block > 0 and view.draft_tokens in (None, block):
        return ""
    return f"{F.DFLASH_BLOCK} must equal {F.DRAFT_TOKENS}, got {block} and {view.draft_tokens}"


def dspark_block(view: ServerView) -> str:
    """DSPARK verifies gamma + 1 tokens."""
    block = view.integer(F.DSPARK_BLOCK)
    if view.algorithm != "DSPARK" or block is None:
        return ""
    if block > 0 and view.draft_tokens == block + 1:
        return ""
    return f"{F.DRAFT_TOKENS} must be {F.DSPARK_BLOCK} + 1 = {block + 1}, got {view.draft_tokens}"


def ngram_corpus(view: ServerView) -> str:
    """An external corpus needs a budget below the draft length."""
    if view.algorithm != "NGRAM" or not view.text("speculative-ngram-external-corpus-path"):
        return ""
    budget = view.integer("speculative-ngram-external-sam-budget", 0) or 0
    most = (view.draft_tokens or 12) - 1
    if 1 <= budget <= most:
        return ""
    return f"speculative-ngram-external-sam-budget must be from 1 to {most}, got {budget}"


def ngram_breadth(view: ServerView) -> str:
    """The narrowest breadth is at most the widest."""
    low = view.integer("speculative-ngram-min-bfs-breadth", 1) or 1
    if view.algorithm != "NGRAM" or view.topk is None or low <= view.topk:
        return ""
    return f"speculative-ngram-min-bfs-breadth must be <= {view.topk}, got {low}"


def adaptive_steps(view: ServerView) -> str:
    """The starting step count is one of the schedule's (known without a file only)."""
    if not view.on("speculative-adaptive") or adaptive_obstacle(view):
        return ""
    if view.text("speculative-adaptive-config") or view.steps in (None, *BUILT_IN_CANDIDATES):
        return ""
    names = ", ".join(str(n) for n in sorted(BUILT_IN_CANDIDATES))
    return f"{F.STEPS} must be one of the adaptive candidates {names}, got {view.steps}"


def nccl_needs_ranks(view: ServerView) -> str:
    """NCCL is not used by one process."""
    names = [name for name, value in view.args.env.items() if is_nccl(name) and value]
    if not names or view.ranks > 1:
        return ""
    return f"{', '.join(sorted(names))} must not be set for one GPU: there is nothing to reduce"


def nccl_values(view: ServerView) -> str:
    """NCCL variables hold values of their type."""
    problems = (nccl.check_value(n, v) for n, v in sorted(view.args.env.items()) if v is not None)
    return next((p for p in problems if p), "")


def nccl_deterministic(view: ServerView) -> str:
    """Deterministic inference overwrites the algorithm and the channels."""
    if not view.on("enable-deterministic-inference") or (view.integer("tp-size", 1) or 1) <= 1:
        return ""
    names = ("NCCL_ALGO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
    found = [name for name in names if view.args.env.get(name)]
    return f"enable-deterministic-inference overwrites {', '.join(found)}" if found else ""
