"""The story's comparison: same shape, another way of counting, 38 times more data."""

from __future__ import annotations

import pytest

from tuner.drafts.compare import compare_sides, conclusions, side_of, side_of_published
from tuner.drafts.inspect import inspect_draft
from tuner.drafts.published import family_of, find_published, published_drafts, similar_drafts
from tuner.drafts.sizes import in_words


@pytest.fixture
def story(draft):
    """The user's draft (37 K samples, 2.1) and the published one."""
    ours = side_of(inspect_draft(draft()), name="ours", samples=37_000, acceptance=(2.1, 2.1))
    return ours, side_of_published(find_published("AQ-MedAI/Kimi-K2-Instruct-eagle3"))


def test_the_storys_three_findings(story) -> None:
    ours, theirs = story
    found = conclusions(ours, theirs, compare_sides(ours, theirs))
    assert found[0].startswith("Same architecture (hidden_size, intermediate_size")
    assert "cannot explain a gap" in found[0]
    assert "1.17 B embedding and 229 M lm_head" in found[1]
    assert "differ by convention" in found[1]
    assert found[2] == "38 times more data: 37.0 K against 1.40 M. This can explain the gap."


def test_rows_say_what_each_difference_can_do(story) -> None:
    rows = {row.name: row for row in compare_sides(*story)}
    assert rows["hidden_size"].effect == "same"
    assert rows["captured layers"].effect == "same"
    assert rows["training samples"].effect == "explains"
    assert (rows["acceptance length"].a, rows["acceptance length"].b) == ("2.10", "3.20-3.50")


def test_a_mis_wired_draft_is_to_be_checked_first(draft, config, shapes) -> None:
    wrong = config(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 30, 58]})
    ours = side_of(inspect_draft(draft(wrong, shapes(4))))
    theirs = side_of_published(find_published("AQ-MedAI/Kimi-K2-Instruct-eagle3"))
    rows = compare_sides(ours, theirs)
    assert any("Captured layers differ" in text for text in conclusions(ours, theirs, rows))


def test_a_smaller_draft_can_explain_a_gap(draft, config) -> None:
    small = side_of(inspect_draft(draft(config(intermediate_size=4096), name="small")))
    large = side_of(inspect_draft(draft(name="large")))
    rows = {row.name: row for row in compare_sides(small, large)}
    assert rows["intermediate_size"].effect == "explains"
    assert not any("Same architecture" in t for t in conclusions(small, large, [*rows.values()]))


def test_what_is_not_known_is_said(draft) -> None:
    ours = side_of(inspect_draft(draft()))
    theirs = side_of_published(find_published("lightseekorg/kimi-k2.5-eagle3"))
    rows = {row.name: row for row in compare_sides(ours, theirs)}
    assert rows["hidden_size"].effect == "unknown"
    assert rows["training samples"].effect == "unknown"


def test_every_published_draft_has_source_and_settings() -> None:
    for each in published_drafts():
        assert each.source
        assert each.settings
        low, high = each.range
        assert 1.0 <= low <= high <= 8.0


def test_similar_drafts_are_of_the_same_family() -> None:
    assert family_of("/models/Kimi-K2.5-INT4") == "kimi-k2"
    names = [each.name for each in similar_drafts("/models/Kimi-K2.5-INT4", "EAGLE3")]
    assert "AQ-MedAI/Kimi-K2-Instruct-eagle3" in names
    assert similar_drafts("/models/Llama-3.1-8B", "EAGLE3") == []


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1_174_405_120, "1.17 B"),
        (229_376_000, "229 M"),
        (37_000, "37.0 K"),
        (999, "999"),
        (1_000, "1.00 K"),
        (9_994, "9.99 K"),
        (9_999, "10.0 K"),
        (999_499, "999 K"),
        (999_999, "1.00 M"),
        (99_999_999_999, "100 B"),
        (1_040_000_000_000, "1.04 T"),
        (0, "0"),
    ],
)  # fmt: skip
def test_counts_in_words(count: int, words: str) -> None:
    assert in_words(count) == words
