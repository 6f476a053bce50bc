"""Owns what earlier studies may tell this one: whose acceptance and whose costs carry over.

Acceptance is the draft's and the prompts': it carries over where model, draft, engine and prompts
are the same, on any machine. Costs are the machine's: they carry over where host, engine version
and model are the same, whatever was asked. Servers are matched by their exact arguments; the
earlier study is only read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from tuner.config.loader import LoadedStudy
from tuner.errors import StoreError, UsageError
from tuner.search.identity import StudySetup, identity_of
from tuner.search.telling import is_config_fault
from tuner.store.database import StudyMeta, open_store
from tuner.store.place import StudyPlace, find_place, place_of
from tuner.store.record import TrialRecord

SUBJECTS = ("model", "draft_model")
PROMPTS = ("workload.prompts", "workload.settings")
OBJECTIVE = ("objective", "objective.at")


@dataclass(frozen=True, slots=True)
class Earlier:
    """A launch of an earlier study, and which of its halves may be believed here."""

    record: TrialRecord
    tells_acceptance: bool
    tells_costs: bool


@dataclass(frozen=True, slots=True)
class Learned:
    """What carries over, and a sentence per earlier study that says so."""

    launches: tuple[Earlier, ...] = ()
    notes: tuple[str, ...] = ()


def learn(setup: StudySetup, digests: frozenset[str], own_uid: str = "") -> Learned:
    """What the studies under `search.learn_from` tell.

    Args:
        setup: the present study.
        digests: the servers it may launch, its baseline among them.
        own_uid: the present study's own identity, which is no earlier one.

    Raises:
        UsageError: a study that is named is not there.
        StoreError: the database of one that is named cannot be read.
    """
    sampler = setup.loaded.config.search.sampler
    if sampler != "model":
        return Learned(notes=(f"search.learn_from is not used: sampler {sampler} cannot learn",))
    here = identity_of(setup).to_json()
    launches: list[Earlier] = []
    notes = []
    for url in _urls(setup.loaded):
        try:
            studies = list(_studies(url, own_uid))
        except StoreError as error:
            if setup.loaded.config.search.learn_from != "auto":
                raise
            studies = []  # nobody named it: a neighbour's trouble does not stop this study
            notes.append(f"learned nothing from {url}: {error.message}")
        for meta, records in studies:
            found, note = _carried(here, meta, records, digests)
            launches += found
            notes.append(note)
    return Learned(tuple(launches), tuple(notes))


# ---- where earlier studies are ---------------------------------------------------------------
def _urls(loaded: LoadedStudy) -> list[str]:
    named = loaded.config.search.learn_from
    if named == "auto":
        own = place_of(loaded.config.name, loaded.config.storage)
        files = sorted(own.results.root.parent.glob("*/study.db"))
        return [f"sqlite:///{file}" for file in files]
    return [_url(text, loaded.path.parent) for text in named]


def _url(text: str, base: Path) -> str:
    """The database of a file, a results folder or a study's name; files first beside the study."""
    if "://" in text:
        return text
    for path in (base / text, Path(text)):
        if path.is_file():
            return f"sqlite:///{path.absolute()}"
        if path.is_dir():
            return _place(str(path.absolute())).url
    return _place(text).url


def _place(text: str) -> StudyPlace:
    try:
        return find_place(text)
    except UsageError as error:
        raise UsageError(f"search.learn_from: {error.message}", error.hint) from error


def _studies(url: str, own_uid: str) -> Iterator[tuple[StudyMeta, list[TrialRecord]]]:
    """Every study of a database but the present one."""
    with open_store(url, create=False) as store:
        for name in optuna.get_all_study_names(store.optuna_storage):
            meta = store.study_meta(name)
            if meta is not None and meta.document.get("uid", "") != own_uid:
                with contextlib.suppress(StoreError):  # a record of another version
                    yield meta, store.trials(name)


# ---- what may be believed --------------------------------------------------------------------
def _carried(
    here: Mapping[str, Any],
    meta: StudyMeta,
    records: Sequence[TrialRecord],
    digests: frozenset[str],
) -> tuple[list[Earlier], str]:
    barred = _barred(here, meta.document)
    halves = {"acceptance": not barred[0], "costs": not barred[1]}
    if not any(halves.values()):
        return [], f"learned nothing from study {meta.name}: {_listed(barred[0] + barred[1])}"
    known = [r for r in records if r.digest in digests and _tells(r)]
    found = [Earlier(r, halves["acceptance"], halves["costs"]) for r in known]
    count = sum(record.state != "baseline" for record in known)
    if not count:
        return [], f"learned nothing from study {meta.name}: it launched none of these servers"
    what = " and ".join(name for name, may in halves.items() if may)
    note = f"learned {what} of {count} servers from study {meta.name}"
    but = barred[0] or barred[1]
    kept = "costs" if barred[1] else "acceptance"
    return found, f"{note}; not their {kept}: {_listed(but)}" if but else note


def _tells(record: TrialRecord) -> bool:
    is_measured = record.state in ("baseline", "complete", "pruned")
    return is_measured or (record.state == "failed" and is_config_fault(record))


def _barred(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Why acceptance, and why costs, do not carry over; [] where they do."""
    ours, theirs = here["fingerprint"], there.get("fingerprint", {})
    fields, others = here["fields"], there.get("fields", {})
    machine = [n for n in dict.fromkeys([*ours, *theirs]) if n not in ("engine", *SUBJECTS)]
    both = [_other(n) for n in OBJECTIVE if fields.get(n) != others.get(n)]
    both += ["another engine"] * (fields.get("engine.kind") != others.get("engine.kind"))
    both += ["another model"] * (ours.get("model") != theirs.get("model"))
    acceptance = ["another draft"] * (ours.get("draft_model") != theirs.get("draft_model"))
    acceptance += ["other prompts"] * any(fields.get(n) != others.get(n) for n in PROMPTS)
    costs = ["another engine version"] * (ours.get("engine") != theirs.get("engine"))
    differing = [n for n in machine if ours.get(n) != theirs.get(n)]
    costs += [f"another host ({', '.join(differing[:3])})"] if differing else []
    return both + acceptance, both + costs


def _other(name: str) -> str:
    return "another load" if name == "objective.at" else "another objective"


def _listed(reasons: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(reasons))
