"""Owns `tuner export --diff`: what changes against a server that runs today, flag by flag."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import units
from tuner.args import ServerArgs
from tuner.cli.command_line import DRAFT_FLAGS, MODEL_FLAGS, read_command
from tuner.config.engine import EngineBase
from tuner.config.space import ParameterConfig
from tuner.engines.catalog import get_engine
from tuner.errors import UsageError
from tuner.store.record import TrialRecord
from tuner.store.stored import StoredStudy

SPECULATIVE = "speculative-config"


@dataclass(frozen=True, slots=True)
class Change:
    """One flag or variable that differs; None: it is not set there."""

    kind: str
    name: str
    old: Any
    new: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Diff:
    """All changes, and the measured trial that the running server is, if it was one."""

    changes: tuple[Change, ...]
    old_trial: TrialRecord | None
    new_trial: TrialRecord

    @property
    def gain(self) -> float | None:
        """How many times better the new server was than the old one, by the search's numbers."""
        old = self.old_trial.vs_baseline if self.old_trial else None
        return self.new_trial.vs_baseline / old if self.new_trial.vs_baseline and old else None

    def to_json(self) -> dict[str, Any]:
        """The `--json` document."""
        rows = [
            {"kind": c.kind, "name": c.name, "old": c.old, "new": c.new, "reason": c.reason}
            for c in self.changes
        ]
        old = None if self.old_trial is None else self.old_trial.number
        return {"changes": rows, "old_trial": old, "trial": self.new_trial.number,
                "gain": self.gain}  # fmt: skip


def running_args(text: str, config: EngineBase, new: ServerArgs) -> ServerArgs:
    """The server that runs today, in the engine's canonical form.

    Args:
        text: a command line, or the path of a file with one, of a YAML configuration of the
            engine, of a bundle, or of a JSON object (all flags, or vLLM's speculative-config).
        config: the study's engine section.
        new: the server to be exported; a lone speculative-config is compared with its.

    Raises:
        UsageError: it cannot be understood, or belongs to another engine.
    """
    path = _place(text)
    if path is not None and path.is_dir():
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        return ServerArgs.from_json(manifest["server"]["args"])
    body = text if path is None else path.read_text(encoding="utf-8")
    if path is not None and path.suffix in (".yaml", ".yml"):
        return _from_yaml(path, body, config)
    if body.lstrip().startswith("{"):
        return _from_json(text, body, config, new)
    found = read_command(_last_command(body))
    if found.engine != getattr(config, "kind", ""):
        raise UsageError(
            f"--diff: must be a server of the study's engine, got {found.engine}.",
            "Compare servers of one engine.",
        )
    return _canonical(config, dict(found.flags), dict(found.env))


def find_changes(
    old: ServerArgs, new: ServerArgs, parameters: Mapping[str, ParameterConfig]
) -> tuple[Change, ...]:
    """Every flag and variable in which the two servers differ, searched ones first."""
    names = {p.flag: name for name, p in parameters.items() if p.flag}
    variables = {p.env: name for name, p in parameters.items() if p.env}
    changes = [
        *_differing("flag", _flat(old.flags), _flat(new.flags), names),
        *_differing("env", _given(old.env), _given(new.env), variables),
    ]
    return tuple(sorted(changes, key=lambda c: (not c.reason.startswith("searched"), c.name)))


def find_diff(
    study: StoredStudy,
    old: ServerArgs,
    new: tuple[ServerArgs, TrialRecord],
    parameters: Mapping[str, ParameterConfig],
) -> Diff:
    """The changes, and what the study measured of the old server."""
    args, trial = new
    known = [
        t
        for t in study.trials
        if t.vs_baseline is not None and t.requested_args.flags == dict(old.flags)
        and _given(t.requested_args.env) == _given(old.env)
    ]  # fmt: skip
    return Diff(find_changes(old, args, parameters), known[-1] if known else None, trial)


def diff_lines(diff: Diff) -> list[str]:
    """The differences as a table and a sentence about the gain."""
    if not diff.changes:
        return ["Nothing changes: the running server is the exported one."]
    rows = [("setting", "running", "exported", "why")]
    rows += [(_name(c), _shown(c.old), _shown(c.new), c.reason) for c in diff.changes]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join([*(f"{row[i]:<{widths[i]}}" for i in range(3)), row[3]]).rstrip() for row in rows
    ]
    return [*lines, "", _gain(diff)]


def _gain(diff: Diff) -> str:
    new = diff.new_trial
    if diff.gain is None or diff.old_trial is None:
        versus = units.ratio(new.vs_baseline) if new.vs_baseline else "unknown"
        return (
            f"The exported server (trial {new.number}) measured {versus} baseline; the running "
            "one was not measured in this study. Add it to space.start to compare."
        )
    return (
        f"The exported server (trial {new.number}) measured {units.ratio(diff.gain)} of the "
        f"running one (trial {diff.old_trial.number}), one launch each."
    )


def _from_yaml(path: Path, text: str, config: EngineBase) -> ServerArgs:
    beside = path.with_name("server.env")
    env = beside.read_text(encoding="utf-8") if beside.is_file() else ""
    try:
        parsed = get_engine(config).parse_config({"server.yaml": text, "server.env": env})
    except ValueError as error:
        raise UsageError(
            f"{path}: must be a configuration file of the study's engine, got: {error}.",
            "Give the command line in quotes instead.",
        ) from error
    return _canonical(config, dict(parsed.flags), dict(parsed.env))


def _from_json(text: str, body: str, config: EngineBase, new: ServerArgs) -> ServerArgs:
    try:
        data = json.loads(body)
    except ValueError as error:
        raise UsageError(
            f"--diff: must be JSON, got {text!r}: {error}.",
            "Quote the whole object for the shell, or give a command line or a file.",
        ) from error
    if "num_speculative_tokens" in data or "method" in data:
        draft = {"model": config.draft_model} if config.draft_model else {}
        return _canonical(config, {**new.flags, SPECULATIVE: {**draft, **data}}, dict(new.env))
    flags = {str(name).replace("_", "-"): value for name, value in data.items()}
    return _canonical(config, flags, {})


def _canonical(
    config: EngineBase, flags: dict[str, Any], env: dict[str, str | None]
) -> ServerArgs:
    kind = str(getattr(config, "kind", ""))
    model = str(flags.pop(MODEL_FLAGS.get(kind, "model"), config.model))
    draft = flags.pop(DRAFT_FLAGS.get(kind, ""), None)
    spec = flags.get(SPECULATIVE)
    if isinstance(spec, Mapping) and "model" in spec:
        flags[SPECULATIVE] = {k: v for k, v in spec.items() if k != "model"}
        draft = spec["model"]
    changes = {"model": model, "draft_model": draft, "args": flags, "env": env}
    return get_engine(config.model_copy(update=changes)).fixed_args()


def _place(text: str) -> Path | None:
    """The file or bundle that a text names; None for a command line or JSON."""
    try:
        path = Path(text)
        is_place = path.is_file() or (text != "" and (path / "manifest.json").is_file())
    except (OSError, ValueError):  # longer than a name may be, or with a NUL
        return None
    return path if is_place else None


def _last_command(text: str) -> str:
    """The command of a script: what follows its last `exec`, or its last line."""
    lines = (line.strip() for line in text.replace("\\\n", " ").splitlines())
    commands = [line for line in lines if line and not line.startswith("#")]
    executed = [line for line in commands if line.startswith("exec ")]
    return (executed or commands or [text])[-1].removeprefix("exec ")


def _given(env: Mapping[str, str | None]) -> dict[str, str]:
    """Variables with a value: a command line does not say which ones are taken away."""
    return {name: value for name, value in env.items() if value is not None}


def _flat(flags: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested JSON flags by dotted path."""
    found: dict[str, Any] = {}
    for name, value in flags.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _differing(
    kind: str, old: Mapping[str, Any], new: Mapping[str, Any], searched: Mapping[str, str]
) -> Iterator[Change]:
    for name in dict.fromkeys([*new, *old]):
        if (name in old) == (name in new) and old.get(name) == new.get(name):
            continue
        if name in searched:
            reason = f"searched: {searched[name]}"
        else:
            reason = "fixed in the study" if name in new else "not in the study"
        yield Change(kind, name, old.get(name), new.get(name), reason)


def _name(change: Change) -> str:
    return f"--{change.name}" if change.kind == "flag" else change.name


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
