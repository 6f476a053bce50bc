"""Owns landscapes as CSV: one row per prompt (or block) of a launch, or one row per server.

Known columns are measurements, every other column is a flag of the server (an environment
variable where its name is in capitals); a column `params` holds flags as one JSON object.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping

from tuner.args import FlagValue, ServerArgs
from tuner.measure.landscape import (
    Landscape,
    RecordedBlock,
    RecordedLaunch,
    RecordedServer,
    drafts_by,
)

Row = Mapping[str, str]

OFF = ("", "off", "none", "unset")
ROW_TOKENS = 1000.0
"""Tokens of a block of which only the speed is known."""

MEASURED = frozenset({
    "repeat", "order", "prompt", "block", "load", "concurrency", "launch_s", "tokens",
    "decode_ms", "seconds", "requests", "draft_n", "draft_accepted", "drafted", "accepted",
    "steps_n", "verify_steps", "acceptance_length", "output_tokens_per_s", "ttft_ms", "failure",
    "reason", "baseline", "params",
})  # fmt: skip


def landscape_from_csv(name: str, text: str) -> Landscape:
    """The landscape of a CSV text; raises ValueError or KeyError when it is none."""
    rows: list[Row] = list(csv.DictReader(io.StringIO(text)))
    if not rows:
        raise ValueError("no rows")
    launches: dict[str, dict[str, list[Row]]] = {}
    servers: dict[str, tuple[ServerArgs, bool]] = {}
    for row in rows:
        args = _args(row)
        servers.setdefault(args.digest, (args, _is_baseline(row, args)))
        launches.setdefault(args.digest, {}).setdefault(row.get("repeat") or "0", []).append(row)
    table = tuple(
        RecordedServer(args, tuple(map(_launch, launches[digest].values())), is_baseline)
        for digest, (args, is_baseline) in servers.items()
    )
    return Landscape(
        name, table, note=f"{len(rows)} rows", drafts_by=drafts_by(each.args for each in table)
    )


def _args(row: Row) -> ServerArgs:
    flags: dict[str, FlagValue] = {}
    env: dict[str, str | None] = {}
    for name, text in row.items():
        if name in MEASURED or text is None or text == "":
            continue
        if name.isupper():
            env[name] = text
        else:
            flags[name.replace("_", "-")] = _value(text)
    flags |= json.loads(row.get("params") or "{}")
    return ServerArgs(flags, env)


def _value(text: str) -> FlagValue:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _is_baseline(row: Row, args: ServerArgs) -> bool:
    if "baseline" in row:
        return str(row["baseline"]).lower() in ("1", "true", "yes")
    steps = [args.flags[name] for name in args.flags if name.endswith("steps")]
    if steps:
        return steps[0] == 0
    kinds = [str(value).lower() for name, value in args.flags.items() if "type" in name]
    return kinds[0] in OFF if kinds else not args.flags


def _launch(rows: list[Row]) -> RecordedLaunch:
    first = rows[0]
    launch_s = float(first.get("launch_s") or 0.0)
    if first.get("failure"):
        reason = first.get("reason") or "recorded as failed"
        return RecordedLaunch({}, launch_s, first["failure"], reason)
    blocks: dict[str, list[RecordedBlock]] = {}
    for row in sorted(rows, key=_place):
        blocks.setdefault(_load(row), []).append(_block(row))
    return RecordedLaunch({load: tuple(found) for load, found in blocks.items()}, launch_s)


def _place(row: Row) -> float:
    return float(row.get("prompt") or row.get("block") or 0)


def _load(row: Row) -> str:
    return row.get("load") or f"c{row.get('concurrency') or 1}"


def _block(row: Row) -> RecordedBlock:
    tokens = _number(row, "tokens") or ROW_TOKENS
    drafted = _number(row, "draft_n", "drafted")
    accepted = _number(row, "draft_accepted", "accepted")
    return RecordedBlock(
        tokens=tokens,
        seconds=_seconds(row, tokens),
        requests=int(_number(row, "requests") or 1),
        drafted=drafted,
        accepted=accepted,
        steps=_steps(row, tokens, accepted),
        ttft_ms=_number(row, "ttft_ms"),
    )


def _seconds(row: Row, tokens: float) -> float:
    seconds = _number(row, "seconds")
    if seconds is not None:
        return seconds
    milliseconds = _number(row, "decode_ms")
    if milliseconds is not None:
        return milliseconds / 1000.0
    return tokens / float(row["output_tokens_per_s"])


def _steps(row: Row, tokens: float, accepted: float | None) -> float | None:
    """Verification steps: what was not accepted from a draft took a step of its own."""
    counted = _number(row, "steps_n", "verify_steps")
    if counted is not None:
        return counted
    length = _number(row, "acceptance_length")
    if length:
        return tokens / length
    return None if accepted is None else max(1.0, tokens - accepted)


def _number(row: Row, *names: str) -> float | None:
    for name in names:
        if row.get(name):
            return float(row[name])
    return None
