"""Owns a server whose steps follow the batch size: SGLang's adaptive mode, pinned slot by slot."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.args import FlagValue, ServerArgs
from tuner.engines.depths import DepthTable, first_batches
from tuner.engines.sglang import flags as F
from tuner.engines.sglang.adaptive import parse_adaptive, render_adaptive, starting_steps
from tuner.engines.sglang.canonical import adaptive_obstacle, canonical
from tuner.engines.sglang.render import BESIDE as FILE
from tuner.engines.sglang.view import ServerView

FLAG = "speculative-adaptive-config"


def chain_depth(args: ServerArgs) -> int | None:
    """Steps of a server that could be one entry of an adaptive table, 0 without speculation."""
    if not F.algorithm_of(args.flags):
        return 0
    view = ServerView(args)
    if view.on("speculative-adaptive") or adaptive_obstacle(view):
        return None
    return view.steps


def scheduled(args: ServerArgs, best: Mapping[int, int], folder: str) -> DepthTable:
    """The server with one pinned step count from each batch size on, 0 included."""
    text = render_adaptive(first_batches(best))
    steps = starting_steps(parse_adaptive(text))
    changes: dict[str, FlagValue | None] = {
        "speculative-adaptive": True,
        FLAG: f"{folder}/{FILE}" if folder else FILE,
        F.STEPS: steps,
        F.TOPK: 1,
        F.DRAFT_TOKENS: steps + 1,
    }
    return DepthTable(canonical(args.replace(changes)), {FILE: text})


def beside(flags: Mapping[str, FlagValue], folder: str) -> dict[str, FlagValue]:
    """The flags with a table that lies beside server.yaml named in full: SGLang would look for
    it in the working folder."""
    return {
        name: f"{folder}/{value}" if name == FLAG and value == FILE else value
        for name, value in flags.items()
    }
