"""A study is created, resumed, refused, or started afresh; its trials go in and out of Optuna."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from tuner.errors import StoreError, StudyMismatch
from tuner.measure.records import Block, LoadPoint
from tuner.search.sampling import make_suggester
from tuner.store.database import open_store


def test_the_baseline_is_trial_0_and_start_points_follow(workshop: Any) -> None:
    setup = workshop.setup(
        start="[{steps: 3, topk: 1, nccl: unset}, {steps: 2, topk: 4, draft: 8}]"
    )
    with workshop.opened(setup) as opened:
        asked = workshop.run(opened, limit=4)
        assert [(a.number, a.is_baseline) for a in asked] == [
            (0, True), (1, False), (2, False), (3, False)
        ]  # fmt: skip
        assert asked[1].params == {"steps": 3, "topk": 1, "nccl": "unset"}
        assert asked[2].params == {"steps": 2, "topk": 4, "draft": 8, "nccl": "unset"}
        trials = opened.study.get_trials()
        assert (trials[0].value, trials[0].params) == (100.0, {})
        assert trials[2].params == asked[2].params
        assert trials[0].user_attrs["baseline"] is True
        assert opened.study.metric_names == ["output_tokens_per_s"]


def test_every_distinct_server_is_launched_once_and_then_nothing_is_left(workshop: Any) -> None:
    with workshop.opened() as opened:
        asked = workshop.run(opened, launches=8)
        ground = workshop.ground(opened.setup)
        digests = [r.digest for r in opened.records() if r.state == "complete"]
        assert len(digests) == len(set(digests)) == len(ground.survey.servers) == 26
        assert len(asked) == 27
        assert len({tuple(sorted(a.params.items())) for a in asked}) == 27


def test_params_keep_their_names_and_one_distribution_each(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=12)
        seen: dict[str, set[str]] = {}
        for trial in opened.study.get_trials():
            assert ("draft" in trial.params) == (trial.params.get("topk", 1) > 1)
            for name, distribution in trial.distributions.items():
                seen.setdefault(name, set()).add(repr(distribution))
        assert set(seen) == {"steps", "topk", "draft", "nccl"}
        assert all(len(kinds) == 1 for kinds in seen.values())


def test_running_again_resumes_where_it_stopped(workshop: Any) -> None:
    with workshop.opened() as opened:
        assert not opened.resumed
        first = workshop.run(opened, limit=5)
    with workshop.opened() as opened:
        assert opened.resumed
        assert opened.notes == ()
        second = workshop.run(opened, limit=5)
    assert [a.number for a in first + second] == list(range(10))
    assert not any(a.is_baseline for a in second)
    points = [tuple(sorted(a.params.items())) for a in first + second]
    assert len(set(points)) == 10


def test_the_same_study_asks_the_same_points_again(workshop: Any, tmp_path: Path) -> None:
    runs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        other = type(workshop)(tmp_path / name)
        with other.opened() as opened:
            runs.append([a.params for a in other.run(opened, limit=9)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"direction": "minimize", "metric": "tpot_ms"}, {"objective"}),
        ({"steps": 4}, {"space.parameters.steps"}),
        ({"fingerprint": {"gpu": "none", "driver": "2"}}, {"fingerprint.driver"}),
        (
            {"steps": 2, "fingerprint": {"gpu": "H200", "driver": "1"}},
            {"space.parameters.steps", "fingerprint.gpu"},
        ),
    ],
)
def test_a_changed_study_is_refused_field_by_field(
    workshop: Any, change: dict[str, Any], fields: set[str]
) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=2)
    with pytest.raises(StudyMismatch) as caught, workshop.opened(workshop.setup(**change)):
        pass
    assert {difference.field for difference in caught.value.differences} == fields
    assert caught.value.exit_code == 4
    assert "--new" in caught.value.hint
    with workshop.opened() as opened:  # nothing was changed by the refusal
        assert len(opened.records()) == 2


def test_sampler_and_start_points_may_change(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=2)
    setup = workshop.setup(sampler="random", start="[{steps: 2, topk: 1}]")
    with workshop.opened(setup) as opened:
        assert opened.resumed


def test_new_keeps_the_old_study_and_is_resumed_from_then_on(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=3)
    wider = workshop.setup(steps=4)
    with workshop.opened(wider, new=True) as opened:
        assert (opened.name, opened.resumed) == ("demo-2", False)
        asked = workshop.run(opened, limit=2)
        assert [a.number for a in asked] == [0, 1]
    with workshop.opened(wider) as opened:
        assert (opened.name, opened.resumed) == ("demo-2", True)
        assert opened.results.trial_numbers() == [0, 1]
        assert len(opened.store.trials("demo")) == 3
    root = workshop.folder / "demo"
    assert (root / "trials/0002/record.json").is_file()
    assert (root / "generation-2/trials/0001/record.json").is_file()


def test_a_deleted_database_is_filled_again_from_the_raw_files(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=6)
        before = opened.records()
    for path in (workshop.folder / "demo").glob("study.db*"):
        path.unlink()
    with workshop.opened() as opened:
        assert opened.records() == before
        assert [t.value for t in opened.study.get_trials()] == [r.value for r in before]
        assert [t.params for t in opened.study.get_trials()] == [r.params for r in before]
        assert sum("read back" in note for note in opened.notes) == 6
        asked = workshop.run(opened, limit=1)
        assert (asked[0].number, asked[0].is_baseline) == (6, False)


def test_raw_files_of_something_else_are_not_taken_back(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=2)
    for path in (workshop.folder / "demo").glob("study.db*"):
        path.unlink()
    with pytest.raises(StudyMismatch), workshop.opened(workshop.setup(steps=5)):
        pass


def test_a_folder_of_another_database_is_refused(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        opened.results.write_identity({"uid": "another"})
    with pytest.raises(StoreError, match="those of another one") as caught, workshop.opened():
        pass
    assert "mv " in caught.value.hint


def test_trials_without_an_identity_are_refused(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        (opened.results.base / "identity.json").unlink()
    with pytest.raises(StoreError, match="which study its trials belong to"), workshop.opened():
        pass


def test_a_study_of_another_program_is_not_taken_over(workshop: Any) -> None:
    (workshop.folder / "demo").mkdir()
    with open_store(f"sqlite:///{workshop.folder}/demo/study.db", create=True) as store:
        optuna.create_study(study_name="demo", storage=store.optuna_storage)
    with pytest.raises(StoreError, match="another program"), workshop.opened():
        pass


def test_a_second_tuner_of_the_same_study_is_refused(workshop: Any) -> None:
    from tuner.errors import HostError

    with workshop.opened(), pytest.raises(HostError, match="is running it"), workshop.opened():
        pass


def test_a_user_may_queue_points_with_optuna(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        opened.study.enqueue_trial({"steps": 2, "topk": 4})  # partly: draft is missing
        opened.study.enqueue_trial({"steps": 77})
        opened.study.enqueue_trial({"colour": "red"})
        asked = workshop.run(opened, limit=2)
        assert asked[0].params["steps"] == 2
        assert asked[0].params["topk"] == 4
        trials = opened.study.get_trials()
        assert [t.state for t in trials[2:4]] == [TrialState.PRUNED, TrialState.PRUNED]
        assert "no point like {'steps': 77}" in trials[2].user_attrs["reason"]
        assert opened.records()[3].state == "infeasible"
        assert asked[1].number == 4


def test_the_baseline_can_be_queued_again(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=3)
        opened.queue_baseline()
        asked = workshop.run(opened, limit=2)
        assert [a.is_baseline for a in asked] == [True, False]


def test_what_runs_elsewhere_is_not_proposed(workshop: Any) -> None:
    with workshop.opened(workshop.setup(steps=2, sampler="random")) as opened:
        ground = workshop.ground(opened.setup)
        suggester = make_suggester(ground)
        asked = [opened.ask(ground, suggester) for _ in range(len(ground.survey.servers) + 2)]
        assert asked[-1] is None
        points = [tuple(a.params.items()) for a in asked[1:-1]]
        assert len(set(points)) == len(ground.survey.servers)


def test_an_interrupted_trial_is_queued_once_more(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        ground = workshop.ground(opened.setup)
        suggester = make_suggester(ground)
        first = opened.ask(ground, suggester)
        opened.interrupt(first)
        again = opened.ask(ground, suggester)
        assert (again.params, again.retry_of) == (first.params, first.number)
        opened.interrupt(again)
        third = opened.ask(ground, suggester)
        assert third.retry_of is None
        states = [t.state for t in opened.study.get_trials()[1:3]]
        assert states == [TrialState.FAIL, TrialState.FAIL]
        assert [r.failure for r in opened.records()[1:]] == ["interrupted", "interrupted"]


def test_an_interrupted_baseline_is_a_baseline_again(workshop: Any) -> None:
    with workshop.opened() as opened:
        ground = workshop.ground(opened.setup)
        first = opened.ask(ground, make_suggester(ground))
        opened.interrupt(first)
        again = opened.ask(ground, make_suggester(ground))
        assert (again.is_baseline, again.retry_of) == (True, 0)


def test_a_trial_ended_by_someone_else_keeps_its_measurement(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        ground = workshop.ground(opened.setup)
        asked = opened.ask(ground, make_suggester(ground))
        opened.study.tell(asked.number, state=TrialState.FAIL)
        note = opened.finish(workshop.record(asked))
        assert note.startswith("trial 1 was ended as FAIL by another process")
        assert opened.records()[1].state == "complete"
        assert workshop.run(opened, limit=1)[0].number == 2


@pytest.mark.parametrize("has_files", [True, False], ids=["here", "on another machine"])
def test_what_is_added_to_a_trial_keeps_its_blocks_and_what_others_added(
    workshop: Any, has_files: bool
) -> None:
    block = Block(0, LoadPoint(concurrency=1), 0.0, 1.0, ())
    with workshop.opened() as opened:
        workshop.run(opened, limit=1)
        ground = workshop.ground(opened.setup)
        opened.finish(workshop.record(opened.ask(ground, make_suggester(ground))), [block])
        folder = opened.results.trial_folder(1)
        if not has_files:
            shutil.rmtree(folder)
        seen = opened.records()[1]
        opened.store.amend_trial(opened.name, seen.model_copy(update={"cycle": {"draft": 0.1}}))
        found = opened.amend(1, {"drift": 0.25})
        assert (found.drift, found.cycle, found.value) == (0.25, {"draft": 0.1}, seen.value)
        assert opened.records()[1] == found
        assert opened.store.trial(opened.name, 1) == found
        assert len(opened.store.blocks(opened.name, 1)) == 1
        assert folder.is_dir() is has_files
        if has_files:
            assert opened.results.read_trial(1) == found
            assert opened.results.read_blocks(1) == [block]


def test_the_file_stays_sound(workshop: Any) -> None:
    with workshop.opened() as opened:
        workshop.run(opened, limit=4)
    with closing(sqlite3.connect(workshop.folder / "demo/study.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
