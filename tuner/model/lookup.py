"""Owns what a lookup drafter does on a known text, computed without launching anything.

The text is the prompt's tokens followed by the greedy answer's. A `Rule` says what is proposed
after each known token; the answer says how much of that is accepted; one more token comes from
the verification itself. Rules that remember earlier requests are in `lookup_tables` and
`lookup_trees`.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

Tokens = Sequence[Hashable]


class Drafter(Protocol):
    """What one server does, request after request."""

    def begin(self, text: Text) -> None:
        """A request arrives: its prompt is known."""
        ...

    def step(self, text: Text, position: int) -> tuple[int, int]:
        """Drafted and accepted tokens of one step when `position` tokens are known."""
        ...


class Rule(Protocol):
    """How a method drafts; hashable, so that equal servers are played once.

    `is_per_slot`: what it remembers of earlier requests is kept for each slot of the server.
    """

    is_per_slot: ClassVar[bool]

    def drafter(self) -> Drafter:
        """A server that has seen nothing yet."""
        ...


@dataclass(frozen=True, slots=True)
class LookupRule:
    """How an engine looks up.

    Args:
        match: tokens that must match; `least` the fewest that still do (tried downwards).
        depth: most tokens that are drafted.
        shortest: shorter drafts are thrown away.
        is_latest: the latest occurrence counts; otherwise the first.
    """

    is_per_slot: ClassVar[bool] = False

    match: int
    depth: int
    least: int | None = None
    shortest: int = 1
    is_latest: bool = True

    @property
    def sizes(self) -> range:
        """Match lengths in the order in which they are tried."""
        return range(self.match, (self.least or self.match) - 1, -1)

    def drafter(self) -> Drafter:
        """Looks in the request's own tokens only."""
        return _Copying(self)


@dataclass(frozen=True, slots=True)
class LookupCounts:
    """Exact counts over one text."""

    tokens: int
    steps: int
    drafts: int
    drafted: int
    accepted: int


class Text:
    """A prompt and its greedy answer, with an index of where each run of tokens occurs.

    Args:
        prompt: its tokens.
        answer: its tokens.
        most: tokens that the answer could have had; 0 unknown.
    """

    def __init__(self, prompt: Tokens, answer: Tokens, most: int = 0) -> None:
        self.tokens = [*prompt, *answer]
        self.start, self.answer, self.most = len(prompt), len(answer), most
        self._places: dict[int, dict[tuple[Hashable, ...], list[int]]] = {}

    def room(self, position: int) -> int:
        """How many tokens may be drafted when `position` are known, the verification's own token
        left out."""
        most = self.most or len(self.tokens)
        return max(0, self.start + most - position - 1)

    def run(self, place: int, size: int) -> tuple[Hashable, ...]:
        """The tokens from `place` on."""
        return tuple(self.tokens[place : place + size])

    def latest(self, run: tuple[Hashable, ...], low: int, high: int) -> int | None:
        """The latest place from `low` to `high`, both included, where a run of tokens begins."""
        size = len(run)
        ends = self._table(size).get(run, [])
        before = bisect.bisect_right(ends, high + size)
        found = ends[before - 1] - size if before else -1
        return found if found >= low else None

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


def replay_lookup(text: Text, rule: Rule) -> LookupCounts:
    """Play the rule on one text alone."""
    return play([text], rule)[0]


def play(texts: Sequence[Text], rule: Rule, slots: int = 1) -> list[LookupCounts]:
    """Play the rule on requests that one server answers one after another.

    With several slots they take turns, where the rule remembers per slot.
    """
    drafters = [rule.drafter() for _ in range(slots if rule.is_per_slot else 1)]
    return [_play_one(drafters[i % len(drafters)], text) for i, text in enumerate(texts)]


def _play_one(drafter: Drafter, text: Text) -> LookupCounts:
    """The answer's first token is the prefill's."""
    position, end = text.start + 1, len(text.tokens)
    steps, drafts, drafted, accepted = 1, 0, 0, 0
    drafter.begin(text)
    while position < end:
        proposed, good = drafter.step(text, position)
        steps += 1
        drafts, drafted, accepted = drafts + bool(proposed), drafted + proposed, accepted + good
        position += good + 1
    return LookupCounts(text.answer, steps, drafts, drafted, accepted)


class _Copying:
    """The drafter of a `LookupRule`: it remembers nothing."""

    def __init__(self, rule: LookupRule) -> None:
        self.rule = rule

    def begin(self, text: Text) -> None:
        """Nothing to prepare."""

    def step(self, text: Text, position: int) -> tuple[int, int]:
        """Drafted and accepted tokens of one step."""
        draft = text.draft(position, self.rule)
        return len(draft), text.agreeing(position, draft)


def simple_tokens(text: str) -> list[str]:
    """Words, numbers and signs: about the tokens of a model, where its own are not known."""
    return re.findall(r" ?[A-Za-z]{1,6}|\d{1,3}|\n+|[^\w\s]|\s+", text)
