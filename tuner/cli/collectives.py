"""Owns `tuner probe collectives`: what is probed, for a study or for what options say, and its
table. The measuring is host/collectives'; the processes are server/oneshot's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import units
from tuner.args import UNSET
from tuner.config.environment import is_nccl
from tuner.config.loader import LoadedStudy, load_space, load_study
from tuner.config.shipped import SPACES, shipped_folder
from tuner.config.space import ParameterConfig
from tuner.errors import EngineError, UsageError
from tuner.host.collectives import (
    CollectiveRow,
    Environment,
    ProbeSettings,
    environments,
    hopeless,
    message_sizes,
)
from tuner.host.gpus import list_gpus
from tuner.host.topology import read_topology
from tuner.search.candidates import read_model_config
from tuner.search.placement import world_size
from tuner.server.command import LaunchCommand
from tuner.server.oneshot import run_command
from tuner.store.stored import study_path

DEFAULT_SIZES = tuple(7168 * 2 * tokens for tokens in (1, 4, 8, 32))
"""Bytes of one to 32 tokens of a model 7,168 wide, where no model is named."""

CELL = 18
"""Columns per message size."""


@dataclass(frozen=True, slots=True)
class ProbeWish:
    """What the user said on the command line; empty or 0 where nothing was said."""

    study: str = ""
    space: str = ""
    model: str = ""
    python: str = ""
    backend: str = "nccl"
    ranks: int = 0
    sizes: tuple[int, ...] = ()
    repeats: int = 50
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What will be run: settings and the environments, the unchanged one first."""

    settings: ProbeSettings
    candidates: Sequence[Environment]


def plan_probe(wish: ProbeWish) -> ProbePlan:
    """The probe that the options, the study and this machine's GPUs ask for.

    Raises:
        UsageError: fewer than two ranks, or no variable to try.
    """
    loaded = load_study(study_path(wish.study)) if wish.study else None
    ranks = wish.ranks or _ranks(loaded)
    if ranks < 2:
        raise UsageError(
            f"--ranks: must be at least 2 GPUs that reduce with each other, got {ranks}.",
            "Set --ranks, or --backend gloo --ranks 2 to try it on a CPU.",
        )
    settings = ProbeSettings(
        python=wish.python or _python(loaded),
        ranks=ranks,
        sizes=wish.sizes or _sizes(wish.model, loaded),
        backend=wish.backend,
        repeats=wish.repeats,
        timeout_s=wish.timeout_s,
    )
    choices = nccl_choices(_parameters(wish, loaded))
    if not choices:
        raise UsageError(
            "probe collectives: must have an NCCL variable to try, got a space without one.",
            "Give a space with --space, such as shipped:nccl-pcie.yaml.",
        )
    return ProbePlan(settings, environments(choices))


def nccl_choices(parameters: Mapping[str, ParameterConfig]) -> dict[str, list[str | None]]:
    """The NCCL variables of a space with their values; None leaves a variable out."""
    return {
        config.env: [None if value == UNSET else str(value) for value in config.values()]
        for config in parameters.values()
        if config.env is not None and is_nccl(config.env)
    }


def suggested_space() -> str:
    """The shipped space of NCCL variables that suits how this machine's GPUs are connected."""
    return "nccl-nvlink.yaml" if read_topology().is_nvlink else "nccl-pcie.yaml"


def run_worker(
    argv: Sequence[str], environment: Environment, request: str, timeout_s: float
) -> str:
    """One worker group to its end; what it printed, or nothing when it cannot be started."""
    command = LaunchCommand(tuple(argv), dict(environment))
    return run_command(command, timeout_s=timeout_s, stdin=request).stdout


def _ranks(loaded: LoadedStudy | None) -> int:
    width = world_size(loaded.config.engine.args) if loaded else None
    return width or len(list_gpus())


def _python(loaded: LoadedStudy | None) -> str:
    executable = loaded.config.engine.executable if loaded else None
    if executable and not Path(executable).name.startswith("python"):
        raise EngineError(
            f"probe collectives: must have an interpreter with torch, got {executable}.",
            "Name one with --python.",
        )
    return executable or "python3"


def _sizes(model: str, loaded: LoadedStudy | None) -> tuple[int, ...]:
    named = model or (loaded.config.engine.model if loaded else "")
    config = read_model_config(named)
    if not config:
        return DEFAULT_SIZES
    loads = loaded.config.workload.load if loaded else []
    batches = tuple(load.concurrency for load in loads if load.concurrency) or (1, 8)
    try:
        return message_sizes(config, batches=batches)
    except ValueError as error:
        raise UsageError(f"{named}: {error}.", "Give message sizes with --bytes.") from error


def _parameters(wish: ProbeWish, loaded: LoadedStudy | None) -> Mapping[str, ParameterConfig]:
    if wish.space:
        shipped = wish.space.removeprefix("shipped:")
        is_shipped = shipped != wish.space
        return load_space(shipped_folder(SPACES) / shipped if is_shipped else Path(wish.space))
    if loaded and nccl_choices(loaded.parameters):
        return loaded.parameters
    return load_space(shipped_folder(SPACES) / suggested_space())


def environment_text(environment: Environment) -> str:
    """`NCCL_ALGO=Ring NCCL_PROTO=LL`, or what leaves everything to NCCL."""
    parts = [f"{name}={value}" for name, value in environment.items() if value is not None]
    return " ".join(parts) or "nothing set"


def probe_header(settings: ProbeSettings) -> str:
    """The table's first line: one column of microseconds and ratio per message size."""
    return "".join(f"{units.size(size):>{CELL}}" for size in settings.sizes) + "  environment"


def probe_line(rows: Sequence[CollectiveRow]) -> str:
    """The line of one environment."""
    errors = {row.error for row in rows if row.error}
    cells = "".join(f"{_cell(row):>{CELL}}" for row in rows)
    note = f"; {'; '.join(sorted(errors))}" if errors else ""
    return f"{cells}  {environment_text(rows[0].environment)}{note}"


def _cell(row: CollectiveRow) -> str:
    if row.median_us is None:
        return "failed"
    ratio = f"{row.ratio:.2f}x" if row.ratio is not None else "-"
    return f"{units.number(row.median_us)} µs {ratio:>6}"


def require_reference(rows: Sequence[CollectiveRow]) -> None:
    """Refuse to go on when all-reduce fails with nothing set: every environment would.

    Raises:
        EngineError: it failed at every size, in the worker's words.
    """
    errors = {row.error for row in rows if row.error}
    if rows and len(errors) and all(row.error for row in rows):
        raise EngineError(
            f"probe collectives: all-reduce must work with nothing set, got: {errors.pop()}.",
            "Name an interpreter that has torch with --python; see `tuner doctor`.",
        )


def ending_lines(rows: Sequence[CollectiveRow]) -> list[str]:
    """The fastest environment at the largest message, and what need not be searched."""
    largest = max(row.bytes for row in rows)
    timed = [row for row in rows if row.bytes == largest and row.ratio is not None]
    if not timed:
        return ["Nothing was measured."]
    best = min(timed, key=lambda row: row.ratio or 0.0)
    lines = [
        f"Fastest at {units.size(largest)}: {environment_text(best.environment)}, "
        f"{best.ratio:.2f}x the time of NCCL's own choice."
    ]
    dropped = [environment_text(each) for each in hopeless(rows)]
    lines += [f"Not worth a launch: {text}" for text in dropped]
    return [*lines, "A shorter all-reduce is not yet a faster server: measure it in a study."]


def probe_document(plan: ProbePlan, rows: Iterable[CollectiveRow]) -> dict[str, Any]:
    """The `--json` document."""
    every = list(rows)
    return {
        "backend": plan.settings.backend,
        "ranks": plan.settings.ranks,
        "rows": [
            {
                "environment": dict(row.environment),
                "bytes": row.bytes,
                "median_us": row.median_us,
                "p95_us": row.p95_us,
                "ratio": row.ratio,
                "error": row.error,
            }
            for row in every
        ],
        "hopeless": [dict(environment) for environment in hopeless(every)],
    }
