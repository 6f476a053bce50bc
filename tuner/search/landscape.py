"""Owns the two ways between studies and landscapes: a study's launches become a landscape, and a
landscape becomes what a sampler can choose from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tuner.args import UNSET, FlagValue, ParamValue, ServerArgs
from tuner.config.study import SearchConfig
from tuner.errors import UsageError
from tuner.measure.landscape import (
    Landscape,
    Origin,
    RecordedBlock,
    RecordedLaunch,
    RecordedServer,
    drafts_by,
)
from tuner.search.sampling import Ground
from tuner.space import Parameter, SearchSpace, SpaceSurvey
from tuner.store.record import LoadPointRecord, TrialRecord


# ---- a landscape as what a sampler chooses from ----------------------------------------------
def ground_of(landscape: Landscape, config: SearchConfig, launches: int, load: str = "") -> Ground:
    """Every recorded server but the baseline, with a space inferred from their values."""
    servers = [server.args for server in landscape.servers if not server.is_baseline]
    parameters = parameters_of(servers)
    points = [(point_of(args, parameters), args) for args in servers]
    survey = SpaceSurvey(len(points), list(points), [], {})
    return Ground(
        SearchSpace(parameters), survey, config, True, launches,
        metric="output_tokens_per_s", load=load or landscape.loads[0],
    )  # fmt: skip


def parameters_of(servers: Sequence[ServerArgs]) -> tuple[Parameter, ...]:
    """A parameter per flag or variable that is not the same everywhere."""
    found = []
    for is_env in (False, True):
        tables = [args.env if is_env else args.flags for args in servers]
        for name in dict.fromkeys(name for table in tables for name in table):
            values = _values(table.get(name) for table in tables)
            if len(values) < 2:
                continue
            flag, env = (None, name) if is_env else (name, None)
            found.append(Parameter(name, "categorical", tuple(values), flag=flag, env=env))
    return tuple(found)


def _values(seen: Iterable[object]) -> list[ParamValue]:
    """Distinct values in order; a server without the flag adds `unset` only for variables and
    choices, not for numbers (where the parameter does not exist there)."""
    values = list(dict.fromkeys(seen))
    known = [value for value in values if isinstance(value, bool | int | float | str)]
    if all(isinstance(value, int | float) for value in known):
        return sorted(known, key=float)
    return [*known, UNSET] if None in values else known


def point_of(args: ServerArgs, parameters: Sequence[Parameter]) -> dict[str, ParamValue]:
    """The values of a server by parameter; what it has not is left out."""
    point: dict[str, ParamValue] = {}
    for parameter in parameters:
        table: Mapping[str, object] = args.flags if parameter.flag else args.env
        value = table.get(parameter.name)
        if isinstance(value, bool | int | float | str):
            point[parameter.name] = value
        elif UNSET in parameter.values:
            point[parameter.name] = UNSET
    return point


# ---- a study as a landscape ------------------------------------------------------------------
def landscape_of(
    name: str,
    records: Sequence[TrialRecord],
    *,
    note: str = "",
    parameters: Sequence[Parameter] = (),
) -> Landscape:
    """Everything a study's launches showed, one server per digest.

    Args:
        name: of the landscape.
        records: every launch; several of one server are repeats.
        note: where the numbers come from.
        parameters: of the study's space. A value that is the engine's default is no argument of
            its server; with the parameters it is written down all the same, because a landscape
            is read without the engine.

    Raises:
        UsageError: the study holds nothing that can be replayed.
    """
    launches: dict[str, list[RecordedLaunch]] = {}
    servers: dict[str, tuple[ServerArgs, bool]] = {}
    for record in records:
        launch = recorded_launch(record)
        if launch is None:
            continue
        args = ServerArgs.from_json(record.requested_args.model_dump())
        if args.digest not in servers:
            whole = _written_out(args, record.params, parameters)
            servers[args.digest] = (whole, record.state == "baseline")
        launches.setdefault(args.digest, []).append(launch)
    table = tuple(
        RecordedServer(args, tuple(launches[digest]), is_baseline)
        for digest, (args, is_baseline) in servers.items()
    )
    is_simulated = any(record.is_simulated for record in records)
    origin: Origin = "generated" if is_simulated else "recorded"
    landscape = Landscape(name, table, origin, note, drafts_by([each.args for each in table]))
    if not any(server.is_baseline and server.works for server in table):
        raise UsageError(
            f"study {name}: must hold a measured baseline with its blocks, got none.",
            "Run the study first with `tuner run`.",
        )
    return landscape


def _written_out(
    args: ServerArgs, params: Mapping[str, object], parameters: Sequence[Parameter]
) -> ServerArgs:
    """The server as a reader without engine and machine needs it: every flag its parameters
    name, defaults too (JSON paths are complete), and files by their names alone."""
    named = {
        parameter.flag: value
        for parameter in parameters
        if parameter.flag and "." not in parameter.flag
        and isinstance(value := params.get(parameter.name), bool | int | float | str)
        and value != UNSET
    }  # fmt: skip
    whole = {**named, **args.flags}
    return ServerArgs({flag: _without_folder(value) for flag, value in whole.items()}, args.env)


def _without_folder(value: FlagValue) -> FlagValue:
    """A file by its name alone: where it lay is this machine's business."""
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def recorded_launch(record: TrialRecord) -> RecordedLaunch | None:
    """A launch as a landscape keeps it; None where nothing was launched or measured whole."""
    if record.state == "failed" and record.failure:
        return RecordedLaunch({}, record.seconds.launch, record.failure, record.reason)
    if record.state not in ("baseline", "complete"):
        return None
    blocks = {point.load: _blocks(point) for point in record.load_points if point.block_counts}
    if not blocks:
        return None
    positions = tuple(record.acceptance_per_position)
    return RecordedLaunch(blocks, record.seconds.launch, per_position=positions)


def _blocks(point: LoadPointRecord) -> tuple[RecordedBlock, ...]:
    counts = point.block_counts
    first_token = point.per_block.get("ttft_ms", [])
    found = []
    for place, (tokens, seconds) in enumerate(
        zip(counts["tokens"], counts["seconds"], strict=True)
    ):
        found.append(
            RecordedBlock(
                tokens=tokens,
                seconds=seconds,
                requests=int(counts["requests"][place]),
                drafted=_known(counts["drafted"][place]),
                accepted=_known(counts["accepted"][place]),
                steps=_known(counts["steps"][place]),
                ttft_ms=_known(first_token[place]) if place < len(first_token) else None,
            )
        )
    return tuple(found)


def _known(value: float) -> float | None:
    return value if value == value else None
