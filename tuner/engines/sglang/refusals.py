"""Owns what SGLang refuses, or accepts and then dies of: the conditions behind the rule table.

Each function takes a server in canonical form and returns what is wrong in one line, or "".
Texts name the flag, what must hold and what was got.
"""

from __future__ import annotations

from tuner.engines.sglang import flags as F
from tuner.engines.sglang.view import ServerView

DRAFT_DECODE_BACKENDS = frozenset({
    "flashinfer", "triton", "intel_amx", "intel_xpu", "aiter", "fa3", "fa4",
    "hybrid_linear_attn", "flashmla", "trtllm_mha", "trtllm_mla", "cutedsl_mla", "dsa", "nsa",
    "ascend", "dsv4",
})  # fmt: skip
CHAIN_ONLY_BACKENDS = frozenset({"trtllm_mha", "flashmla", "trtllm_mla", "cutedsl_mla"})
PAGED_TREE_BACKENDS = frozenset({"flashinfer", "fa3", "triton"})
BUNDLED_DRAFT = frozenset({
    "DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM",
    "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM",
    "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "BailingMoeV2_5ForCausalLM",
    "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration", "HYV3ForCausalLM",
    "HYV4ForCausalLM", "Qwen4ExpForConditionalGeneration",
})  # fmt: skip
"""Targets whose own checkpoint holds the draft (speculative_hook.py:1121-1140, 0.5.23)."""
GEMMA_DRAFTS = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})


def unknown_algorithm(view: ServerView) -> str:
    """The algorithm exists."""
    if not view.algorithm or view.algorithm in F.ALGORITHMS:
        return ""
    return f"{F.ALGORITHM} must be one of {', '.join(sorted(F.ALGORITHMS))}, got {view.algorithm}"


def tree_capacity(view: ServerView) -> str:
    """draft - 1 <= topk + (steps - 1) * topk ** 2: what the draft tree can hold."""
    steps, topk, draft = view.steps, view.topk, view.draft_tokens
    if view.algorithm not in F.TREE_ALGORITHMS or None in (steps, topk, draft):
        return ""
    assert steps is not None
    assert topk is not None
    assert draft is not None
    capacity = 1 + topk + (steps - 1) * topk**2
    if topk < 1 or steps < 1 or draft <= capacity:
        return ""
    return f"draft {draft} > {capacity} for steps={steps} topk={topk}"


def at_least_one(view: ServerView) -> str:
    """Steps, topk and draft tokens are in the range of the tree kernel."""
    if not view.algorithm or view.algorithm == "UNO":
        return ""
    limits = ((F.STEPS, view.integer(F.STEPS), 1), (F.TOPK, view.integer(F.TOPK), 1),
              (F.DRAFT_TOKENS, view.draft_tokens, 2))  # fmt: skip
    for name, value, low in limits:
        if value is not None and not low <= value <= 1024:
            return f"{name} must be from {low} to 1024, got {value}"
    return ""


def all_three_or_none(view: ServerView) -> str:
    """Steps, topk and draft tokens are given together or not at all."""
    if view.algorithm not in F.TREE_ALGORITHMS or view.on("speculative-adaptive"):
        return ""
    names = (F.STEPS, F.TOPK, F.DRAFT_TOKENS)
    absent = [name for name in names if view.integer(name) is None]
    if view.algorithm == "FROZEN_KV_MTP" and absent:
        return f"all of {', '.join(names)} must be set, missing {', '.join(absent)}"
    if len(absent) in (0, 3):
        return ""
    return f"{', '.join(names)} must be set together or not at all, missing {', '.join(absent)}"


def draft_path(view: ServerView) -> str:
    """A draft model is named where the algorithm needs one of its own."""
    if view.algorithm in {"", "NGRAM", "UNO", "DSPARK"} or view.text(F.DRAFT_PATH):
        return ""
    known = view.architectures("target")
    if view.algorithm in {"EAGLE", "FROZEN_KV_MTP"} and (not known or known & BUNDLED_DRAFT):
        return ""  # an unknown target may well bundle its draft
    return f"{view.algorithm} needs a draft model, got none"


def gemma_draft(view: ServerView) -> str:
    """Gemma 4 assistant drafts run under NEXTN or EAGLE."""
    if view.algorithm != "EAGLE3" or not view.architectures("draft") & GEMMA_DRAFTS:
        return ""
    return "a Gemma 4 assistant draft must run as NEXTN, got EAGLE3"


def chain_only_backend(view: ServerView) -> str:
    """Attention backends that cannot express a tree."""
    if view.algorithm not in F.TREE_ALGORITHMS or (view.topk or 1) <= 1:
        return ""
    named = {*view.backends, view.text("speculative-draft-attention-backend")}
    for backend in sorted(named & CHAIN_ONLY_BACKENDS):
        return f"attention backend {backend} must have topk 1, got topk {view.topk}"
    if view.algorithm == "FROZEN_KV_MTP" and view.decode_backend not in {"", "triton"}:
        return f"FROZEN_KV_MTP with topk > 1 must use triton, got {view.decode_backend}"
    return ""


def paged_tree(view: ServerView) -> str:
    """topk > 1 with pages needs a backend that duplicates the prefix tail."""
    if view.algorithm not in F.EAGLE_FAMILY or (view.topk or 1) <= 1 or view.page_size <= 1:
        return ""
    backend = view.text("attention-backend")
    if not backend or backend in PAGED_TREE_BACKENDS:
        return ""
    allowed = ", ".join(sorted(PAGED_TREE_BACKENDS))
    return f"topk > 1 with page size {view.page_size} must use {allowed}, got {backend}"


def paged_ngram(view: ServerView) -> str:
    """NGRAM with breadth and pages needs FlashInfer."""
    if view.algorithm != "NGRAM" or (view.topk or 1) <= 1 or view.page_size <= 1:
        return ""
    backend = view.text("attention-backend")
    if backend in {"", "flashinfer"}:
        return ""
    return f"NGRAM breadth > 1 with page size {view.page_size} must use flashinfer, got {backend}"


def draft_backend(view: ServerView) -> str:
    """The draft's multi-step decoding exists for the backend."""
    backend = view.draft_backend
    if view.algorithm and "flex_attention" in view.backends:
        return "attention backend flex_attention must run without speculation"
    if view.algorithm not in F.EAGLE_FAMILY or (view.steps or 1) <= 1 or not backend:
        return ""
    if backend in DRAFT_DECODE_BACKENDS:
        return ""
    return f"EAGLE is not supported in decode attention backend {backend}"


def rejection_sampling(view: ServerView) -> str:
    """Rejection sampling: EAGLE or EAGLE3, topk 1, thresholds 1, whole vocabulary."""
    if not view.on("speculative-use-rejection-sampling") or not view.algorithm:
        return ""
    if view.algorithm not in {"EAGLE", "EAGLE3"}:
        return f"rejection sampling must run with EAGLE or EAGLE3, got {view.algorithm}"
    if view.topk not in (None, 1):
        return f"rejection sampling must have topk 1, got {view.topk}"
    if any(view.number(name, 1.0) != 1.0 for name in F.THRESHOLDS):
        return "rejection sampling must have acceptance thresholds 1.0"
    reduced, whole = view.draft("draft_vocab_size"), view.target("vocab_size")
    if reduced is not None and whole is not None and reduced != whole:
        return f"rejection sampling must have a draft vocabulary of {whole}, got {reduced}"
    return ""


def block_verification(view: ServerView) -> str:
    """Block verification: on CUDA, for four algorithms."""
    if not view.on("speculative-use-block-verification") or not view.algorithm:
        return ""
    if view.algorithm not in {"EAGLE", "EAGLE3", "DFLASH", "DSPARK"}:
        return f"block verification must not run with {view.algorithm}"
    if view.device not in {"", "cuda"}:
        return f"block verification must run on cuda, got {view.device}"
    return ""


def draft_window(view: ServerView) -> str:
    """Window and sink of the draft's attention."""
    window = view.integer("speculative-draft-window-size")
    sink = view.integer("speculative-draft-sink-size")
    if not view.algorithm:
        return ""
    if window is not None and window <= 0:
        return f"speculative-draft-window-size must be positive, got {window}"
    if sink is not None and (sink < 0 or window is None):
        return f"speculative-draft-sink-size must be >= 0 and needs a window, got {sink}"
    draft = view.draft_tokens
    if view.algorithm == "DFLASH" and window is not None and draft and window < draft:
        return f"speculative-draft-window-size must be >= {draft} for DFLASH, got {window}"
    return ""


def draft_context(view: ServerView) -> str:
    """The draft was trained for at least the target's context."""
    if view.algorithm not in F.TREE_ALGORITHMS | {"DFLASH"} or not view.facts.draft_config:
        return ""
    needed = view.integer("context-length") or _context(view, "target")
    able = _context(view, "draft")
    name = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
    if needed is None or able is None or needed <= able or view.env_on(name):
        return ""
    return f"the draft's context must be >= the target's {needed}, got {able}"


def _context(view: ServerView, which: str) -> int | None:
    """The longest context of a checkpoint: positions, stretched where RoPE scaling is not said to
    be in them already."""
    read = view.target if which == "target" else view.draft
    longest = read("max_position_embeddings")
    scaling = read("rope_scaling") or read("rope_parameters")
    if not isinstance(longest, int) or isinstance(longest, bool):
        return None
    if not isinstance(scaling, dict) or "original_max_position_embeddings" in scaling:
        return longest
    factor = scaling.get("factor", 1)
    if scaling.get("rope_type", scaling.get("type")) == "llama3" or not _is_number(factor):
        return longest
    return int(longest * factor)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6


def same_vocabulary(view: ServerView) -> str:
    """STANDALONE compares draft and target token by token."""
    ours, theirs = view.target("vocab_size"), view.draft("vocab_size")
    if view.algorithm != "STANDALONE" or ours is None or theirs is None or ours == theirs:
        return ""
    return f"STANDALONE must have equal vocabularies, got target {ours} and draft {theirs}"
