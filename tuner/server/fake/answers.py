"""Owns what the fake server says: a deterministic greedy answer per prompt, and its flaws."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.server.fake.behaviour import Behaviour

_TEXT = (
    "the a of to and in that it is was for on with as at by from this have not are but had they"
    " which one you were all there would their we been has when who will more no if out so said"
    " what up its about into than them can only other new some could time these two may then do"
    " first any my now such like our over man me even most made after also did many before must"
    " through back years where much your way well down should because each just those people how"
    " too little state good very make world still own see men work long get here between both"
    " life being under never day same another know while last might us great old year off come"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Answer:
    """The words of one answer and why it ends."""

    words: tuple[str, ...]
    finish_reason: str
    seed: int


def seed_of(*parts: str) -> int:
    """A stable number for some texts."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8])


def write_answer(
    behaviour: Behaviour, prompt: str, max_tokens: int, launch: str, *, garbage: bool, exact: bool
) -> Answer:
    """The answer to a prompt: the same at every launch unless the behaviour says otherwise."""
    seed = seed_of(prompt)
    wanted = behaviour.answer_tokens or 32 + seed % 64
    length = max_tokens if exact else min(max_tokens, wanted)
    source = random.Random(seed_of(prompt, launch) if garbage else seed)
    words = source.choices(_WORDS, k=length)
    is_flipped = (seed >> 32) % 1000 < behaviour.flip_share * 1000
    if is_flipped and length > 1:
        at = length - 1 - (seed >> 16) % max(1, length // 4)
        words[at:] = random.Random(seed_of(prompt, launch)).choices(_WORDS, k=length - at)
    reason = "length" if length >= max_tokens else "stop"
    return Answer(tuple(f" {word}" for word in words), reason, seed)


def accepted_counts(chances: Sequence[float], tokens: int, seed: int) -> list[int]:
    """Accepted drafts of each step until `tokens` are out; the last step may exceed them."""
    source = random.Random(seed ^ 0x5EED)
    counts = []
    written = 0
    while written < tokens:
        accepted = 0
        for chance in chances:
            if source.random() >= chance:
                break
            accepted += 1
        counts.append(accepted)
        written += 1 + accepted
    return counts
