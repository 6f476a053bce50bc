"""The explanation of a study: the cycle, the levers, the one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
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


# ---- where speculation loses -----------------------------------------------------------------
def losing(make_world: Make, **changes: Any) -> tuple[Any, StoredStudy]:
    """A draft that costs three quarters of a step and is accepted half the time."""
    settings: dict[str, Any] = {"draft": 0.008, "token": 0.001, "rates": (0.5, 0.4, 0.3)}
    world = make_world(**settings | changes)
    return world, world.study([1, 2, 3])


def test_a_losing_server_says_from_which_acceptance_it_would_pay(make_world: Make) -> None:
    world, study = losing(make_world)
    found = explain(study)
    assert found.trial is not None
    depth = found.trial.number
    assert found.versus < 1
    assert found.break_even is not None
    equal = world.step(depth) / world.step(0)
    assert found.break_even == pytest.approx(equal, rel=0.01)
    assert found.sentence.startswith(f"Speculation loses here: trial {depth} runs at 0.")
    assert f"from acceptance length {found.break_even:.2f}" in found.sentence
    assert "Next:" in found.sentence


def test_a_draft_that_could_never_pay_at_its_depth(make_world: Make) -> None:
    found = explain(losing(make_world, draft=0.05)[1])
    assert found.break_even > found.most
    assert f"but at most {found.most:g} at this depth" in found.sentence
    assert "Next: serve without speculation, or try another method." in found.sentence
    assert "would still give only 0." in found.sentence


def test_time_outside_decoding_alone_can_make_it_hopeless(
    make_world: Make, make_study: Make
) -> None:
    world = make_world(draft=0.05, prefill=30.0)
    slow = world.trial(1, 3, vs_baseline=0.4)
    found = explain(make_study([world.trial(0, 0), slow]))
    assert found.break_even is None
    assert "acceptance length" not in found.sentence.split("Next:")[0].split("(")[0]


# ---- which levers an engine has --------------------------------------------------------------
@pytest.mark.parametrize(("kind", "has"), [("sglang", True), ("vllm", False), ("llamacpp", False)])
def test_trees_are_offered_where_there_are_trees(
    make_world: Make, make_study: Make, kind: str, has: bool
) -> None:
    world = make_world()
    bare = []
    for trial in world.study([1, 2, 3]).trials:
        flags = {n: v for n, v in trial.requested_args.flags.items() if "topk" not in n}
        bare.append(trial.model_copy(update={"requested_args": ArgsRecord(flags=flags)}))
    study = make_study(bare)
    study.document["fields"]["engine.kind"] = kind
    assert ("wider draft" in {each.name for each in explain(study).levers}) is has


def test_a_smaller_draft_vocabulary_saves_its_share_of_a_pass(
    make_world: Make, make_study: Make, tmp_path: Path
) -> None:
    """A head of 163,840 rows in a one-layer draft: most of what a pass reads."""
    hidden, inner, vocabulary = 64, 128, 163_840
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": hidden,
        "vocab_size": vocabulary, "intermediate_size": inner,
        "num_attention_heads": 4, "num_hidden_layers": 1,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    world = make_world(draft=0.004)
    trials = []
    for trial in world.study([1, 2, 3]).trials:
        flags = {**trial.requested_args.flags, "speculative-draft-model-path": str(tmp_path)}
        trials.append(trial.model_copy(update={"requested_args": ArgsRecord(flags=flags)}))
    found = explain(make_study(trials))
    assert found.cycle is not None
    one = lever(found, "smaller draft vocabulary")
    body = 3 * hidden * hidden + 2 * hidden * hidden * 3 + hidden * hidden + 3 * hidden * inner
    head = vocabulary * hidden
    saved = head / (head + body) * (1 - 32_000 / vocabulary)
    most = 1 / (1 - found.cycle.shares["draft"] * saved)
    assert 1 < one.low < one.ratio < one.high <= most * 1.001
    assert one.high == pytest.approx(most, rel=0.05)
    assert one.change.startswith("draft vocabulary 163,840 to 32,000")
    assert (one.basis, "vocabulary map" in one.next_step) == ("model", True)


def test_a_small_vocabulary_is_not_made_smaller(
    make_world: Make, make_study: Make, tmp_path: Path
) -> None:
    config = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 32_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    world = make_world()
    trials = []
    for trial in world.study([1, 2]).trials:
        flags = {**trial.requested_args.flags, "speculative-draft-model-path": str(tmp_path)}
        trials.append(trial.model_copy(update={"requested_args": ArgsRecord(flags=flags)}))
    names = {each.name for each in explain(make_study(trials)).levers}
    assert "smaller draft vocabulary" not in names


def test_every_lever_has_a_gain_an_interval_and_a_basis(make_world: Make) -> None:
    for each in explain(make_world().study([1, 2, 3, 5], loads=(1, 4))).levers:
        assert each.low <= each.ratio <= each.high, each.name
        assert each.basis in ("measured", "model")
        assert each.basis == "measured" or each.next_step, each.name
