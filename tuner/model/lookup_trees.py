"""Owns lookups that keep a tree of what was said: suffix decoding (vLLM) and NGRAM (SGLang).

Both see a request token by token and remember the answers of earlier requests. Where several
continuations are equally frequent, the engines' choice depends on their containers and the drafts
may differ from these: in 1 % of steps for suffix decoding, in 8 % for NGRAM by chance.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import ClassVar, TypeAlias

from tuner.model.lookup import Drafter, Text, Tokens

ROUNDING = 1e-6
"""vLLM adds it before cutting a draft's length to a whole number."""


@dataclass(slots=True)
class Node:
    """A run of tokens: how often it occurred and what followed, the latest last where it is a
    trie of recent runs."""

    count: int = 0
    children: dict[Hashable, Node] = field(default_factory=dict)

    def below(self, run: Sequence[Hashable]) -> Node | None:
        """The node at the end of a run that begins here."""
        node: Node | None = self
        for token in run:
            node = node.children.get(token) if node else None
        return node


Heap: TypeAlias = list[tuple[float, int, int, Hashable, Node]]
"""Likeliest first: chance with its sign turned, order of arrival, parent, token, node."""


@dataclass(frozen=True, slots=True)
class SuffixRule:
    """Suffix decoding: of all matches, own prompt and answer first, the one whose continuation
    has the most expected tokens; no more than `factor` times the match, and only while the chance
    of the whole draft is at least `chance`.

    Args:
        depth: most drafted tokens.
        tree: longest run that is kept.
        factor: drafted tokens per matched token.
        chance: least chance by counts.
        remembers: earlier answers are matched too.
    """

    is_per_slot: ClassVar[bool] = False

    depth: int
    tree: int = 24
    factor: float = 1.0
    chance: float = 0.1
    remembers: bool = True

    def drafter(self) -> Drafter:
        """Remembers all answers."""
        return _Suffixes(self)


@dataclass(frozen=True, slots=True)
class TrieRule:
    """NGRAM: every step verifies a tree of `nodes` tokens, taken from all matches, the longest
    first; `narrow` to `wide` children per node, the latest first, or by chance.

    After a step the last `tree` tokens are learned; the rest of the prompt never is.
    """

    is_per_slot: ClassVar[bool] = False

    nodes: int
    tree: int = 18
    narrow: int = 1
    wide: int = 10
    by_chance: bool = False

    def drafter(self) -> Drafter:
        """Remembers all answers."""
        return _Trie(self)


class _Counted:
    """Every run of up to `depth` tokens of some sequences, with its count."""

    def __init__(self, depth: int) -> None:
        self.root, self.open = Node(), deque[Node](maxlen=depth)

    def restart(self) -> None:
        """The next token begins another sequence."""
        self.open.clear()

    def append(self, token: Hashable) -> None:
        """One more token of the sequence."""
        self.open.append(self.root)
        for index, node in enumerate(self.open):
            child = node.children.get(token) or node.children.setdefault(token, Node())
            child.count += 1
            self.open[index] = child

    def best(self, context: Tokens, rule: SuffixRule) -> tuple[float, list[Hashable]]:
        """The continuation with the highest expected number of right tokens."""
        score, draft = 0.0, list[Hashable]()
        for size in range(1, len(context)):
            node = self.root.below(context[len(context) - size :])
            if node is None:
                break
            most = min(rule.depth, int(size * rule.factor + ROUNDING))
            found, tokens = _likeliest(node, most, rule.chance)
            if found >= score:
                score, draft = found, tokens
        return score, draft


def _likeliest(node: Node, most: int, least: float) -> tuple[float, list[Hashable]]:
    chance, score, tokens = 1.0, 0.0, list[Hashable]()
    while len(tokens) < most and node.children:
        token, child = max(node.children.items(), key=lambda item: item[1].count)
        chance *= child.count / node.count
        if chance < least:
            break
        tokens.append(token)
        score, node = score + chance, child
    return score, tokens


class _Suffixes:
    """The own tree holds prompt and answer, the shared one all answers."""

    def __init__(self, rule: SuffixRule) -> None:
        self.rule, self.shared = rule, _Counted(rule.tree)
        self.own, self.fed = _Counted(rule.tree), 0

    def begin(self, text: Text) -> None:
        """The prompt is taken at once."""
        self.own, self.fed = _Counted(self.rule.tree), text.start
        self.shared.restart()
        for token in text.tokens[: text.start]:
            self.own.append(token)

    def step(self, text: Text, position: int) -> tuple[int, int]:
        """Drafted and accepted tokens of one step."""
        for token in text.tokens[self.fed : position]:
            self.own.append(token)
            if self.rule.remembers:
                self.shared.append(token)
        self.fed = position
        context = text.run(max(0, position - self.rule.tree), min(position, self.rule.tree))
        score, draft = self.own.best(context, self.rule)
        if self.rule.remembers:
            shared_score, shared = self.shared.best(context, self.rule)
            draft = shared if shared_score > score else draft
        return len(draft), text.agreeing(position, draft)


class _Trie:
    """`last`: the end of the request before, which is learned when the next one begins."""

    def __init__(self, rule: TrieRule) -> None:
        self.rule, self.root, self.turn = rule, Node(), count()
        self.last: Tokens = ()

    def begin(self, text: Text) -> None:
        """Nothing is learned from the prompt."""
        self._learn(self.last)
        self.last = text.tokens[-self.rule.tree :]

    def step(self, text: Text, position: int) -> tuple[int, int]:
        """Drafted and accepted tokens of one step; the tree always has all its tokens."""
        start = max(0, position - self.rule.tree)
        window = text.run(start, position - start)
        tree = self._tree(window)
        self._learn(window)
        good, node = 0, 0
        for token in text.tokens[position:]:
            if token not in tree[node]:
                break
            good, node = good + 1, tree[node][token]
        return self.rule.nodes - 1, good

    def _learn(self, window: Tokens) -> None:
        for start in range(len(window)):
            node = self.root
            for token in window[start:]:
                child = node.children.pop(token, None) or Node()
                child.count += 1
                node.children[token] = child  # moves to the end: the latest
                node = child

    def _tree(self, window: Tokens) -> list[dict[Hashable, int]]:
        """Children of every tree node, by token; node 0 is the last known token."""
        tree: list[dict[Hashable, int]] = [{}]
        grow = self._by_chance if self.rule.by_chance else self._by_age
        for size in range(len(window), 0, -1):
            node = self.root.below(window[len(window) - size :])
            if node is not None and node.children:
                grow(tree, node, size)
        return tree

    def _by_age(self, tree: list[dict[Hashable, int]], node: Node, size: int) -> None:
        span = max(1, self.rule.tree - 1)
        slope = (self.rule.wide - self.rule.narrow) / span
        queue = deque([(0, (span - size) * slope + self.rule.narrow, node)])
        while queue and len(tree) < self.rule.nodes:
            parent, breadth, node = queue.popleft()
            for token, child in islice(reversed(node.children.items()), max(1, int(breadth))):
                if len(tree) >= self.rule.nodes:
                    break
                queue.append((_placed(tree, parent, token), breadth - slope, child))

    def _by_chance(self, tree: list[dict[Hashable, int]], node: Node, size: int) -> None:
        heap: Heap = []
        self._offer(heap, 0, node, 1.0)
        while heap and len(tree) < self.rule.nodes:
            chance, _, parent, token, child = heapq.heappop(heap)
            self._offer(heap, _placed(tree, parent, token), child, -chance)

    def _offer(self, heap: Heap, parent: int, node: Node, chance: float) -> None:
        kept = sorted(node.children.items(), key=lambda item: -item[1].count)[: self.rule.wide]
        total = sum(child.count for _, child in kept)
        for token, child in kept:
            entry = (-chance * child.count / total, next(self.turn), parent, token, child)
            heapq.heappush(heap, entry)


def _placed(tree: list[dict[Hashable, int]], parent: int, token: Hashable) -> int:
    """The tree node of a token below a parent, made where there is none."""
    place = tree[parent].get(token)
    if place is None:
        place = tree[parent][token] = len(tree)
        tree.append({})
    return place
