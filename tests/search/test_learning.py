"""Cold start from earlier studies: what carries over, what does not, and what it saves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tuner.cli.app import build_app
from tuner.config.loader import load_study
from tuner.engines.catalog import get_engine
from tuner.errors import StoreError, UsageError
from tuner.events import Event, Notice
from tuner.host.fingerprint import Fingerprint, take
from tuner.measure.prompts import build_workload
from tuner.search.candidates import find_candidates, inspect_engine
from tuner.search.identity import StudySetup
from tuner.search.learning import Learned, learn
from tuner.search.loop import RunResult, run_study
from tuner.search.session import subject_of
from tuner.space import build_space

STUDY = """
name: {name}
engine: {{kind: replay, landscape: table.csv}}
space:
  parameters:
    n: {{flag: size-n, choices: [3, 4, 6, 12]}}
    m: {{flag: size-m, choices: [4, 8, 16]}}
workload: {{prompts: {{builtin: mixed}}, blocks: 4, block_size: 2, held_out: {held_out}}}
objective: {{maximize: output_tokens_per_s}}
search: {{learn_from: {learn_from}, seed: {seed}}}
budget: {{launches: {launches}}}
confirm: {{finalists: 1, rounds: 2, max_rounds: 2}}
fidelity: {{compare: off}}
"""

BEST = {"n": 3, "m": 16}


def table() -> str:
    """Lookups on four prompts, two launches each; 3 and 16 are best, 12 and 16 fail."""
    rows = ["repeat,spec_type,size-n,size-m,launch_s,prompt,tokens,decode_ms,draft_n,"
            "draft_accepted,failure"]  # fmt: skip
    for repeat in (0, 1):
        rows += [f"{repeat},none,,,2.0,{p},100,{1000 + 5 * p + repeat},0,0," for p in range(4)]
        for n, m in ((n, m) for n in (3, 4, 6, 12) for m in (4, 8, 16)):
            if (n, m) == (12, 16):
                rows.append(f"{repeat},ngram-simple,{n},{m},1.0,,,,,,out_of_memory")
                continue
            accepted = 60 - 4 * abs(n - 3) - abs(m - 16)
            drafted = accepted + 2 * m
            wall = 10 * (100 - accepted) + 2 * drafted + 10 * repeat
            rows += [f"{repeat},ngram-simple,{n},{m},2.0,{p},100,{wall + 5 * p},{drafted},"
                     f"{accepted}," for p in range(4)]  # fmt: skip
    return "\n".join(rows) + "\n"


def written(name: str, learn_from: str = "[]", **changes: Any) -> str:
    settings = {"launches": 14, "seed": 7, "held_out": 8, **changes}
    return STUDY.format(name=name, learn_from=learn_from, **settings)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a study file beside its landscape."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(table())

    def write(name: str, learn_from: str = "[]", **changes: Any) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(written(name, learn_from, **changes))
        return path

    return write


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A folder with an earlier study that launched everything."""
    folder = tmp_path_factory.mktemp("earlier")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "table.csv").write_text(table())
        (folder / "first.yaml").write_text(written("first"))
        return folder, run_study(load_study(folder / "first.yaml"))


@pytest.fixture
def first(study: Callable[..., Path], ran: tuple[Path, RunResult]) -> RunResult:
    """The same in this test's own folder."""
    shutil.copytree(ran[0] / "results", "results")
    return ran[1]


def launches_until_best(done: RunResult) -> int:
    tried = [r.params for r in done.records if r.state in ("complete", "pruned", "failed")]
    return tried.index(BEST) + 1


def setup_of(path: Path, **fingerprint: str) -> tuple[StudySetup, frozenset[str]]:
    """A study as it would be opened, on a machine with other fields."""
    loaded = load_study(path)
    engine = get_engine(loaded.config.engine)
    facts = inspect_engine(engine, loaded.config.engine)
    candidates = find_candidates(engine, build_space(loaded), facts)
    workload = build_workload(loaded.config.workload, loaded.config.search.seed)
    taken = take(subject_of(loaded, facts.version))
    changed = Fingerprint({**taken.fields, **fingerprint})
    return StudySetup(loaded, candidates.space, workload.digest, changed), candidates.digests


def halves(found: Learned) -> set[tuple[bool, bool]]:
    return {(each.tells_acceptance, each.tells_costs) for each in found.launches}


# ---- what it saves ---------------------------------------------------------------------------
def test_the_second_study_launches_the_best_first(
    study: Callable[..., Path], first: RunResult
) -> None:
    seen: list[Event] = []
    warm = run_study(load_study(study("warm", "[first]", launches=9)), observer=seen.append)
    assert launches_until_best(warm) == 1 < launches_until_best(first)
    assert warm.launches < first.launches
    notes = [
        each.message for each in seen if isinstance(each, Notice) and "learned" in each.message
    ]
    assert notes == ["learned acceptance and costs of 12 servers from study first"]
    assert warm.recommendation.trial == warm.records[1].number
    assert f"Learned{notes[0][7:]}." in warm.recommendation.reasons


def test_what_failed_before_is_not_launched_first(
    study: Callable[..., Path], first: RunResult
) -> None:
    warm = run_study(load_study(study("warm", "auto", launches=6, seed=5)))
    assert {"n": 12, "m": 16} not in [r.params for r in warm.records]


# ---- what may carry over ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "found", "reason"),
    [
        ({}, {(True, True)}, ""),
        ({"draft_model": "another"}, {(False, True)}, "not their acceptance: another draft"),
        ({"cpu": "another"}, {(True, False)}, "not their costs: another host (cpu)"),
        ({"engine": "replay 9"}, {(True, False)}, "not their costs: another engine version"),
        ({"model": "another"}, set(), "learned nothing from study first: another model"),
        (
            {"draft_model": "another", "cpu": "another"}, set(),
            "learned nothing from study first: another draft, another host (cpu)",
        ),
    ],
)  # fmt: skip
def test_halves_by_what_is_the_same(
    study: Callable[..., Path],
    first: RunResult,
    fields: dict[str, str],
    found: set[tuple[bool, bool]],
    reason: str,
) -> None:
    learned = learn(*setup_of(study("second", "[first]"), **fields))
    assert halves(learned) == found
    (note,) = learned.notes
    assert note.endswith(reason) or reason in note


@pytest.mark.parametrize("change", [{"held_out": 4}, {"seed": 8}])
def test_other_prompts_tell_costs_alone(
    study: Callable[..., Path], first: RunResult, change: dict[str, int]
) -> None:
    """The seed chooses among the prompts, too."""
    learned = learn(*setup_of(study("second", "[first]", **change)))
    assert halves(learned) == {(False, True)}
    assert learned.notes[0].endswith("not their acceptance: other prompts")


def test_servers_that_are_not_in_the_space_tell_nothing(
    study: Callable[..., Path], first: RunResult
) -> None:
    setup, digests = setup_of(study("second", "[first]"))
    learned = learn(setup, frozenset())
    assert learned.launches == ()
    assert learned.notes[0].endswith("it launched none of these servers")
    assert len(learn(setup, digests).launches) == 14, "twelve servers, the baseline twice"


# ---- where earlier studies are ---------------------------------------------------------------
@pytest.mark.parametrize(
    "text", ["auto", "[first]", "[results/first]", "[results/first/study.db]"]
)
def test_ways_to_name_them(study: Callable[..., Path], first: RunResult, text: str) -> None:
    learned = learn(*setup_of(study("second", text)))
    assert len(learned.launches) == 14


def test_a_study_does_not_learn_from_itself(study: Callable[..., Path], first: RunResult) -> None:
    setup, digests = setup_of(study("first", "auto"))
    uid = json.loads(Path("results/first/identity.json").read_text())["uid"]
    assert learn(setup, digests, uid) == Learned()


def test_what_is_named_must_be_there(study: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"search\.learn_from: study nowhere: must be"):
        learn(*setup_of(study("second", "[nowhere]")))


def test_a_broken_neighbour_stops_only_a_study_that_named_it(
    study: Callable[..., Path], first: RunResult
) -> None:
    broken = Path("results/broken/study.db")
    broken.parent.mkdir()
    broken.write_text("no database" * 100)
    learned = learn(*setup_of(study("second", "auto")))
    assert len(learned.launches) == 14
    assert learned.notes[0].startswith(f"learned nothing from sqlite:///{broken.absolute()}: ")
    with pytest.raises(StoreError, match="must be usable, got: file is not a database"):
        learn(*setup_of(study("third", f"[{broken}]")))


def test_other_samplers_say_that_they_cannot_learn(
    study: Callable[..., Path], first: RunResult
) -> None:
    setup, digests = setup_of(study("second", "[first]"))
    search = setup.loaded.config.search.model_copy(update={"sampler": "tpe"})
    config = setup.loaded.config.model_copy(update={"search": search})
    other = replace(setup, loaded=replace(setup.loaded, config=config))
    assert learn(other, digests).notes == (
        "search.learn_from is not used: sampler tpe cannot learn",
    )


def test_check_says_what_would_be_learned(study: Callable[..., Path], first: RunResult) -> None:
    path = study("second", "[first]")
    found = CliRunner().invoke(build_app(), ["check", str(path)], prog_name="tuner")
    assert found.exit_code == 0, found.stderr
    assert "  learned acceptance and costs of 12 servers from study first" in found.stdout
    lines = [line.split() for line in found.stdout.splitlines()]
    assert ["n=3", "m=16"] in lines, "what would be launched first is the best known"
