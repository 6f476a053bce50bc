"""What a build accepts, and what is refused before a launch."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.embedded.flags import help_text
from tuner.engines.base import EngineFacts, Violation
from tuner.engines.llamacpp.canonical import canonical
from tuner.engines.llamacpp.facts import parse_facts
from tuner.engines.llamacpp.rules import longest_draft, violations


def broken(facts: EngineFacts | None = None, **flags: Any) -> list[Violation]:
    args = canonical(ServerArgs({k.replace("_", "-"): v for k, v in flags.items()}))
    return violations(args, facts or EngineFacts())


def test_facts_of_a_build(facts: EngineFacts) -> None:
    assert facts.version == "11434 (9d77fa172)"
    assert facts.flags is not None
    assert {"c", "ctx-size", "host", "no-cont-batching", "model-draft"} <= facts.flags
    assert not {"draft", "draft-max", "spec-ngram-size-n", "N", "on"} & facts.flags
    assert facts.values["removed"]["draft-max"] == (
        "use --spec-draft-n-max or --spec-ngram-mod-n-max"
    )
    assert facts.values["spec_types"] == ["none", "draft-simple", "ngram-simple", "ngram-mod"]
    assert facts.values["defaults"]["spec-draft-n-max"] == "3"
    assert facts.values["defaults"]["flash-attn"] == "auto"


def test_facts_of_the_bundled_server() -> None:
    facts = parse_facts({"help": help_text(), "version": "version: 11549 (x)\n"})
    assert facts.flags is not None
    assert {"model", "spec-ngram-map-k4v-size-n", "no-cache-prompt", "fa"} <= facts.flags
    assert "draft-max" in facts.values["removed"]
    assert broken(facts, model="m", spec_type="ngram-map-k", spec_ngram_map_k_size_n=4) == []


def test_a_removed_flag_is_named_with_its_successor(facts: EngineFacts) -> None:
    for known in (facts, EngineFacts()):
        (violation,) = broken(known, model="m", draft_max=8)
        assert violation.rule == "unknown flag"
        assert violation.message == "--draft-max was removed from llama-server"
        assert "--spec-draft-n-max or" in violation.hint


def test_an_old_build_still_has_the_old_name() -> None:
    old = parse_facts({"help": "-m, --model FNAME  x\n--metrics  x\n--draft-max N  tokens\n"})
    assert broken(old, model="m", draft_max=8) == []
    (kind, name) = broken(
        old, model="m", spec_type="draft-simple", spec_draft_model="d", spec_draft_n_max=8
    )[1:3]
    assert kind.message.startswith("--spec-draft-model is not known") or kind.rule
    hints = [v.hint for v in (kind, name)]
    assert "Use --draft-max, the name before it was renamed, or a newer build." in hints


def test_an_unknown_flag_has_a_near_match(facts: EngineFacts) -> None:
    (violation,) = broken(facts, model="m", ctx_sizes=8)
    assert violation.message == "--ctx-sizes is not known to this build (11434 (9d77fa172))"
    assert violation.hint == "Did you mean --ctx-size?"


def test_without_facts_nothing_is_unknown() -> None:
    assert broken(model="m", anything_at_all=8) == []


def test_a_type_the_build_does_not_have(facts: EngineFacts) -> None:
    (violation,) = broken(facts, model="m", spec_type="ngram-cache")
    assert violation.message == (
        "spec-type must be one of none, draft-simple, ngram-simple, ngram-mod, got ngram-cache"
    )


def test_a_build_with_another_default_is_noticed() -> None:
    other = "\n".join(
        ["-m, --model FNAME  x", "--metrics  x", "--spec-type none,draft-simple  x",
         "--spec-draft-model FNAME  x",
         "--spec-draft-n-max N  number of tokens to draft (default: 16)"]
    )  # fmt: skip
    facts = parse_facts({"help": other})
    server = {"model": "m", "spec_type": "draft-simple", "spec_draft_model": "d"}
    (violation,) = broken(facts, **server, spec_draft_n_max=3)
    assert violation.rule == "default changed"
    assert violation.message == "--spec-draft-n-max is 16 in this build when left out, 3 is meant"
    assert broken(facts, **server, spec_draft_n_max=8) == []


@pytest.mark.parametrize("method", ["draft-simple", "draft-eagle3", "draft-dflash"])
def test_draft_types_need_a_draft_model(method: str) -> None:
    (violation,) = broken(model="m", spec_type=method)
    assert violation.rule == "draft model"
    assert broken(model="m", spec_type=method, spec_draft_model="d") == []


def test_types_without_a_draft_model() -> None:
    for method in ("draft-mtp", "ngram-simple", "ngram-map-k", "ngram-mod", "ngram-cache"):
        assert broken(model="m", spec_type=method) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"spec_ngram_mod_n_min": 65}, "n-min <= spec-ngram-mod-n-max must hold, got 65 > 64"),
        ({"spec_ngram_mod_n_max": 16}, "n-max must hold, got 48 > 16"),
        ({"spec_ngram_mod_n_match": 0}, "spec-ngram-mod-n-match must be in 1 to 65535, got 0"),
        ({"spec_ngram_mod_n_match": "x"}, "spec-ngram-mod-n-match must be an integer, got 'x'"),
        ({"spec_synth_len": 66}, "spec-synth-len must be in 1 to 65, got 66"),
        ({"spec_synth_rates": "0.5"}, "spec-synth-rates must hold 64 values, got 1"),
        ({"api_key": "k"}, "api-key must not be set"),
        ({"ctx_size": "4k"}, "ctx-size must be an integer, got '4k'"),
    ],
)
def test_values_that_cannot_be(flags: dict[str, Any], message: str) -> None:
    (violation,) = broken(model="m", spec_type="ngram-mod", **flags)
    assert message in violation.message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"spec_draft_n_max": 0}, "spec-draft-n-max must be in 1 to 65535, got 0"),
        ({"spec_draft_n_min": 4}, "must hold, got 4 > 3"),
        ({"spec_draft_p_min": 1.5}, "spec-draft-p-min must be in 0 to 1, got 1.5"),
        ({"spec_synth_rates": "0.2,0.5,0.1"}, "must fall within [0, 1]"),
        ({"spec_synth_rates": "1.2,0.5,0.1"}, "must fall within [0, 1]"),
        ({"spec_synth_rates": "a,b,c"}, "spec-synth-rates must be numbers"),
    ],
)
def test_values_of_a_draft_that_cannot_be(flags: dict[str, Any], message: str) -> None:
    found = broken(model="m", spec_type="draft-simple", spec_draft_model="d", **flags)
    assert any(message in violation.message for violation in found)


def test_synthetic_settings_exclude_each_other() -> None:
    found = broken(
        model="m", spec_type="draft-simple", spec_draft_model="d", spec_synth_len=2,
        spec_synth_rates="0.5,0.3,0.1",
    )  # fmt: skip
    assert [v.message for v in found] == ["spec-synth-len and spec-synth-rates exclude each other"]


def test_speculation_by_environment_is_refused() -> None:
    args = canonical(ServerArgs({"model": "m"}, {"LLAMA_ARG_SPEC_TYPE": "ngram-mod"}))
    (violation,) = violations(args, EngineFacts())
    assert violation.message.startswith("LLAMA_ARG_SPEC_TYPE must not be set")
    removed = ServerArgs(args.flags, {"LLAMA_ARG_SPEC_TYPE": None})
    assert violations(removed, EngineFacts()) == []


@pytest.mark.parametrize(
    ("flags", "longest"),
    [
        ({}, None),
        ({"spec-type": "ngram-simple"}, 48),
        ({"spec-type": "ngram-simple", "spec-ngram-simple-size-m": 4}, 4),
        ({"spec-type": "ngram-cache"}, 8),
        ({"spec-type": "draft-simple"}, 3),
        ({"spec-type": "draft-simple,ngram-mod", "spec-ngram-mod-n-max": 2}, 3),
        ({"spec-type": "draft-simple", "spec-draft-n-max": "x"}, None),
        ({"spec-type": "new-method"}, None),
    ],
)
def test_the_longest_draft(flags: dict[str, Any], longest: int | None) -> None:
    assert longest_draft(flags) == longest
