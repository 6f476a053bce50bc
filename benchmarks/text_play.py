"""Text play against recorded counters: what lookups draft, computed and counted. One command:

    python -m benchmarks.text_play

For every `landscapes/NAME.texts.json` (prompts and greedy answers of the baseline, as the model's
tokens) each server of the landscape beside it is played and compared with what the real server
counted, block by block. A block whose answer had another length when it was recorded is left out.
"as words": the same with words in the place of tokens, as a study plays it.

    python -m benchmarks.text_play --record STUDY.yaml --server http://127.0.0.1:8080

asks a running llama.cpp server without speculation for those texts, one request at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from tuner.config.loader import load_study
from tuner.measure.landscape import Landscape, RecordedBlock
from tuner.measure.prompts import build_workload
from tuner.measure.records import Prompt
from tuner.model.lookup import LookupCounts, Rule, Text, play, simple_tokens
from tuner.search.lookup_rules import rule_of, slots_of
from tuner.search.model_servers import roles_of
from tuner.search.replay_table import tables_of

HERE = Path(__file__).parent / "landscapes"
HEADER = ("landscape", "method", "servers", "blocks", "exact", "accepted off", "as words")
SUFFIXES = (".json", ".csv")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a launch in the order of sending; `block` is -1 for a warm-up."""

    block: int
    asked: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    said: str


@dataclass(frozen=True, slots=True)
class Pair:
    """One block of one server: what was computed, from tokens and from words, and counted."""

    method: str
    server: str
    computed: tuple[float, float]
    words: tuple[float, float]
    counted: tuple[float, float]


def read_texts(path: Path) -> tuple[list[Request], int]:
    """Requests of a texts file, and the most tokens an answer could have."""
    data = json.loads(path.read_text(encoding="utf-8"))
    requests = [
        Request(each["block"], each["asked"], tuple(each["prompt"]), tuple(each["answer"]),
                each["said"])
        for each in data["requests"]
    ]  # fmt: skip
    return requests, int(data["most"])


def pairs_of(landscape: Landscape, requests: Sequence[Request], most: int) -> Iterator[Pair]:
    """Every block that was answered as it was recorded, of every server with a known rule."""
    load = landscape.loads[0]
    tokens = [Text(each.prompt, each.answer, most) for each in requests]
    words = [Text(simple_tokens(r.asked), simple_tokens(r.said)) for r in requests if r.block >= 0]
    lengths = _per_block(requests, [float(len(each.answer)) for each in requests])
    for server in landscape.servers:
        roles = roles_of(server.args)
        rule = rule_of(roles)
        blocks = server.launches[0].blocks.get(load, ())
        if rule is None or not blocks:
            continue
        slots = slots_of(roles)
        computed = _counts(requests, _launched(requests, tokens, rule, slots))
        measured = [each for each in requests if each.block >= 0]
        rough = _counts(measured, play(words, rule, slots))
        for index, block in enumerate(blocks):
            if block.tokens == lengths.get(index):
                yield Pair(roles.method, server.args.digest, computed[index], rough[index],
                           _counted(block))  # fmt: skip


def _launched(
    requests: Sequence[Request], texts: Sequence[Text], rule: Rule, slots: int
) -> list[LookupCounts]:
    """A launch from its warm-up on, which always goes to the first slot."""
    first = sum(each.block < 0 for each in requests)
    padded = [*texts[:first], *[Text((), ())] * (-first % slots), *texts[first:]]
    played = play(padded, rule, slots)
    return [*played[:first], *played[len(padded) - len(texts) + first :]]


def _counted(block: RecordedBlock) -> tuple[float, float]:
    return block.drafted or 0.0, block.accepted or 0.0


def _counts(
    requests: Sequence[Request], played: Sequence[LookupCounts]
) -> dict[int, tuple[float, float]]:
    drafted = _per_block(requests, [float(each.drafted) for each in played])
    accepted = _per_block(requests, [float(each.accepted) for each in played])
    return {block: (drafted[block], accepted[block]) for block in drafted}


def _per_block(requests: Sequence[Request], values: Sequence[float]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for request, value in zip(requests, values, strict=True):
        sums[request.block] = sums.get(request.block, 0.0) + value
    return sums


def rows(name: str, pairs: Sequence[Pair]) -> Iterator[list[str]]:
    """One row per method: share of blocks computed exactly, and how far the accepted tokens of a
    whole server are off, in the median."""
    for method in sorted({each.method for each in pairs}):
        own = [each for each in pairs if each.method == method]
        servers = list(dict.fromkeys(each.server for each in own))
        exact = sum(each.computed == each.counted for each in own)
        off = statistics.median(_off(own, server, "computed") for server in servers)
        rough = statistics.median(_off(own, server, "words") for server in servers)
        yield [name, method, str(len(servers)), str(len(own)), f"{exact} of {len(own)}",
               f"{off:.0%}", f"{rough:.0%}"]  # fmt: skip


def _off(pairs: Sequence[Pair], server: str, which: Literal["computed", "words"]) -> float:
    own = [each for each in pairs if each.server == server]
    computed = sum((each.computed if which == "computed" else each.words)[1] for each in own)
    counted = sum(each.counted[1] for each in own)
    return abs(computed - counted) / max(counted, 1.0)


def ask(client: httpx.Client, prompt: Prompt, block: int, most: int) -> dict[str, Any]:
    """One greedy answer of a llama.cpp server, with its tokens."""
    messages = [dict(message) for message in prompt.messages]
    said = _post(client, "/apply-template", {"messages": messages})["prompt"]
    tokens = _post(client, "/tokenize", {"content": said, "add_special": True,
                                         "parse_special": True})["tokens"]  # fmt: skip
    answer = _post(client, "/v1/chat/completions", {
        "messages": messages, "max_tokens": most, "temperature": 0, "cache_prompt": False,
        "return_tokens": True, "verbose": True,
    })["__verbose"]  # fmt: skip
    asked = "\n".join(message["content"] for message in messages)
    return {"block": block, "asked": asked, "prompt": tokens, "answer": answer["tokens"],
            "said": answer["content"]}  # fmt: skip


def _post(client: httpx.Client, path: str, body: Mapping[str, Any]) -> Any:
    reply = client.post(path, json=body, timeout=300.0)
    reply.raise_for_status()
    return reply.json()


def record(study: Path, server: str) -> Path:
    """Write the texts of a study's landscape: its warm-up request, then its blocks."""
    loaded = load_study(study)
    workload = build_workload(loaded.config.workload, loaded.config.search.seed)
    warm_up = workload.warm_up_prompts[: workload.warm_up or 0]
    order = [(-1, prompt) for prompt in warm_up]
    order += [(i, prompt) for i, block in enumerate(workload.blocks) for prompt in block]
    most = workload.sampling.max_tokens
    with httpx.Client(base_url=server) as client:
        requests = [ask(client, prompt, block, most) for block, prompt in order]
    path = study.with_suffix(".texts.json")
    lines = ",\n".join(json.dumps(each) for each in requests)
    path.write_text(f'{{"most": {most}, "requests": [\n{lines}\n]}}\n', encoding="utf-8")
    return path


def table(folder: Path = HERE) -> list[list[str]]:
    """Rows of every landscape that has texts."""
    found = []
    for path in sorted(folder.glob("*.texts.json")):
        requests, most = read_texts(path)
        name = path.name.removesuffix(".texts.json")
        beside = next(p for s in SUFFIXES if (p := folder / f"{name}{s}").exists())
        landscape = tables_of([beside])[0].landscape
        found += list(rows(name, list(pairs_of(landscape, requests, most))))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, or record texts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, metavar="STUDY")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    options = parser.parse_args(argv)
    if options.record:
        print(record(options.record, options.server))
        return 0
    for row in (list(HEADER), ["---"] * len(HEADER), *table()):
        print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
