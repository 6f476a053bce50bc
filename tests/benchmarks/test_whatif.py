"""The what-if benchmark: its curves, its servers, its table; nothing is launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.whatif import CURVES, HEAD, lever_of, make_bench, row, servers, summary
from tuner.insight.whatif import WhatIf
from tuner.measure.statistics import Interval


def what_if(ratio: float, spread: float) -> WhatIf:
    ran = Interval(ratio, ratio / spread, ratio * spread, 4, 0.02)
    return WhatIf(2.4, 2.38, 1.6, 1.30, ran, 1.29, Interval(0.8, 0.7, 0.9, 4, 0.02), 60.0)


@pytest.mark.parametrize("rates", CURVES.values(), ids=CURVES)
def test_curves_fall_and_levers_lie_between_now_and_perfect(rates: tuple[float, ...]) -> None:
    assert list(rates) == sorted(rates, reverse=True)
    assert 1 + sum(rates) < lever_of(rates) < len(rates) + 1


def test_the_three_servers_differ_in_acceptance_alone(tmp_path: Path) -> None:
    draft = tmp_path / "draft.gguf"
    bench = make_bench(tmp_path / "m.gguf", draft, threads=1, blocks=3, tokens=8)
    base, measured, lever = servers(bench, draft, (0.6, 0.3), 2.45)
    assert "spec-type" not in base.args.flags
    assert measured.args.flags["spec-synth-rates"] == "0.6,0.3"
    assert lever.args.flags["spec-synth-len"] == 2.45
    same = set(measured.args.flags) & set(lever.args.flags)
    assert all(measured.args.flags[name] == lever.args.flags[name] for name in same)
    assert set(measured.args.flags) ^ set(lever.args.flags) == {
        "spec-synth-rates", "spec-synth-len",
    }  # fmt: skip
    assert bench.engine.violations(lever.args, bench.facts) == []


def test_answers_have_a_fixed_length_and_meet_no_cache(tmp_path: Path) -> None:
    workload = make_bench(tmp_path / "m", tmp_path / "d", 1, blocks=3, tokens=8).workload
    assert (workload.sampling.max_tokens, workload.sampling.exact_tokens) == (8, True)
    assert len(workload.held_out_blocks) == 3
    assert workload.cache == "off"


def test_the_table() -> None:
    line = row("MTP, one head", 1, what_if(1.31, 1.03))
    assert line.split() == [
        "MTP,", "one", "head", "1", "1.60", "2.40", "2.38", "1.30x", "1.31x",
        "[1.27,", "1.35]", "0.8%",
    ]  # fmt: skip
    assert HEAD.index("predicted") + len("predicted") == line.index("1.30x") + len("1.30x")


def test_a_noisy_table_says_so() -> None:
    assert summary([what_if(1.31, 1.03)]) == "worst disagreement 0.8% over 1 curves"
    noisy = summary([what_if(1.31, 1.03), what_if(1.43, 1.2)])
    assert noisy.startswith("worst disagreement 10.0% over 2 curves; the widest interval needs ")
