"""Owns the command line of the fake server: a small engine's flags, refused when unknown."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import Any

from tuner.server.fake.behaviour import Behaviour, load_behaviour
from tuner.server.fake.overrides import resolve
from tuner.server.fake.speed import Speculation, read_schedule


@dataclass(frozen=True, slots=True)
class Flags:
    """What the server was started with."""

    host: str
    port: int
    model: str
    speculation: Speculation
    max_running: int
    threads: int

    @property
    def schedule_text(self) -> str:
        """The table as it was given, "" without one."""
        return ",".join(f"{first}:{steps}" for first, steps in self.speculation.schedule)

    def effective(self) -> dict[str, Any]:
        """Resolved values by flag name, as /server_info and /props report them."""
        return {
            "spec-steps": self.speculation.steps,
            "spec-topk": self.speculation.topk,
            "spec-draft-tokens": self.speculation.draft_tokens,
            "max-running-requests": self.max_running,
            "threads": self.threads,
        } | ({"spec-schedule": self.schedule_text} if self.schedule_text else {})


def parser() -> argparse.ArgumentParser:
    """The flags; an unknown one ends the program with exit code 2, as engines do."""
    result = argparse.ArgumentParser(prog="fake-server", allow_abbrev=False)
    result.add_argument("--version", action="version", version="fake-server 1.0 (synthetic)")
    result.add_argument("--host", default="127.0.0.1")
    result.add_argument("--port", type=int, required=True)
    result.add_argument("--model", default="fake", help="id of the served model")
    result.add_argument("--draft-model", default=None, help="accepted, not read")
    result.add_argument("--behaviour", default="{}", help="JSON, or @file")
    result.add_argument("--spec-steps", type=int, default=0, help="draft steps, 0: off")
    result.add_argument("--spec-topk", type=int, default=1)
    result.add_argument("--spec-draft-tokens", type=int, default=0, help="0: steps + 1")
    result.add_argument("--spec-schedule", default="", help="FIRST:STEPS,…: by running requests")
    result.add_argument("--max-running-requests", type=int, default=256)
    result.add_argument("--threads", type=int, default=1, help="accepted, changes nothing")
    return result


def parse(argv: list[str]) -> tuple[Flags, Behaviour]:
    """Flags and behaviour of a command line; exits with code 2 for what it does not accept."""
    known = parser()
    given = known.parse_args(argv)
    tokens = given.spec_draft_tokens or (given.spec_steps + 1 if given.spec_steps else 0)
    if given.spec_topk == 1 and given.spec_steps:
        tokens = given.spec_steps + 1
    try:
        schedule = read_schedule(given.spec_schedule)
    except ValueError as error:
        known.error(f"--spec-schedule: must be FIRST:STEPS,…, got {error}")
    flags = Flags(
        host=given.host,
        port=given.port,
        model=given.model,
        speculation=Speculation(given.spec_steps, given.spec_topk, tokens, schedule),
        max_running=given.max_running_requests,
        threads=given.threads,
    )
    try:
        behaviour = load_behaviour(given.behaviour)
        return flags, resolve(behaviour, flags.effective(), os.environ)
    except (OSError, ValueError) as error:
        known.error(str(error))
