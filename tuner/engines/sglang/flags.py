"""Owns SGLang's flag vocabulary: spellings, algorithm families, defaults. Knows no rule."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.args import FlagValue

EAGLE_FAMILY = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
TREE_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP"})
BLOCK_ALGORITHMS = frozenset({"DFLASH", "DSPARK"})
ALGORITHMS = TREE_ALGORITHMS | BLOCK_ALGORITHMS | {"NGRAM", "UNO"}
ALGORITHM_ALIASES = {"NEXTN": "EAGLE", "MTP": "EAGLE"}
"""NEXTN is an alias of EAGLE in every version; MTP is the name papers give the same thing."""

ALGORITHM = "speculative-algorithm"
DRAFT_PATH = "speculative-draft-model-path"
STEPS = "speculative-num-steps"
TOPK = "speculative-eagle-topk"
DRAFT_TOKENS = "speculative-num-draft-tokens"
DFLASH_BLOCK = "speculative-dflash-block-size"
DSPARK_BLOCK = "speculative-dspark-block-size"
BREADTH = "speculative-ngram-max-bfs-breadth"
THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")

OTHER_SPECULATIVE = frozenset({"enable-multi-layer-eagle", "spec-trace-dir", "uno-lora-path"})
"""Flags of speculation whose names do not begin with `speculative-`."""

KNOWN_SPECULATIVE = OTHER_SPECULATIVE | {
    ALGORITHM, DRAFT_PATH, STEPS, TOPK, DRAFT_TOKENS, DFLASH_BLOCK, DSPARK_BLOCK, BREADTH,
    *THRESHOLDS,
    "speculative-draft-model-revision", "speculative-draft-load-format",
    "speculative-domino-candidate-pool-size", "speculative-dspark-sps-table-path",
    "speculative-dspark-confidence-sts-path",
    "speculative-dspark-align-verify-tokens-to-graph-tier", "speculative-use-rejection-sampling",
    "speculative-use-block-verification", "speculative-token-map", "speculative-attention-mode",
    "speculative-draft-attention-backend", "speculative-dsa-topk-backend",
    "speculative-draft-kv-cache-dtype", "speculative-draft-window-size",
    "speculative-draft-sink-size", "speculative-moe-runner-backend",
    "speculative-moe-a2a-backend", "speculative-enable-w4a4-mxfp4-megamoe",
    "speculative-draft-model-quantization", "speculative-adaptive",
    "speculative-adaptive-config", "speculative-ngram-min-bfs-breadth",
    "speculative-ngram-match-type", "speculative-ngram-max-trie-depth",
    "speculative-ngram-capacity", "speculative-ngram-external-corpus-path",
    "speculative-ngram-external-sam-budget", "speculative-ngram-external-corpus-max-tokens",
}  # fmt: skip

ALIASES = {
    "model": "model-path",
    "speculative-draft-model": DRAFT_PATH,
    "tp": "tp-size",
    "tensor-parallel-size": "tp-size",
    "dp": "dp-size",
    "data-parallel-size": "dp-size",
    "pp": "pp-size",
    "pipeline-parallel-size": "pp-size",
    "ep": "ep-size",
    "expert-parallel-size": "ep-size",
    "dcp-size": "dcp-size",
    "decode-context-parallel-size": "dcp-size",
    "attention-data-parallel-size": "attn-dp-size",
    "attention-context-parallel-size": "attn-cp-size",
    "moe-data-parallel-size": "moe-dp-size",
    "nccl-init-addr": "dist-init-addr",
    "enable-hicache": "enable-hierarchical-cache",
    "context-bucket": "cuda-graph-prefill-max-context",
}
"""Other spellings that the parser itself accepts for the same option (0.5.23)."""

NEGATABLE = frozenset({
    "dcp-replicate-q-proj", "dllm-fdfo", "enable-decoder-swa-bounded-replay",
    "enable-dsa-fused-indexer", "enable-fused-qk-norm-rope", "enable-tf32-matmul",
    "enable-tp-lm-head-all-to-all", "experts-shared-outer-loras", "lora-strict-loading",
    "mm-enable-dp-encoder", "ple-offload-embedding", "speculative-enable-w4a4-mxfp4-megamoe",
})  # fmt: skip
"""Options with a `--no-` form (BooleanOptionalAction): false is a value, not an absence."""

NOT_IN_YAML = NEGATABLE | {"disable-cuda-graph", "enable-dp-attention", "lora-paths",
                           "monokernel-backend"}  # fmt: skip
"""Options whose argparse action the `--config` merger refuses (0.5.23)."""

SPECULATIVE_DEFAULTS: Mapping[str, FlagValue] = {
    "speculative-accept-threshold-single": 1.0,
    "speculative-accept-threshold-acc": 1.0,
    "speculative-attention-mode": "prefill",
    "speculative-dsa-topk-backend": "sgl-kernel",
    "speculative-domino-candidate-pool-size": 2048,
    BREADTH: 10,
    "speculative-ngram-min-bfs-breadth": 1,
    "speculative-ngram-match-type": "BFS",
    "speculative-ngram-max-trie-depth": 18,
    "speculative-ngram-capacity": 10_000_000,
    "speculative-ngram-external-sam-budget": 0,
    "speculative-ngram-external-corpus-max-tokens": 10_000_000,
}
"""Defaults of 0.5.23: naming one starts the same server as leaving it out."""

RENAMED = {
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "enable-flashinfer-mla": "attention-backend: flashinfer",
    "speculative-ngram-min-match-window-size": "",
    "speculative-ngram-max-match-window-size": "speculative-ngram-max-trie-depth",
}
"""Flags of older versions and what replaced them; "" means nothing did."""


def spelled(name: str) -> str:
    """The canonical spelling of a flag: no dashes in front, hyphens inside, no alias."""
    bare = name.lstrip("-").replace("_", "-")
    return ALIASES.get(bare, bare)


def is_speculative_flag(name: str) -> bool:
    """True when a flag concerns speculation only and means nothing without it."""
    return name.startswith("speculative-") or name in OTHER_SPECULATIVE


def algorithm_of(flags: Mapping[str, FlagValue]) -> str:
    """The speculative algorithm in SGLang's resolved spelling; "" when speculation is off."""
    name = str(flags.get(ALGORITHM, "")).strip().upper()
    return "" if name == "NONE" else ALGORITHM_ALIASES.get(name, name)


def as_int(value: object) -> int | None:
    """A flag's value as an integer; None when it is absent or not a whole number."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        return None
