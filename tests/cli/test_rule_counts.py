"""`tuner check` names the rules that decide the points of a space."""

from __future__ import annotations

from pathlib import Path

from tuner.cli.check import check_lines, check_study

STUDY = """\
name: classic
engine: {kind: sglang, executable: %s, model: /m, draft_model: /d,
         args: {speculative-algorithm: EAGLE3}}
space:
  parameters:
    steps: {flag: speculative-num-steps, int: [1, 7]}
    topk: {flag: speculative-eagle-topk, choices: [1, 2, 4, 8]}
    draft_tokens: {flag: speculative-num-draft-tokens, choices: [4, 8, 16, 32]}
workload: {prompts: {builtin: mixed}}
objective: {maximize: output_tokens_per_s}
"""


def report_of(folder: Path) -> tuple[dict[str, int], dict[str, tuple[str, int]]]:
    program = folder / "no-engine"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (folder / "study.yaml").write_text(STUDY % program)
    report = check_study(folder / "study.yaml")
    counts = {rule.rule: (rule.kind, rule.points) for rule in report.rules}
    lines = "\n".join(check_lines(report))
    assert all(rule.rule in lines for rule in report.rules)
    return dict(report.space), counts


def test_the_two_rules_of_the_classic_space_are_named(tmp_path: Path) -> None:
    space, rules = report_of(tmp_path)
    assert space == {"points": 112, "distinct": 71, "infeasible": 20, "duplicates": 21}
    assert rules == {
        "topk-1-is-a-chain": ("duplicate", 21), "tree-capacity": ("infeasible", 20),
    }  # fmt: skip
