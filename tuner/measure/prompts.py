"""Owns `Workload`: which prompts are asked in which blocks, at which load points.

The same study file and seed give the same workload everywhere; its digest says so.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.config.workload import LimitsConfig, LoadConfig, TimeoutsConfig, WorkloadConfig
from tuner.errors import UsageError
from tuner.measure.load import read_trace, stable_seed
from tuner.measure.prompt_files import read_prompts
from tuner.measure.realtext import share_random
from tuner.measure.records import LoadPoint, Prompt, Sampling

BUILTIN = Path(__file__).with_name("prompts_mixed.jsonl")

_NAMES = ("Ada", "Ben", "Chloe", "Dario", "Elif", "Femi", "Grace", "Hugo", "Ines", "Jonas")
_TOPICS = ("the archive", "the front desk", "the night shift", "the library", "the workshop")

Blocks = tuple[tuple[Prompt, ...], ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything one launch is measured with.

    Args:
        blocks: the search's prompts; every trial measures these, in this order.
        held_out_blocks: prompts the search never sees, for the confirmation.
        warm_up_prompts: prompts in neither, for warming up (blocks[0] when none are left).
        warm_up: requests per load point before the clock starts; None: until steady.
        cache: as configured; `auto` is `off` where the wire can, otherwise `unique`.
        traces: arrival times by trace path.
        digest: of everything above.
    """

    blocks: Blocks
    held_out_blocks: Blocks
    warm_up_prompts: tuple[Prompt, ...]
    loads: tuple[LoadPoint, ...]
    sampling: Sampling
    warm_up: int | None = None
    cache: str = "auto"
    seed: int = 0
    timeouts: TimeoutsConfig = field(default_factory=TimeoutsConfig)
    limits: LimitsConfig | None = None
    traces: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    digest: str = ""

    def fresh(self, prompt: Prompt, occasion: str) -> Prompt:
        """The prompt behind a short opening line that no other occasion shares.

        The line makes a prefix cache miss; it is plain language, so that acceptance stays what
        it was, and depends on seed, prompt and occasion only, so that every server is asked the
        same. An occasion is one place in one block at one load point of a launch.
        """
        draw = random.Random(stable_seed(self.seed, prompt.id, occasion))
        opening = (
            f"Note {draw.randrange(10**9):09d} from {draw.choice(_NAMES)} at "
            f"{draw.choice(_TOPICS)}.\n\n"
        )
        first, *rest = prompt.messages
        return replace(prompt, messages=({**first, "content": opening + first["content"]}, *rest))


def build_workload(config: WorkloadConfig, seed: int) -> Workload:
    """The workload of a study file. Raises UsageError when prompts are missing or not real."""
    prompts = _distinct(_load(config))
    _refuse_random(prompts)
    size, held_out = config.block_size, config.held_out
    searched = config.blocks * size
    _refuse_too_few(config, len(prompts))
    mixed = _mix(prompts, seed)
    held = mixed[searched : searched + held_out]
    workload = Workload(
        blocks=_split(mixed[:searched], config.blocks, seed),
        held_out_blocks=_split(held, max(1, round(held_out / size)), seed) if held else (),
        warm_up_prompts=tuple(mixed[searched + held_out :]) or tuple(mixed[:size]),
        loads=tuple(map(load_point, config.load)),
        sampling=_sampling(config, seed),
        warm_up=config.warm_up,
        cache=config.cache,
        seed=seed,
        timeouts=config.timeouts,
        limits=config.limits,
        traces={load.trace: read_trace(load.trace) for load in config.load if load.trace},
    )
    return replace(workload, digest=_digest(workload))


def load_point(config: LoadConfig) -> LoadPoint:
    """The load point a study file describes."""
    return LoadPoint(config.concurrency, config.rate, config.arrivals, config.trace)


def _load(config: WorkloadConfig) -> list[Prompt]:
    source = config.prompts
    prompts = read_prompts(Path(source.file) if source.file else BUILTIN)
    if source.categories is None:
        return prompts
    known = sorted({prompt.category for prompt in prompts})
    unknown = sorted(set(source.categories) - set(known))
    if unknown:
        raise UsageError(
            f"workload.prompts.categories: must be among {', '.join(known)}, "
            f"got {', '.join(unknown)}.",
            "Name categories that the prompts have.",
        )
    return [prompt for prompt in prompts if prompt.category in source.categories]


def _distinct(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Prompts with different texts: a repeated one would be in the search and held out."""
    seen: dict[str, Prompt] = {}
    for prompt in prompts:
        seen.setdefault(json.dumps(prompt.messages, sort_keys=True), prompt)
    return list(seen.values())


def _refuse_random(prompts: Sequence[Prompt]) -> None:
    texts = [" ".join(message["content"] for message in prompt.messages) for prompt in prompts]
    share = share_random(texts)
    if share > 0.5:
        raise UsageError(
            f"workload.prompts: must be real text, got {share:.0%} prompts that look like random "
            "tokens. Speculation on random tokens overestimates its gain by about a quarter.",
            "Use prompts of your own traffic, or {builtin: mixed}.",
        )


def _refuse_too_few(config: WorkloadConfig, count: int) -> None:
    needed = config.blocks * config.block_size + config.held_out
    if count >= needed:
        return
    parts = f"{config.blocks} blocks of {config.block_size} + {config.held_out} held out"
    spare = count - config.blocks * config.block_size
    fewer = f", or lower held_out to {spare}" if spare > 0 else ", or lower blocks or block_size"
    raise UsageError(
        f"workload.prompts: must hold at least {needed} distinct prompts ({parts}), got {count}.",
        f"Add {needed - count} prompts{fewer}.",
    )


def _mix(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    """Prompts in an order in which every stretch has the categories in their overall shares."""
    by_category: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_category[prompt.category].append(prompt)
    placed = []
    for category in sorted(by_category):
        members = by_category[category]
        draw = random.Random(stable_seed(seed, "mix", category))
        draw.shuffle(members)
        step = 1 / len(members)
        offset = draw.random()
        placed += [((place + offset) * step, category, m) for place, m in enumerate(members)]
    placed.sort(key=lambda item: item[:2])
    return [prompt for _, _, prompt in placed]


def _split(prompts: Sequence[Prompt], count: int, seed: int) -> Blocks:
    """Consecutive blocks of nearly equal size, each in a seeded order of its own."""
    edges = [round(len(prompts) * place / count) for place in range(count + 1)]
    blocks = []
    for index in range(count):
        block = list(prompts[edges[index] : edges[index + 1]])
        random.Random(stable_seed(seed, "order", index, len(prompts))).shuffle(block)
        blocks.append(tuple(block))
    return tuple(blocks)


def _sampling(config: WorkloadConfig, seed: int) -> Sampling:
    tokens = config.output_tokens
    return Sampling(
        max_tokens=tokens.exactly or tokens.max or 512,
        exact_tokens=tokens.exactly is not None,
        temperature=config.temperature,
        seed=seed if config.temperature > 0 else None,
    )


def _digest(workload: Workload) -> str:
    content = {
        "blocks": [[asdict(prompt) for prompt in block] for block in workload.blocks],
        "held_out": [[asdict(prompt) for prompt in block] for block in workload.held_out_blocks],
        "warm_up": [[prompt.id for prompt in workload.warm_up_prompts], workload.warm_up],
        "loads": [asdict(load) for load in workload.loads],
        "traces": dict(workload.traces),
        "sampling": asdict(workload.sampling),
        "cache": workload.cache,
        "limits": workload.limits.model_dump() if workload.limits else None,
        "seed": workload.seed,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
