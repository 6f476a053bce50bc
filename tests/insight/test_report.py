"""The report: one file, nothing fetched, nothing unescaped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.reporting import write_report
from tuner.errors import UsageError
from tuner.insight.figures import study_figures
from tuner.insight.leverage import explain
from tuner.insight.nccl import nccl_effects
from tuner.insight.page import Raw, paragraph, plot, table
from tuner.insight.report import args_text, render_report
from tuner.store.record import ArgsRecord, RecommendationRecord, TrialRecord
from tuner.store.stored import StoredStudy

Make = Callable[..., Any]
EVIL = "</script><img src=x onerror=alert(1)>"
LOADS = (1, 4, 16, 64)


@pytest.fixture
def study(make_world: Make, make_study: Make) -> StoredStudy:
    """Several depths, repeats of the baseline, a failure, hostile names."""
    world = make_world()
    trials = [world.trial(n, d, loads=LOADS) for n, d in enumerate([0, 1, 2, 3])]
    trials.append(world.trial(4, 0, loads=LOADS))
    failed = TrialRecord(
        number=5, state="failed", failure="out_of_memory", reason=EVIL, params={EVIL: EVIL}
    )
    trials[2] = trials[2].model_copy(update={"params": {"steps": 2, EVIL: EVIL}})
    verdict = RecommendationRecord(verdict="use", trial=3, ratio=1.7, low=1.6, high=1.8)
    made = make_study([*trials, failed], verdict)
    return replace(made, name=f"demo {EVIL}")


def html_of(study: StoredStudy) -> str:
    return render_report(study, explain(study), ["Recommended: trial 3.", f"  {EVIL}"], "/*js*/")


def test_nothing_of_the_user_is_markup(study: StoredStudy) -> None:
    html = html_of(study)
    assert "<img" not in html
    assert "&lt;/script&gt;&lt;img src=x" in html
    assert html.count("</script>") == html.count("<script")


def test_nothing_is_fetched(study: StoredStudy) -> None:
    html = html_of(study)
    assert not re.search(r"<\w[^>]*\b(src|href)\s*=|@import|url\(|https?://", html)


def test_the_verdict_comes_first_and_the_lever_beside_it(study: StoredStudy) -> None:
    html = html_of(study)
    places = [html.index(t) for t in ("Recommended: trial 3.", "Largest lever", "<h2>Levers</h2>")]
    assert places == sorted(places)


def lever_card(study: StoredStudy) -> str:
    html = html_of(study)
    start = html.index("<h2>Largest lever</h2>")
    return html[start : html.index("</div>", start)]


def test_the_levers_card_says_of_what_it_is_a_ratio(story: StoredStudy) -> None:
    found = lever_card(story)
    assert re.search(r'class="big">better draft: 1\.\d\dx of trial 1</p>', found)
    assert re.search(r"<li>1\.\d\dx baseline with it, 1\.06x now</li>", found)
    assert "<li>Next: <code>tuner draft inspect</code> your draft" in found


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (0.007, "a draft would pay from acceptance length "),
        (0.05, "no draft of this depth would pay"),
    ],
)
def test_a_lever_that_does_not_reach_the_baseline_says_so(
    make_world: Make, draft: float, says: str
) -> None:
    world = make_world(draft=draft, token=0.001, rates=(0.4, 0.2, 0.1))
    study = world.study([1, 2, 3])
    assert explain(study).largest is not None
    found = lever_card(study)
    assert re.search(r"<li>0\.\d+x baseline with it, 0\.\d+x now", found)
    assert says in found
    assert "Next: serve without speculation" in found


@pytest.mark.parametrize(
    ("load", "words"),
    [("c1", " c1: 1 request at a time."), ("c8", " c8: 8 requests at a time."), ("r4", ".</p>")],
)
def test_the_load_is_said_in_words(study: StoredStudy, load: str, words: str) -> None:
    study.document["fields"]["objective.at"] = load
    assert words in html_of(study)


def test_every_section_is_there(study: StoredStudy) -> None:
    titles = re.findall(r"<section><h2>(.*?)</h2>", html_of(study))
    assert titles == [
        "Levers",
        "Where the time of a step goes",
        "Acceptance by position",
        "Trials over time",
        "Speed by draft depth and width",
        "Load at which speculation stops paying",
        "Drift and noise",
        "Failures",
        "The server to run",
        "All trials",
        "Where this was measured",
    ]


def test_charts_carry_valid_documents(study: StoredStudy) -> None:
    documents = re.findall(r'type="application/json" id="[\w-]+">(.*?)</script>', html_of(study))
    assert len(documents) == 7
    for document in documents:
        assert json.loads(document)["data"]


def test_trials_with_their_intervals(study: StoredStudy) -> None:
    figure = study_figures(study, explain(study))["trials"]
    complete = next(trace for trace in figure.data if trace["name"] == "complete")
    assert complete["x"] == [1, 2, 3]
    assert complete["error_y"]["array"][0] == pytest.approx(0.01 * complete["y"][0])


def test_simulated_is_said_on_top(study: StoredStudy) -> None:
    trials = [trial.model_copy(update={"is_simulated": True}) for trial in study.trials]
    assert "Simulated: the numbers are replayed" in html_of(replace(study, trials=trials))


def test_an_empty_study_has_a_report(make_study: Make) -> None:
    html = render_report(make_study([]), explain(make_study([])), ["Nothing yet."], "")
    assert "0 trials" in html
    assert "<section><h2>Levers" not in html


def test_keeping_the_baseline(make_world: Make, make_study: Make) -> None:
    verdict = RecommendationRecord(verdict="keep_baseline")
    study = make_study([make_world().trial(0, 0), make_world().trial(1, 2)], verdict)
    assert "<p>Keep the baseline.</p><pre>args:\n  model-path" in html_of(study)


def test_writing_the_file(study: StoredStudy, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    path = write_report(study, tmp_path / "report.html")
    assert "Plotly.react" in path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="must be a file that can be written"):
        write_report(study, tmp_path / "missing" / "report.html")


def test_nccl_settings_and_what_is_inert(make_world: Make) -> None:
    def trial(number: int, value: float, **env: str) -> TrialRecord:
        made: TrialRecord = make_world().trial(number, 3, vs_baseline=value)
        args = ArgsRecord(flags=made.requested_args.flags, env=env)
        return made.model_copy(update={"requested_args": args})

    found = nccl_effects(
        [trial(1, 1.0), trial(2, 1.1, NCCL_PROTO="LL"), trial(3, 1.001, NCCL_ALGO="Tree")], 0.015
    )
    assert [(e.variable, e.before, e.after, e.is_inert) for e in found] == [
        ("NCCL_PROTO", "unset", "LL", False),
        ("NCCL_ALGO", "unset", "Tree", True),
    ]
    assert found[0].ratio == pytest.approx(1.1)


def test_pieces_of_a_page() -> None:
    assert paragraph("a < b, run `x`") == "<p>a &lt; b, run <code>x</code></p>"
    assert table(("a",), []) == ""
    assert "<b>" in table(("a",), [(Raw("<b>1</b>"),)])
    assert "\\u003c" in plot("k", {"data": ["<"]})
    args = ArgsRecord(flags={"tp-size": 8}, env={"NCCL_ALGO": None})
    assert args_text(args) == "args:\n  tp-size: 8\nenv:\n  NCCL_ALGO: null"
