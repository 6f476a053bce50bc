"""Owns llama.cpp's n-gram rules, as its builds 11434 and 11549 have them.

All three count every answer's last known token as *sampled*: it may end a match, but what is
copied lies before it. A draft never reaches beyond the answer's allowed length.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tuner.model.lookup import Drafter, Text, Tokens

Run: TypeAlias = tuple[Hashable, ...]

CHUNK = 32
"""A table of n-grams takes new tokens when so many have come together."""

LOW, LOW_DRAFTS = 0.25, 5
"""So many drafts in a row of which less than this share was accepted empty the table."""


@dataclass(frozen=True, slots=True)
class SimpleRule:
    """`ngram-simple`: the latest place where the last `match` tokens stand, and nothing when less
    than `match` tokens can be copied from there."""

    is_per_slot: ClassVar[bool] = False

    match: int
    depth: int

    def drafter(self) -> Drafter:
        """Looks in the request's own tokens only."""
        return _Simple(self)


@dataclass(frozen=True, slots=True)
class MapRule:
    """`ngram-map-k`: drafts only where `depth` tokens can be copied, keeps the first place of
    each n-gram, and after a draft proposes for its key no more than was accepted of it."""

    is_per_slot: ClassVar[bool] = True

    match: int
    depth: int

    def drafter(self) -> Drafter:
        """Keeps places and lengths from request to request."""
        return _Map(self)


@dataclass(frozen=True, slots=True)
class ModRule:
    """`ngram-mod`: one table for all requests, from n-gram to the token that last followed it; a
    draft follows the table token by token and is dropped when shorter than `shortest`."""

    is_per_slot: ClassVar[bool] = False

    match: int
    depth: int
    shortest: int

    def drafter(self) -> Drafter:
        """Keeps its table from request to request."""
        return _Mod(self)


def _verified(text: Text, position: int, draft: Tokens) -> tuple[int, int]:
    """Drafted and accepted tokens of a draft that ends where the answer must."""
    kept = draft[: text.room(position)]
    return len(kept), text.agreeing(position, kept)


@dataclass(slots=True)
class _Simple:
    rule: SimpleRule

    def begin(self, text: Text) -> None:
        """Nothing to prepare."""

    def step(self, text: Text, position: int) -> tuple[int, int]:
        """Drafted and accepted tokens of one step."""
        size, depth, before = self.rule.match, self.rule.depth, position - 1
        if before <= size + depth + 1:
            return 0, 0
        place = text.latest(text.run(position - size, size), 1, before - size - 1)
        if place is None:
            return 0, 0
        length = min(depth, before - place - size)
        if length < size:
            return 0, 0
        return _verified(text, position, text.run(place + size, length))


@dataclass(slots=True)
class _Map:
    """`first`: the first place of every n-gram up to `mapped`. `lengths`: place of a key and how
    much is proposed after it. Places outlive their request where they lie before `begun`."""

    rule: MapRule
    first: dict[Run, int] = field(default_factory=dict)
    mapped: int = 0
    begun: int = 0
    checked: int = 0
    lengths: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, text: Text) -> None:
        """Forget what lies beyond the beginning that this and the last request share in length."""
        size, span = text.start, self.rule.match + self.rule.depth
        kept = self.begun if self.begun <= size else max(0, size - span)
        if size < self.checked:
            self.first = {run: place for run, place in self.first.items() if place < kept}
            self.mapped = max(0, kept - 1)
            self.lengths = [each for each in self.lengths if each[0] < kept]
        self.begun = self.checked = size

    def step(self, text: Text, position: int) -> tuple[int, int]:
        """Drafted and accepted tokens of one step."""
        size, depth, before = self.rule.match, self.rule.depth, position - 1
        if before < 2 * size + depth:
            return 0, 0
        self.checked = before
        key = text.run(position - size, size)
        place = self._place(text, key, before - size - depth - 1)
        self._learn(text, before - size - depth - 1)
        if place is None:
            return 0, 0
        index = self._entry(text, key, place)
        draft = text.run(place + size, min(depth, self.lengths[index][1]))
        drafted, good = _verified(text, position, draft)
        if drafted:
            self.lengths[index] = (self.lengths[index][0], good)
        return drafted, good

    def _place(self, text: Text, key: Run, last: int) -> int | None:
        """Where a key stands: as mapped, else the latest in the prompt, else in the answer."""
        known = self.first.get(key, 0)
        if 0 < known < last and text.run(known, len(key)) == key:
            return known
        prompt_end = self.begun - self.rule.match - self.rule.depth - 1
        for low, high in ((self.mapped, prompt_end), (max(self.begun, self.mapped), last)):
            found = text.latest(key, low + 1, high) if high > 0 else None
            if found is not None:
                return found
        return None

    def _learn(self, text: Text, last: int) -> None:
        """Map what is new, the latest place first, as it is searched."""
        size = self.rule.match
        prompt_end = self.begun - size - self.rule.depth - 1
        for low, high in ((self.mapped, prompt_end), (max(self.begun, self.mapped), last)):
            for place in range(high, low, -1):
                self.first.setdefault(text.run(place, size), place)
        self.mapped = max(self.mapped, last)

    def _entry(self, text: Text, key: Run, place: int) -> int:
        for index, (known, _) in enumerate(self.lengths):
            if text.run(known, len(key)) == key:
                return index
        self.lengths.append((place, self.rule.depth))
        return len(self.lengths) - 1


@dataclass(slots=True)
class _Mod:
    """`taken`: tokens of this request whose n-grams are in the table; `low`: drafts in a row of
    which little was accepted, counted over requests."""

    rule: ModRule
    table: dict[Run, Hashable] = field(default_factory=dict)
    taken: int = 0
    low: int = 0

    def begin(self, text: Text) -> None:
        """The whole prompt is taken at once."""
        self.taken = 0
        if text.start >= self.rule.match:
            self._take(text, text.start - self.rule.match)

    def step(self, text: Text, position: int) -> tuple[int, int]:
        """Drafted and accepted tokens of one step."""
        size, before = self.rule.match, position - 1
        if before < size:
            return 0, 0
        if self.taken + CHUNK < before:
            self._take(text, before - size)
        draft = self._follow(text.run(position - size, size))
        drafted, good = _verified(text, position, draft)
        if drafted:
            self._judge(good / len(draft))
        return drafted, good

    def _take(self, text: Text, end: int) -> None:
        size = self.rule.match
        for place in range(self.taken, end):
            self.table[text.run(place, size)] = text.tokens[place + size]
        self.taken = end

    def _follow(self, last: Run) -> list[Hashable]:
        draft: list[Hashable] = []
        while len(draft) < self.rule.depth:
            token = self.table.get(last)
            if token is None:
                return draft if len(draft) >= self.rule.shortest else []
            draft.append(token)
            last = (*last[1:], token)
        return draft

    def _judge(self, share: float) -> None:
        self.low = self.low + 1 if share < LOW else 0
        if self.low >= LOW_DRAFTS:
            self.table.clear()
            self.low = self.taken = 0
