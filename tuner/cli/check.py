"""Owns what `tuner check` reports: errors with places, the counted space, cost, warnings.

Launches no server; runs the engine's own `--help` and resolver where they are installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import units
from tuner.cli.output import problem_document
from tuner.cli.table import params_text
from tuner.config.loader import LoadedStudy, load_study
from tuner.errors import ConfigError, EngineError, Problem, StoreError, UsageError
from tuner.store.database import open_store
from tuner.store.place import place_of

if TYPE_CHECKING:
    from tuner.config.workload import WorkloadConfig
    from tuner.search.candidates import Candidates, RuleCount
    from tuner.search.learning import Learned

_LOOKS = "(engine.nccl_probe, engine.measure_cycle)"
LAUNCH_S = {"sglang": 120.0, "vllm": 120.0, "llamacpp": 5.0}
"""Seconds that a launch is assumed to take before one was seen."""

REQUEST_TOKENS_PER_S = 60.0
"""Speed of one request that is assumed before one was seen."""

PLANNED = 5
RULES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What is known of a study before anything is launched."""

    name: str = ""
    problems: tuple[Problem, ...] = ()
    space: Mapping[str, int] = field(default_factory=dict)
    rules: tuple[RuleCount, ...] = ()
    launches: int = 0
    confirm_launches: int = 0
    confirm_launches_most: int = 0
    untimed_launches_most: int = 0
    seconds: float = 0.0
    has_run: bool = False
    first: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The `--json` document."""
        return {
            "ok": not self.problems,
            "name": self.name,
            "errors": [problem_document(problem) for problem in self.problems],
            "space": dict(self.space),
            "rules": [
                {"rule": r.rule, "kind": r.kind, "points": r.points, "example": r.example}
                for r in self.rules
            ],
            "launches": self.launches,
            "confirm_launches": self.confirm_launches,
            "confirm_launches_most": self.confirm_launches_most,
            "untimed_launches_most": self.untimed_launches_most,
            "estimated_seconds": round(self.seconds),
            "first": list(self.first),
            "learned": list(self.learned),
            "warnings": list(self.warnings),
        }


def check_study(path: Path) -> CheckReport:
    """Everything that can be said of a study file without launching a server.

    Raises:
        UsageError, EngineError: it cannot be judged at all (no such engine, too many points).
    """
    try:
        loaded = load_study(path)
        on_prompts = _prompt_warnings(loaded)
    except ConfigError as error:
        return CheckReport(problems=error.problems)
    from tuner.search.candidates import no_server, rule_counts

    candidates, warnings = _candidates(loaded)
    warnings = [*loaded.warnings, *on_prompts, *warnings]
    learned = _learned(loaded, candidates)
    launches, confirm, most = planned_launches(loaded, len(candidates.survey.servers))
    untimed = _untimed(loaded, candidates, launches - 1)
    seconds = (launches + confirm) * launch_seconds(loaded)
    seconds += untimed * min(launch_seconds(loaded), LAUNCH_S.get(loaded.config.engine.kind, 0.0))
    wall = loaded.config.budget.wall
    refusal = no_server(candidates)
    return CheckReport(
        problems=(_problem(path, refusal),) if refusal else (),
        name=loaded.config.name,
        space=candidates.survey.counts(),
        rules=tuple(rule_counts(candidates)),
        launches=launches,
        untimed_launches_most=untimed,
        confirm_launches=confirm,
        confirm_launches_most=most,
        seconds=seconds if wall is None else min(seconds, wall),
        has_run=bool(seen_seconds(loaded)),
        first=tuple(_first_servers(loaded, candidates, learned)),
        learned=learned.notes,
        warnings=tuple(warnings),
    )


def check_lines(report: CheckReport) -> list[str]:
    """The report as text."""
    counts = report.space
    lines = [
        f"{report.name}: ok, nothing was launched.",
        f"  space      {counts['points']:,} points: {counts['distinct']:,} distinct servers, "
        f"{counts['infeasible']:,} infeasible, {counts['duplicates']:,} duplicates",
        *(
            f"             {rule.points:,} {rule.kind} by {rule.rule}: {rule.example}"
            for rule in report.rules[:RULES_SHOWN]
        ),
        f"  launches   at most {report.launches} to search, then {_confirming(report)} "
        f"to confirm: about {units.clock(report.seconds)}{_basis(report)}",
    ]
    if report.untimed_launches_most:
        looks = f"and at most {report.untimed_launches_most} that are not timed {_LOOKS}"
        lines.append(f"{'':<13}{looks}")
    labels = ["first", *[""] * len(report.first)]
    lines += [f"  {label:<11}{text}" for label, text in zip(labels, report.first, strict=False)]
    lines += [f"  {text}" for text in report.learned]
    return [*lines, *(f"warning: {text}" for text in report.warnings)]


def _untimed(loaded: LoadedStudy, candidates: Candidates, trials: int) -> int:
    """Launches at most that look at NCCL or time the parts of a step, and are not scored."""
    from tuner.host.gpus import list_gpus
    from tuner.search.untimed import looks_of, planned_looks

    looks = looks_of(loaded.config.engine, has_gpus=bool(list_gpus()))
    most = {"every": trials, "finalists": loaded.config.confirm.finalists}
    servers = [args for _, args in candidates.survey.servers]
    return planned_looks(candidates.engine, looks, servers, most)


def _problem(study: Path, refusal: UsageError) -> Problem:
    path, _, message = refusal.message.partition(": ")
    return Problem(str(study), 1, 1, path, message, refusal.hint)


def _basis(report: CheckReport) -> str:
    return "" if report.has_run else " (a guess until the baseline has run)"


def _confirming(report: CheckReport) -> str:
    least, most = report.confirm_launches, report.confirm_launches_most
    return f"{least}" if most == least else f"{least} (noise: up to {most})"


def planned_launches(loaded: LoadedStudy, servers: int) -> tuple[int, int, int]:
    """Launches of the search (the baseline counts) at most; of the confirmation at least, and at
    most, where launches vary."""
    config = loaded.config
    search = min(config.budget.launches, servers + 1)
    servers_confirmed = min(config.confirm.finalists, servers) + 1
    least, most = config.confirm.rounds, config.confirm.most_rounds
    return search, servers_confirmed * least, servers_confirmed * most


def launch_seconds(loaded: LoadedStudy) -> float:
    """One launch as the stored trials of this study took it, else a guess: start, then every
    load point at an assumed speed."""
    config = loaded.config
    if seen := seen_seconds(loaded):
        return sum(seen) / len(seen)
    return LAUNCH_S.get(config.engine.kind, 0.0) + measuring_seconds(config.workload)


def seen_seconds(loaded: LoadedStudy) -> list[float]:
    """How long the launches of this study took so far; [] before its first run."""
    place = place_of(loaded.config.name, loaded.config.storage)
    with contextlib.suppress(StoreError), open_store(place.url, create=False) as store:
        trials = store.trials(store.newest(place.name).name)
        return [t.seconds.total for t in trials if t.state in ("baseline", "complete")]
    return []


def measuring_seconds(workload: WorkloadConfig) -> float:
    """Seconds of measuring in one launch: requests × tokens, as many at once as the load says."""
    requests = workload.blocks * workload.block_size
    tokens = workload.output_tokens.exactly or workload.output_tokens.max or 0
    each = tokens / REQUEST_TOKENS_PER_S
    total = 0.0
    for load in workload.load:
        if load.rate is not None:
            total += requests / load.rate
        else:
            total += requests * each / (load.concurrency or 1)
    return total


def _candidates(loaded: LoadedStudy) -> tuple[Candidates, list[str]]:
    from tuner.engines.base import EngineFacts
    from tuner.engines.catalog import get_engine
    from tuner.search.candidates import find_candidates, inspect_engine
    from tuner.space import build_space

    engine = get_engine(loaded.config.engine)
    warnings: list[str] = []
    facts = EngineFacts()
    try:
        facts = inspect_engine(engine, loaded.config.engine)
    except EngineError as error:
        warnings.append(f"{error.message} Flags were not checked against it. {error.hint}")
    space, is_installed = build_space(loaded), not warnings
    candidates = find_candidates(engine, space, facts, is_installed=is_installed)
    return candidates, [*warnings, *candidates.notes]


def _prompt_warnings(loaded: LoadedStudy) -> list[str]:
    from tuner.measure.prompts import build_workload
    from tuner.search.draft_context import require_draft_context
    from tuner.search.faithful import few_prompts

    try:
        workload = build_workload(loaded.config.workload, loaded.config.search.seed)
    except UsageError as error:
        raise UsageError(f"workload.prompts: {error.message}", error.hint) from error
    config = loaded.config
    few = few_prompts(config.fidelity, config.workload, config.confirm.rounds)
    return [*few, *require_draft_context(loaded, workload)]


def _learned(loaded: LoadedStudy, candidates: Candidates) -> Learned:
    """What earlier studies would tell this one."""
    from tuner.host.fingerprint import take
    from tuner.measure.prompts import build_workload
    from tuner.search.identity import StudySetup
    from tuner.search.learning import Learned, learn
    from tuner.search.session import subject_of

    config = loaded.config
    if not config.search.learn_from:
        return Learned()
    workload = build_workload(config.workload, config.search.seed)
    fingerprint = take(subject_of(loaded, candidates.facts.version))
    setup = StudySetup(loaded, candidates.space, workload.digest, fingerprint)
    own = place_of(config.name, config.storage).results.read_identity() or {}
    return learn(setup, candidates.digests, str(own.get("uid", "")))


def _first_servers(loaded: LoadedStudy, candidates: Candidates, learned: Learned) -> list[str]:
    """What would be launched first: baseline, start points, the sampler's own choice."""
    from tuner.search.sampling import Ground, Situation, make_suggester

    config, survey = loaded.config, candidates.survey
    start = list(candidates.space.start)
    lines = ["baseline: speculation off", *(f"{params_text(p)} (start point)" for p in start)]
    points = [params for params, _ in survey.servers]
    remaining = [index for index, point in enumerate(points) if point not in start]
    maximize = config.objective.maximize is not None
    ground = Ground(
        candidates.space, survey, config.search, maximize, config.budget.launches,
        engine=candidates.engine if learned.launches else None,
        metric=config.objective.maximize or config.objective.minimize or "",
        earlier=learned.launches,
    )  # fmt: skip
    suggester = make_suggester(ground)
    running: list[int] = []
    while remaining and len(lines) < PLANNED:
        proposal = suggester.propose(Situation((), remaining, running, config.search.seed))
        if proposal is None:
            break
        running.append(proposal.index)
        remaining.remove(proposal.index)
        lines.append(params_text(points[proposal.index]))
    return lines[:PLANNED]
