"""The explanation of a study: the cycle, the levers, the one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.insight.leverage import Explanation, explain, subject_of
from tuner.insight.levers import Lever
from tuner.store.record import ArgsRecord, RecommendationRecord
from tuner.store.stored import StoredStudy

Make = Callable[..., Any]


def lever(found: Explanation, name: str) -> Lever:
    return next(each for each in found.levers if each.name == name)


# ---- the founding story ----------------------------------------------------------------------
def test_a_better_draft_is_worth_more_than_all_flags_together(story: StoredStudy) -> None:
    found = explain(story)
    draft, flags = lever(found, "better draft"), lever(found, "all flags")
    assert found.cycle is not None
    assert found.cycle.basis == "measured"
    assert found.cycle.shares["verify"] > 0.95
    assert found.curve is not None
    assert found.curve.length == pytest.approx(2.1, abs=0.01)
    assert draft.low > flags.high
    assert draft.ratio == pytest.approx(3.35 / 2.1, rel=0.05)
    assert flags.ratio == pytest.approx(1.059)
    assert flags.basis == "measured"
    assert found.largest is draft


def test_the_sentence_names_the_lever_and_what_to_do(story: StoredStudy) -> None:
    text = explain(story).sentence
    assert text.startswith("Largest lever: better draft (acceptance length 2.10 to 3.35, as ")
    assert "more than all flags together (1.06x)" in text
    assert "`tuner draft compare` it with AQ-MedAI/Kimi-K2-Instruct-eagle3." in text


def test_published_figures_stand_beside_the_measured_one(story: StoredStudy) -> None:
    found = explain(story).published
    assert found is not None
    assert found.best.name == "AQ-MedAI/Kimi-K2-Instruct-eagle3"
    assert len(found.drafts) == 5
    assert "2.10 at 3 drafted positions is within that range" in found.sentence
    assert "37% less than the best" in found.sentence


def test_communication_is_named_where_ranks_must_agree(story: StoredStudy) -> None:
    found = lever(explain(story), "communication")
    assert found.ratio == pytest.approx(1.10, abs=0.02)
    assert "assumed" in found.change
    assert "probe collectives" in found.next_step


# ---- predictions against a world that is known -----------------------------------------------
@pytest.mark.parametrize("depths", [(1, 2, 3), (1, 3), (2, 4)])
def test_a_deeper_draft_is_predicted_as_it_would_be(make_world: Make, depths: Any) -> None:
    world = make_world(rates=(0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8))
    found = explain(world.study(depths))
    assert found.trial is not None
    deeper = lever(found, "deeper draft")
    depth = int(deeper.change.split()[2])
    true = world.speed(depth) / world.speed(max(depths)) if depth <= 11 else None
    assert depth not in depths
    if true is not None:
        assert deeper.ratio == pytest.approx(true, rel=0.05)
        assert deeper.low <= true <= deeper.high


def test_a_fitted_cycle_finds_the_parts(make_world: Make) -> None:
    world = make_world()
    cycle = explain(world.study([1, 2, 3, 5])).cycle
    assert cycle is not None
    assert cycle.basis == "fitted"
    assert cycle.seconds == pytest.approx(world.step(3), rel=0.1)
    assert cycle.verify > cycle.draft
    assert any("told apart by a prior" in note for note in cycle.notes)


def test_a_better_draft_without_published_ones_is_half_of_what_is_missing(
    make_world: Make,
) -> None:
    world = make_world()
    found = lever(explain(world.study([3])), "better draft")
    now = world.length(3)
    assert f"{now:.2f} to {now + (4 - now) / 2:.2f}" in found.change
    assert found.low < found.ratio < found.high


def test_prefill_is_not_sped_up(make_world: Make) -> None:
    quick, slow = make_world(prefill=0.001), make_world(prefill=3.0)
    gains = [lever(explain(w.study([3])), "better draft").ratio for w in (quick, slow)]
    assert gains[0] > gains[1] > 1.0


def test_nccl_settings_that_saved_time_elsewhere(make_world: Make, make_study: Make) -> None:
    slow, fast = make_world(base=0.02), make_world(base=0.0146)
    ring = {"NCCL_PROTO": "LL"}
    plain, tuned = slow.trial(1, 3), fast.trial(2, 3)
    tuned = tuned.model_copy(
        update={"requested_args": ArgsRecord(flags=tuned.requested_args.flags, env=ring)}
    )
    best = slow.trial(3, 4, vs_baseline=9.0)
    found = lever(explain(make_study([slow.trial(0, 0), plain, tuned, best])), "communication")
    saving = 1 - fast.step(3) / slow.step(3)
    assert f"saved {saving:.0%}".replace("%", " %") in found.change
    assert found.low < found.ratio < found.high


# ---- edges -----------------------------------------------------------------------------------
def test_nothing_speculative_was_measured(make_world: Make, make_study: Make) -> None:
    found = explain(make_study([make_world().trial(0, 0)]))
    assert found.trial is None
    assert "run the study first" in found.sentence
    assert found.to_json()["levers"] == []


def test_a_trial_without_counts_is_explained_by_what_there_is(
    make_world: Make, make_study: Make
) -> None:
    world = make_world()
    bare = world.trial(1, 3, load_points=[], acceptance=None)
    found = explain(make_study([world.trial(0, 0), bare]))
    assert found.cycle is None
    assert [each.name for each in found.levers] == ["all flags"]
    assert "keep what is recommended" in found.sentence


def test_synthetic_trials_are_never_explained(make_world: Make, make_study: Make) -> None:
    world = make_world()
    fast = world.trial(1, 5, is_synthetic=True, vs_baseline=9.0)
    assert subject_of(make_study([world.trial(0, 0), fast, world.trial(2, 2)])).number == 2


def test_the_recommended_trial_is_explained(make_world: Make, make_study: Make) -> None:
    world = make_world()
    trials = [world.trial(0, 0), world.trial(1, 2), world.trial(2, 3, vs_baseline=9.0)]
    found = RecommendationRecord(verdict="use", trial=1)
    assert subject_of(make_study(trials, found)).number == 1


def test_the_document(story: StoredStudy) -> None:
    document = explain(story).to_json()
    assert set(document["cycle"]) >= {"draft", "verify", "other", "basis", "shares"}
    assert document["levers"][0]["name"] == "better draft"
    assert {"name", "change", "predicted_ratio", "low", "high", "basis"} <= set(
        document["levers"][0]
    )
    assert document["acceptance"]["per_position"][0]["low"] < 0.6
    assert document["crossover"]["concurrency"] is None
