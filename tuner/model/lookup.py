"""Owns what a lookup drafter does on a known text, computed without launching anything.

The text is the prompt's tokens followed by the greedy answer's. At each step the last `match`
tokens are searched in what came before; what followed them there is the draft; the answer says
how much of it is accepted. One more token comes from the verification itself.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Tokens = Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class LookupRule:
    """How an engine looks up.

    Args:
        match: tokens that must match; `least` the fewest that still do (tried downwards).
        depth: most tokens that are drafted.
        shortest: shorter drafts are thrown away.
        is_latest: the latest occurrence counts; otherwise the first.
    """

    match: int
    depth: int
    least: int | None = None
    shortest: int = 1
    is_latest: bool = True

    @property
    def sizes(self) -> range:
        """Match lengths in the order in which they are tried."""
        return range(self.match, (self.least or self.match) - 1, -1)


@dataclass(frozen=True, slots=True)
class LookupCounts:
    """Exact counts over one text."""

    tokens: int
    steps: int
    drafts: int
    drafted: int
    accepted: int


def replay_lookup(prompt: Tokens, answer: Tokens, rule: LookupRule) -> LookupCounts:
    """Play the rule on one prompt and its greedy answer; the first token is the prefill's."""
    text = [*prompt, *answer]
    index = _Index(text, rule)
    position, end = len(prompt) + 1, len(text)
    steps, drafts, drafted, accepted = 1, 0, 0, 0
    while position < end:
        draft = index.draft(position)
        good = _agreeing(text, position, draft)
        steps += 1
        if draft:
            drafts, drafted = drafts + 1, drafted + len(draft)
            accepted += min(good, end - position)
        position += good + 1
    return LookupCounts(len(answer), steps, drafts, drafted, accepted)


def _agreeing(text: Tokens, position: int, draft: Tokens) -> int:
    count = 0
    for token in draft:
        if position + count >= len(text) or text[position + count] != token:
            break
        count += 1
    return count


class _Index:
    """Where each run of tokens occurs, so that a lookup is one step."""

    def __init__(self, text: Tokens, rule: LookupRule) -> None:
        self.text, self.rule = text, rule
        self.places: dict[int, dict[tuple[Hashable, ...], list[int]]] = {}
        for size in rule.sizes:
            table: dict[tuple[Hashable, ...], list[int]] = {}
            for start in range(len(text) - size + 1):
                table.setdefault(tuple(text[start : start + size]), []).append(start + size)
            self.places[size] = table

    def draft(self, position: int) -> Tokens:
        """What is proposed when `position` tokens are known."""
        rule = self.rule
        for size in rule.sizes:
            if size > position:
                continue
            key = tuple(self.text[position - size : position])
            after = [p for p in self.places[size].get(key, ()) if p < position]
            if after:
                place = after[-1] if rule.is_latest else after[0]
                draft = self.text[place : min(place + rule.depth, position)]
                return draft if len(draft) >= rule.shortest else ()
        return ()


def simple_tokens(text: str) -> list[str]:
    """Words, numbers and signs: about the tokens of a model, where its own are not known."""
    return re.findall(r" ?[A-Za-z]{1,6}|\d{1,3}|\n+|[^\w\s]|\s+", text)
