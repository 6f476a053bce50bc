"""Writes the generated landscapes under benchmarks/landscapes: shapes that no CPU can give.

Everything here is computed, nothing is measured, and every table says so. Acceptance, speeds and
effects are taken from the published figures named beside them; what no source gives (the split
of a step, the size of noise) is stated as assumed.

    python benchmarks/generate_landscapes.py
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tuner.args import ServerArgs
from tuner.measure.landscape import (
    Landscape,
    RecordedBlock,
    RecordedLaunch,
    RecordedServer,
    landscape_text,
)
from tuner.model.lookup import LookupRule, Text, replay_lookup, simple_tokens

HERE = Path(__file__).parent / "landscapes"
PROMPTS = Path(__file__).parent.parent / "tuner" / "measure" / "prompts_mixed.jsonl"
REPEATS = 6
BLOCKS = 6


@dataclass(frozen=True, slots=True)
class Host:
    """Seconds of a host: per request, target pass, draft, verified token, draft pass; how much
    launches and blocks vary (exponential slow-downs, relative); how long a launch takes."""

    request: float
    step: float
    draft: float
    verified: float
    draft_pass: float
    launch_noise: float = 0.02
    block_noise: float = 0.02
    launch_s: float = 180.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What one block counts at one load point; `batch` requests share a pass."""

    tokens: float
    requests: int
    steps: float
    drafts: float
    drafted: float
    accepted: float
    passes: float


@dataclass(slots=True)
class Maker:
    """Turns counts into launches with noise; one random stream per landscape."""

    host: Host
    seed: int
    draw: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)

    def launch(
        self, blocks: dict[str, list[Counts]], factor: float, positions: Sequence[float] = ()
    ) -> RecordedLaunch:
        """One noisy launch; `factor` multiplies every pass of the target."""
        slow = 1.0 + self.draw.exponential(self.host.launch_noise)
        rows = {
            load: tuple(self._row(counts, factor * slow, load) for counts in found)
            for load, found in blocks.items()
        }
        seconds = self.host.launch_s * (1.0 + self.draw.exponential(0.1))
        return RecordedLaunch(rows, seconds, per_position=tuple(positions))

    def _row(self, counts: Counts, factor: float, load: str) -> RecordedBlock:
        host, batch = self.host, int(load.removeprefix("c"))
        # A pass serves every running request; verified tokens are computed for each of them.
        passes = (counts.steps * host.step + counts.drafts * host.draft) / batch
        work = counts.drafted * host.verified * (1.0 + 0.01 * batch)
        drafting = counts.passes * host.draft_pass / batch
        seconds = counts.requests * host.request / batch + (passes + work) * factor + drafting
        seconds *= 1.0 + self.draw.exponential(self.host.block_noise)
        return RecordedBlock(
            counts.tokens, seconds, counts.requests, counts.drafted, counts.accepted, counts.steps
        )


def accepted_of(rates: Sequence[float], depth: int) -> tuple[float, list[float]]:
    """Accepted tokens per draft and the share of drafts that accept each position."""
    shares = list(itertools.accumulate(rates[:depth], lambda a, b: a * b))
    return sum(shares), shares


def chain_counts(accepted: float, depth: int, nodes: int, scale: float) -> Counts:
    """Counts of a block of 8 requests with 128 tokens each, every step drafting."""
    tokens, requests = 1024.0, 8
    length = 1.0 + accepted * scale
    steps = round(tokens / length)
    return Counts(tokens, requests, steps, steps, steps * nodes, tokens - steps, steps * depth)


def idle_counts() -> Counts:
    """The same block without speculation."""
    return Counts(1024.0, 8, 1024.0, 0.0, 0.0, 0.0, 0.0)


SCALES = (1.15, 1.08, 1.0, 0.97, 0.92, 0.85)
"""How much easier or harder each block's prompts are to draft for (assumed)."""


# ---- drafts by a model -----------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Draft:
    """A draft model: conditional acceptance per position, and how much each doubling of
    alternatives lifts it, in logits."""

    rates: tuple[float, ...]
    lift: float = 0.45

    def at(self, branch: float) -> list[float]:
        """Rates with so many alternatives per position."""
        logits = [math.log(r / (1 - r)) + self.lift * math.log2(branch) for r in self.rates]
        return [1 / (1 + math.exp(-each)) for each in logits]


def rates_from(shares: Sequence[float], depth: int = 10) -> tuple[float, ...]:
    """Conditional acceptance from unconditional shares per position; the last one goes on."""
    rates = [b / a for a, b in itertools.pairwise([1.0, *shares])]
    return (*rates, *[rates[-1]] * (depth - len(rates)))


NCCL = {
    # -27 % verification time for LL, Ring and SYS together on 8 PCIe GPUs (Kimi-K2.5, the
    # founding story). The split between the three is assumed.
    "NCCL_PROTO": {"unset": 1.0, "LL": 0.86, "Simple": 1.04},
    "NCCL_ALGO": {"unset": 1.0, "Ring": 0.94, "Tree": 1.05},
    "NCCL_P2P_LEVEL": {"unset": 1.0, "PIX": 1.06, "SYS": 0.90},
}


def tree_points() -> Iterator[tuple[int, int, int]]:
    """Legal (steps, topk, draft tokens): a chain has steps + 1, a tree has a capacity."""
    for steps, topk in itertools.product(range(1, 8), (1, 2, 4, 8)):
        sizes = (steps + 1,) if topk == 1 else (4, 8, 16, 32)
        for size in sizes:
            if size - 1 <= topk + (steps - 1) * topk**2:
                yield steps, topk, size


def tree_accepted(draft: Draft, steps: int, topk: int, size: int) -> tuple[float, list[float]]:
    """Acceptance of a tree: alternatives as far as its tokens reach."""
    branch = min(float(topk), max(1.0, (size - 1) / steps))
    depth = min(steps, size - 1)
    return accepted_of(draft.at(branch), depth)


def eagle(
    name: str, note: str, draft: Draft, host: Host, loads: Sequence[str], *, nccl: bool = False
) -> Landscape:
    """EAGLE trees, with or without NCCL settings, with a region that runs out of memory."""
    maker = Maker(host, seed=len(name))
    choices = NCCL if nccl else {}
    servers = [_off(maker, loads)]
    for steps, topk, size in tree_points():
        if nccl and topk > 2:
            continue
        for values in itertools.product(*(table for table in choices.values())):
            env = dict(zip(choices, values, strict=True))
            factor = math.prod(choices[key][value] for key, value in env.items())
            flags = {"speculative-num-steps": steps, "speculative-eagle-topk": topk,
                     "speculative-num-draft-tokens": size}  # fmt: skip
            args = ServerArgs(flags, {k: v for k, v in env.items() if v != "unset"})
            servers.append(_tree_server(maker, args, draft, (steps, topk, size), (factor, loads)))
    return Landscape(name, tuple(servers), "generated", note, "model")


def _off(maker: Maker, loads: Sequence[str]) -> RecordedServer:
    blocks = {load: [idle_counts()] * BLOCKS for load in loads}
    launches = tuple(maker.launch(blocks, 1.0) for _ in range(REPEATS))
    return RecordedServer(ServerArgs(), launches, is_baseline=True)


def _tree_server(
    maker: Maker,
    args: ServerArgs,
    draft: Draft,
    tree: tuple[int, int, int],
    run: tuple[float, Sequence[str]],
) -> RecordedServer:
    steps, topk, size = tree
    factor, loads = run
    if topk >= 4 and size >= 32:  # assumed: wide trees do not fit beside the cache
        failed = RecordedLaunch({}, 60.0, "out_of_memory", "CUDA out of memory")
        return RecordedServer(args, (failed,) * REPEATS)
    accepted, shares = tree_accepted(draft, steps, topk, size)
    blocks = {
        load: [chain_counts(accepted, steps, size - 1, scale) for scale in SCALES]
        for load in loads
    }
    positions = shares if topk == 1 else ()
    return RecordedServer(
        args, tuple(maker.launch(blocks, factor, positions) for _ in range(REPEATS))
    )


# ---- lookups ---------------------------------------------------------------------------------
def texts(category: str, seed: int, count: int = 12) -> list[tuple[list[str], list[str]]]:
    """Prompt and answer tokens: an edit copies the prompt and changes a token here and there, a
    chat answers with the words of other prompts."""
    rng = np.random.default_rng(seed)
    rows = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    long = [simple_tokens(_content(row)) for row in rows]
    long = [tokens for tokens in long if len(tokens) > 40]
    found = []
    for index in range(count):
        prompt = long[(seed + index * 7) % len(long)]
        answer = list(prompt[:120])
        if category == "edit":
            change = rng.uniform(size=len(answer)) < rng.choice([0.02, 0.06, 0.12])
            answer = [
                f"~{i}" if new else old
                for i, (old, new) in enumerate(zip(answer, change, strict=True))
            ]
        else:
            answer = list(long[(seed + index * 11 + 3) % len(long)][:120])
        found.append((list(prompt), answer))
    return found


def _content(row: dict[str, object]) -> str:
    messages = row.get("messages")
    if isinstance(messages, list):
        return " ".join(str(message["content"]) for message in messages)
    return str(row.get("prompt", ""))


def lookup_counts(pairs: Sequence[tuple[list[str], list[str]]], rule: LookupRule) -> list[Counts]:
    """Exact counts of every block when the rule is played on its texts."""
    found = []
    for part in np.array_split(np.arange(len(pairs)), BLOCKS):
        played = [replay_lookup(Text(*pairs[int(i)]), rule) for i in part]
        found.append(
            Counts(
                tokens=sum(p.tokens for p in played),
                requests=len(played),
                steps=sum(p.steps for p in played),
                drafts=sum(p.drafts for p in played),
                drafted=sum(p.drafted for p in played),
                accepted=sum(p.tokens - p.steps for p in played),
                passes=0.0,
            )
        )
    return found


def lookups(name: str, note: str, category: str, host: Host, seed: int) -> Landscape:
    """Two n-gram methods of llama.cpp and their sizes."""
    pairs, maker = texts(category, seed), Maker(host, seed)
    idle = [
        Counts(sum(len(pairs[int(i)][1]) for i in part), len(part),
               sum(len(pairs[int(i)][1]) for i in part), 0, 0, 0, 0)
        for part in np.array_split(np.arange(len(pairs)), BLOCKS)
    ]  # fmt: skip
    launches = tuple(maker.launch({"c1": idle}, 1.0) for _ in range(REPEATS))
    servers = [RecordedServer(ServerArgs({"spec-type": "none"}), launches, is_baseline=True)]
    for method, match, depth in itertools.product(
        ("ngram-simple", "ngram-map-k"), (2, 3, 4, 6, 8, 12), (2, 4, 8, 16, 32, 48)
    ):
        shortest = match if method == "ngram-simple" else min(depth, 2)
        is_latest = method == "ngram-simple"
        rule = LookupRule(match, depth, shortest=shortest, is_latest=is_latest)
        counts = lookup_counts(pairs, rule)
        args = ServerArgs({"spec-type": method, "size-n": match, "size-m": depth})
        made = tuple(maker.launch({"c1": counts}, 1.0) for _ in range(REPEATS))
        servers.append(RecordedServer(args, made))
    return Landscape(name, tuple(servers), "generated", note, "lookup")


def vllm_lookups(name: str, note: str, category: str, host: Host, seed: int) -> Landscape:
    """Prompt lookup as vLLM has it: a longest and a shortest match, one number of tokens."""
    pairs, maker = texts(category, seed), Maker(host, seed)
    off = lookup_counts(pairs, LookupRule(400, 1))
    launches = tuple(maker.launch({"c1": off}, 1.0) for _ in range(REPEATS))
    servers = [RecordedServer(ServerArgs({"method": "none"}), launches, is_baseline=True)]
    for tokens, most, least in itertools.product(
        (1, 2, 3, 4, 5, 6, 8, 10), range(2, 7), range(1, 7)
    ):
        if least > most:
            continue
        counts = lookup_counts(pairs, LookupRule(most, tokens, least=least, is_latest=False))
        args = ServerArgs({"method": "ngram", "num-speculative-tokens": tokens,
                           "prompt-lookup-max": most, "prompt-lookup-min": least})  # fmt: skip
        made = tuple(maker.launch({"c1": counts}, 1.0) for _ in range(REPEATS))
        servers.append(RecordedServer(args, made))
    return Landscape(name, tuple(servers), "generated", note, "lookup")


# ---- the tables ------------------------------------------------------------------------------
GPU = Host(0.02, 0.0112, 0.001, 0.0018, 0.001)
"""88.8 tok/s without speculation (the founding story, 8 PCIe GPUs); the rest is assumed."""

SMALL_GPU = Host(0.01, 1 / 158.34, 0.0003, 0.00005, 0.00045)
CPU = Host(0.005, 0.0074, 0.0054, 0.0033, 0.004, 0.04, 0.05, 0.6)
"""The clock of a two-core machine fitted on a recorded table; noise of about 8 %."""


def landscapes() -> Iterator[Landscape]:
    """Every generated landscape."""
    weak = Draft(rates_from((0.58, 0.34, 0.22, 0.15, 0.11)))
    strong = Draft(rates_from((0.83, 0.68, 0.56, 0.46, 0.38)))
    edit = Draft(rates_from((0.77, 0.45, 0.24)))
    yield eagle(
        "generated-eagle-8xpcie-nccl",
        "acceptance .58 .34 .22 .15 .11 (vLLM PR 24243); NCCL -27 % (founding story)",
        weak, GPU, ("c1",), nccl=True,
    )  # fmt: skip
    yield eagle(
        "generated-eagle3-tree",
        "acceptance length 4.68 at 5 steps (SGLang PR 4247) approached by .83 .68 .56 .46 .38; "
        "158 tok/s without speculation; wide trees run out of memory (assumed)",
        strong, SMALL_GPU, ("c1", "c8", "c64"),
    )  # fmt: skip
    yield eagle(
        "generated-eagle-edit",
        "acceptance .77 .45 .24 (vLLM PR 24344); a slow verification (assumed)",
        edit, Host(0.02, 0.0112, 0.0015, 0.0007, 0.0012, 0.03, 0.03), ("c1", "c16"),
    )  # fmt: skip
    yield eagle(
        "generated-draft-loses",
        "acceptance .69 and about 0 after (LLMKube issue 1423), drafting on a slow host: the "
        "baseline is the truth",
        Draft((0.30, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)),
        Host(0.01, 0.0075, 0.004, 0.003, 0.004, 0.04, 0.05, 2.0), ("c1",),
    )  # fmt: skip
    yield lookups("generated-ngram-edit", "n-gram rules played on edited texts", "edit", CPU, 5)
    yield lookups("generated-ngram-chat", "n-gram rules played on chat texts", "chat", CPU, 6)
    gpu = Host(0.01, 1 / 174, 0.0004, 0.0001, 0.0, 0.02, 0.02, 90.0)
    yield vllm_lookups(
        "generated-vllm-ngram-edit",
        "prompt lookup played on edited texts; 174 tok/s without (LLMKube issue 1423)",
        "edit", gpu, 7,
    )  # fmt: skip


def main() -> None:
    """Write every table."""
    HERE.mkdir(exist_ok=True)
    for landscape in landscapes():
        (HERE / f"{landscape.name}.json").write_text(landscape_text(landscape))


if __name__ == "__main__":
    main()
