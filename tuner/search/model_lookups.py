"""Owns what lookups would draft on the baseline's own answers, before any of them is launched.

Greedy answers do not depend on speculation, so the baseline's texts tell what every lookup would
find and how much of it would be accepted. The engine's rule may differ from ours, and our tokens
are the model's only where its tokenizer can be read: the model checks these counts against the
launches it sees.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.measure.records import Block, Prompt
from tuner.measure.tokens import SplitTokens, local_splitter, tokenizer_folders
from tuner.model.acceptance import logit
from tuner.model.drafting import Played
from tuner.model.lookup import Rule, Text, play, simple_tokens
from tuner.model.lookup_trees import SuffixRule, TrieRule
from tuner.search.bench import Bench
from tuner.search.history import History
from tuner.search.lookup_rules import rule_of, slots_of
from tuner.search.model_servers import Roles

MOST_TEXTS = 12
MOST_TOKENS = 400
"""Enough text to tell lookups apart; every rule is played on all of it."""

MOST_RULES = 600

TREES = (SuffixRule, TrieRule)
MOST_TREES, LEAST_TEXTS = 24, 3
"""A rule that keeps a tree takes a second for all texts: of more such rules each is played on
fewer texts, and where that would be too few they are learned."""


def texts_of(
    blocks: Sequence[Block],
    prompts: Mapping[str, Prompt],
    split: SplitTokens = simple_tokens,
) -> list[tuple[list[str], list[str]]]:
    """Prompt and answer tokens of a baseline's requests, one per prompt.

    Args:
        blocks: of a launch without speculation.
        prompts: of the workload, by id.
        split: text to tokens; words where the model's own are not known.
    """
    found: dict[str, tuple[list[str], list[str]]] = {}
    for block in blocks:
        for record in block.records:
            prompt = prompts.get(record.prompt_id)
            if record.ok and record.text and prompt and record.prompt_id not in found:
                asked = "\n".join(message["content"] for message in prompt.messages)
                tokens = split(asked), split(record.text)[:MOST_TOKENS]
                found[record.prompt_id] = tokens
    return list(found.values())[:MOST_TEXTS]


def baseline_texts(bench: Bench, history: History) -> list[tuple[list[str], list[str]]]:
    """Texts of the study's baseline; [] before it was measured, where answers are not greedy,
    and where they are not real."""
    if (
        history.baseline is None
        or bench.runner.is_simulated
        or bench.workload.sampling.temperature
    ):
        return []
    prompts = {prompt.id: prompt for block in bench.workload.blocks for prompt in block}
    flags = history.baselines[0].requested_args.flags if history.baselines else {}
    split = local_splitter(tokenizer_folders(flags))
    return texts_of(history.baseline.blocks, prompts, split or simple_tokens)


def play_lookups(
    roles: Sequence[Roles], texts: Sequence[tuple[list[str], list[str]]]
) -> Played | None:
    """Level and coverage of every server whose rule can be played; None when none can."""
    rules = [rule_of(each) for each in roles]
    slots = max(slots_of(each) for each in roles)
    distinct = list(dict.fromkeys(rule for rule in rules if rule is not None))
    if not texts or not distinct or len(distinct) > MOST_RULES:
        return None
    prepared = [Text(prompt, answer) for prompt, answer in texts]
    trees = sum(isinstance(rule, TREES) for rule in distinct)
    share = prepared[: enough_texts(len(prepared), trees)]
    counts = {
        rule: _totals(share if isinstance(rule, TREES) else prepared, rule, slots)
        for rule in distinct
    }
    table = np.array([counts[rule] if rule else (np.nan,) * 3 for rule in rules])
    nodes = np.array([max(each.depth, each.nodes, 1.0) for each in roles])
    tokens, drafts, accepted = table[:, 0], table[:, 1] / nodes, table[:, 2]
    is_known = np.nan_to_num(drafts) > 0
    return Played(
        accepted=np.where(is_known, accepted / np.maximum(drafts, 1e-9), np.nan),
        coverages=np.where(is_known, logit((drafts + accepted) / tokens), np.nan),
        silent=drafts == 0,
        methods=np.unique([each.method for each in roles], return_inverse=True)[1],
    )


def enough_texts(texts: int, trees: int) -> int:
    """On how many texts each of so many rules with trees is played; 0: on none, they are
    learned."""
    fair = min(texts, texts * MOST_TREES // max(trees, 1))
    return fair if fair >= min(LEAST_TEXTS, texts) else 0


def _totals(texts: Sequence[Text], rule: Rule, slots: int) -> tuple[float, float, float]:
    """Tokens, drafted tokens and accepted tokens; NaN without texts."""
    if not texts:
        return math.nan, math.nan, math.nan
    played = play(texts, rule, slots)
    return (
        float(sum(each.tokens for each in played)),
        float(sum(each.drafted for each in played)),
        float(sum(each.accepted for each in played)),
    )
