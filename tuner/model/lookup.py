"""Owns what a lookup drafter does on a known text, computed without launching anything.

The text is the prompt's tokens followed by the greedy answer's. At each step the last `match`
tokens are searched in what came before; what followed them there is the draft; the answer says
how much of it is accepted. One more token comes from the verification itself.
"""

from __future__ import annotations

import bisect
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


class Text:
    """A prompt and its greedy answer, with an index of where each run of tokens occurs."""

    def __init__(self, prompt: Tokens, answer: Tokens) -> None:
        self.tokens = [*prompt, *answer]
        self.start, self.answer = len(prompt), len(answer)
        self._places: dict[int, dict[tuple[Hashable, ...], list[int]]] = {}

    def draft(self, position: int, rule: LookupRule) -> Tokens:
        """What a rule proposes when `position` tokens are known."""
        for size in rule.sizes:
            place = self._found(position, size, rule.is_latest) if size <= position else None
            if place is not None:
                draft = self.tokens[place : min(place + rule.depth, position)]
                return draft if len(draft) >= rule.shortest else ()
        return ()

    def _found(self, position: int, size: int, is_latest: bool) -> int | None:
        """The end of an earlier occurrence of the last `size` tokens."""
        key = tuple(self.tokens[position - size : position])
        places = self._table(size).get(key, [])
        before = bisect.bisect_left(places, position)
        if not before:
            return None
        return places[before - 1] if is_latest else places[0]

    def _table(self, size: int) -> dict[tuple[Hashable, ...], list[int]]:
        if size not in self._places:
            table: dict[tuple[Hashable, ...], list[int]] = {}
            for start in range(len(self.tokens) - size + 1):
                key = tuple(self.tokens[start : start + size])
                table.setdefault(key, []).append(start + size)
            self._places[size] = table
        return self._places[size]

    def agreeing(self, position: int, draft: Tokens) -> int:
        """How many drafted tokens the answer really has."""
        count = 0
        for known, token in zip(self.tokens[position:], draft, strict=False):
            if known != token:
                break
            count += 1
        return count


def replay_lookup(text: Text, rule: LookupRule) -> LookupCounts:
    """Play the rule on one text; the answer's first token is the prefill's."""
    position, end = text.start + 1, len(text.tokens)
    steps, drafts, drafted, accepted = 1, 0, 0, 0
    while position < end:
        draft = text.draft(position, rule)
        good = text.agreeing(position, draft[: end - position])
        steps += 1
        drafts, drafted, accepted = drafts + bool(draft), drafted + len(draft), accepted + good
        position += good + 1
    return LookupCounts(text.answer, steps, drafts, drafted, accepted)


def simple_tokens(text: str) -> list[str]:
    """Words, numbers and signs: about the tokens of a model, where its own are not known."""
    return re.findall(r" ?[A-Za-z]{1,6}|\d{1,3}|\n+|[^\w\s]|\s+", text)
