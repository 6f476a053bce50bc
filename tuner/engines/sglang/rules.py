"""Owns SGLang's rule table: every rewrite and refusal with its source and version.

`violations` and `canonical` are driven by it, docs/rules-sglang.md is generated from it, and
tests compare it with SGLang's own resolver on every point of the shipped spaces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts, Violation
from tuner.engines.sglang import refusals as R
from tuner.engines.sglang import refusals_host as H
from tuner.engines.sglang.canonical import REWRITES
from tuner.engines.sglang.view import ServerView


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row of the rule table: a server that must not be launched.

    Args:
        name: stable rule name.
        applies: what servers it is about, in words.
        text: the rule, for people.
        source: file and line of SGLang where it is, with the version read.
        when: `parse` (refused before anything is loaded), `runtime` (it starts and then dies)
            or `ours` (SGLang accepts it; it would mislead).
        broken: what is wrong with a canonical server in one line, "" for nothing.
        hint: what to do, in the imperative.
    """

    name: str
    applies: str
    text: str
    source: str
    when: str
    broken: Callable[[ServerView], str]
    hint: str


_HOOK = "srt/arg_groups/speculative_hook.py"

REFUSALS: tuple[Refusal, ...] = (
    Refusal("algorithm-known", "all", "The algorithm is one that SGLang has.",
            "srt/speculative/spec_info.py:49-66 (0.5.23)", "parse", R.unknown_algorithm,
            "Correct speculative-algorithm."),
    Refusal("tree-capacity", "EAGLE, EAGLE3, STANDALONE, FROZEN_KV_MTP",
            "A draft tree of this depth and branching holds at most "
            "1 + topk + (steps - 1) * topk^2 draft tokens (root included).",
            "srt/speculative/eagle_utils.py:100-113 (0.5.23)", "runtime", R.tree_capacity,
            "Ask for fewer draft tokens, or for more steps or a larger topk."),
    Refusal("draft-range", "all but UNO", "Steps and topk are at least 1, draft tokens 2 to 1024.",
            "kernels/jit/csrc/speculative/tree.cuh (0.5.23)", "runtime", R.at_least_one,
            "Correct the value."),
    Refusal("all-three-or-none", "EAGLE, EAGLE3, STANDALONE, FROZEN_KV_MTP",
            "Steps, topk and draft tokens are set together or left to the server together.",
            f"{_HOOK}:1159-1163, 1274 (0.5.23)", "parse", R.all_three_or_none,
            "Set all three."),
    Refusal("draft-path", "EAGLE, EAGLE3, STANDALONE, DFLASH, FROZEN_KV_MTP",
            "A draft checkpoint is named, unless the target's own holds the draft; SGLang would "
            "load the target as its draft.",
            f"{_HOOK}:1121-1156; srt/configs/model_config.py:956 (0.5.23)", "ours", R.draft_path,
            "Set engine.draft_model."),
    Refusal("gemma-draft-is-nextn", "EAGLE3", "A Gemma 4 assistant draft is not an EAGLE3 head.",
            f"{_HOOK}:101-107 (0.5.23)", "parse", R.gemma_draft,
            "Set speculative-algorithm: NEXTN."),
    Refusal("chain-only-backend", "topk > 1",
            "trtllm_mha, trtllm_mla, cutedsl_mla and flashmla verify chains only.",
            f"{_HOOK}:1176; srt/layers/attention/flashmla_backend.py:608 (0.5.23)", "parse",
            R.chain_only_backend, "Set topk 1, or attention-backend: flashinfer, fa3 or triton."),
    Refusal("paged-tree", "EAGLE, EAGLE3, STANDALONE with topk > 1",
            "Pages larger than 1 need flashinfer, fa3 or triton.",
            f"{_HOOK}:1268-1282 (0.5.23)", "parse", R.paged_tree,
            "Set page-size: 1, topk 1, or one of those attention backends."),
    Refusal("paged-ngram", "NGRAM with breadth > 1", "Pages larger than 1 need flashinfer.",
            f"{_HOOK}:1355-1366 (0.5.23)", "parse", R.paged_ngram,
            "Set page-size: 1, a breadth of 1, or attention-backend: flashinfer."),
    Refusal("draft-backend", "EAGLE, EAGLE3, STANDALONE with steps > 1",
            "The draft's attention backend has multi-step decoding; flex_attention has none.",
            "srt/speculative/draft_utils.py:84-118; srt/arg_groups/attention_hook.py:161 (0.5.23)",
            "runtime", R.draft_backend, "Set another attention-backend."),
    Refusal("rejection-sampling", "speculative-use-rejection-sampling",
            "EAGLE or EAGLE3 with topk 1, thresholds of 1 and a draft of the whole vocabulary.",
            f"{_HOOK}:1210-1249; srt/speculative/eagle_worker_v2.py:260-274 (0.5.23)", "parse",
            R.rejection_sampling, "Leave speculative-use-rejection-sampling out."),
    Refusal("block-verification", "speculative-use-block-verification",
            "EAGLE, EAGLE3, DFLASH or DSPARK on CUDA.", f"{_HOOK}:175-195 (0.5.23)", "parse",
            R.block_verification, "Leave speculative-use-block-verification out."),
    Refusal("draft-window", "speculative-draft-window-size, -sink-size",
            "A window is positive, a sink needs one, DFLASH's holds a whole block.",
            f"{_HOOK}:202-235, 427-434 (0.5.23)", "parse", R.draft_window,
            "Correct the window."),
    Refusal("draft-context", "EAGLE, EAGLE3, STANDALONE, FROZEN_KV_MTP, DFLASH",
            "The draft's longest context is at least the target's.",
            "srt/configs/model_config.py:1291-1316 (0.5.23)", "runtime", R.draft_context,
            "Set context-length to the draft's, or "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 if positions beyond are safe."),
    Refusal("same-vocabulary", "STANDALONE", "Draft and target share one vocabulary.",
            "srt/speculative/standalone_worker_v2.py:185-215 (0.5.23)", "runtime",
            R.same_vocabulary, "Choose a draft model of the same family."),
    Refusal("device", "DFLASH, DSPARK, NGRAM, UNO", "The algorithm runs on the device.",
            f"{_HOOK}:289-300, 668, 1287 (0.5.23)", "parse", H.device,
            "Choose another algorithm."),
    Refusal("attention-dp", "STANDALONE, NGRAM, DFLASH, DSPARK",
            "Data-parallel attention is not possible, or needs enable-dp-lm-head.",
            f"{_HOOK}:304-319, 676, 1078, 1367 (0.5.23)", "parse", H.attention_dp,
            "Leave data-parallel attention out, or set enable-dp-lm-head."),
    Refusal("pipeline", "all", "Pipeline parallelism drafts with EAGLE only, and rarely.",
            "srt/arg_groups/validation_hook.py:119-164 (0.5.23)", "parse", H.pipeline,
            "Set pp-size: 1."),
    Refusal("one-node", "all", "A server that is tuned lives on one machine.",
            "environment is not propagated between nodes: srt/entrypoints/engine.py:1884 (0.5.23)",
            "ours", H.one_node,
            "Tune on one node; the exported bundle takes NNODES, NODE_RANK and DIST_INIT_ADDR."),
    Refusal("chunk-of-pages", "all", "chunked-prefill-size is a multiple of the page size.",
            "srt/arg_groups/validation_hook.py:243 (0.5.23)", "parse", H.chunk_of_pages,
            "Correct chunked-prefill-size."),
    Refusal("mamba-interval", "hybrid models", "mamba-track-interval is at least a draft.",
            "srt/arg_groups/mamba_hook.py:132-135 (0.5.23)", "parse", H.mamba_interval,
            "Enlarge mamba-track-interval."),
    Refusal("dflash-block", "DFLASH", "Block size and draft tokens are equal and positive.",
            f"{_HOOK}:374-390 (0.5.23)", "parse", H.dflash_block, "Set only one of the two."),
    Refusal("dspark-block", "DSPARK", "Draft tokens are the block size + 1.",
            f"{_HOOK}:826-850 (0.5.23)", "parse", H.dspark_block, "Set only the block size."),
    Refusal("ngram-corpus", "NGRAM with an external corpus",
            "The suffix-automaton budget is from 1 to draft tokens - 1.",
            f"{_HOOK}:1335-1352 (0.5.23)", "parse", H.ngram_corpus, "Correct the budget."),
    Refusal("ngram-breadth", "NGRAM", "The narrowest breadth is at most the widest.",
            "srt/speculative/ngram_worker.py (0.5.23)", "ours", H.ngram_breadth,
            "Lower speculative-ngram-min-bfs-breadth."),
    Refusal("adaptive-steps", "speculative-adaptive",
            "The starting steps are one of the schedule's candidates.",
            f"{_HOOK}:1413-1419 (0.5.23)", "parse", H.adaptive_steps,
            "Leave steps out, or choose a candidate."),
    Refusal("nccl-needs-ranks", "NCCL variables", "NCCL is used by two ranks or more.",
            "srt/distributed/parallel_state.py:745-993 (0.5.23)", "ours", H.nccl_needs_ranks,
            "Remove the NCCL parameters, or set tp-size."),
    Refusal("nccl-value", "NCCL variables", "A variable's value is of its type.",
            "NCCL user guide, environment variables (2.27)", "ours", H.nccl_values,
            "Correct the value, or leave the variable unset."),
    Refusal("nccl-deterministic", "NCCL variables with enable-deterministic-inference",
            "Deterministic inference fixes the algorithm and the channels itself.",
            "srt/arg_groups/attention_hook.py:667-701 (0.5.23)", "ours", H.nccl_deterministic,
            "Leave one of them out."),
)  # fmt: skip


def violations(args: ServerArgs, facts: EngineFacts) -> list[Violation]:
    """Every refusal that a canonical server meets, in table order."""
    view = ServerView(args, facts)
    broken = ((rule, rule.broken(view)) for rule in REFUSALS)
    return [Violation(rule.name, text, rule.hint) for rule, text in broken if text]


def rule_table() -> str:
    """The table as Markdown: what docs/rules-sglang.md holds."""
    head = ["# SGLang's rules", "",
            "Generated from the rule table in `tuner/engines/sglang/`; do not edit by hand.", "",
            "## Rewritten silently", "",
            "SGLang replaces these; the tuner does so beforehand, so that equal servers are "
            "launched once.", "", "| rule | applies to | what happens | source |",
            "|---|---|---|---|"]  # fmt: skip
    rewrites = [f"| {r.name} | {r.applies} | {r.text} | {r.source} |" for r in REWRITES]
    middle = ["", "## Refused", "",
              "These are never launched. *parse*: SGLang refuses before loading; *runtime*: it "
              "starts and dies; *ours*: it would start and mislead.", "",
              "| rule | applies to | what must hold | when | source |",
              "|---|---|---|---|---|"]  # fmt: skip
    refusals = [f"| {r.name} | {r.applies} | {r.text} | {r.when} | {r.source} |" for r in REFUSALS]
    return "\n".join([*head, *rewrites, *middle, *refusals, ""])
