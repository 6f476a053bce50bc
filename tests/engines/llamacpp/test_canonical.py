"""One form per server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.args import ServerArgs
from tuner.engines.llamacpp import flags as known
from tuner.engines.llamacpp.canonical import (
    canonical,
    canonical_name,
    flag_words,
    speculative_types,
    with_point,
)
from tuner.space import Parameter, SearchSpace


def flags(**given_flags: Any) -> dict[str, Any]:
    args = canonical(ServerArgs({k.replace("_", "-"): v for k, v in given_flags.items()}))
    return {name: value for name, value in args.flags.items() if name != "metrics"}


def test_metrics_is_always_asked_for() -> None:
    assert canonical(ServerArgs()).flags == {"metrics": True}


def test_aliases_dashes_and_underscores_are_one_name() -> None:
    assert {canonical_name(n) for n in ("c", "-c", "--ctx-size", "ctx_size")} == {"ctx-size"}
    assert flags(md="a", spec_type="draft-simple")["spec-draft-model"] == "a"


def test_speculative_types_are_a_set_in_the_engine_s_order() -> None:
    assert speculative_types("ngram-mod, draft-simple,ngram-mod") == ("draft-simple", "ngram-mod")
    assert speculative_types(["ngram-mod", "ngram-simple"]) == ("ngram-simple", "ngram-mod")
    assert speculative_types("none") == speculative_types("") == speculative_types("none,") == ()
    assert flags(spec_type="none,ngram-mod") == {"spec-type": "ngram-mod"}


def test_without_a_type_every_speculative_flag_goes() -> None:
    assert flags(
        spec_type="none",
        spec_draft_model="d",
        spec_draft_n_max=9,
        spec_ngram_mod_n_max=8,
        spec_synth_len=2.0,
        lookup_cache_static="f",
        threads=2,
    ) == {"threads": 2}


@pytest.mark.parametrize("method", known.METHODS)
def test_a_type_keeps_exactly_the_flags_it_reads(method: str) -> None:
    every = dict.fromkeys(known.SPECULATIVE - {"spec-type", "spec-default"}, 7)
    kept = set(canonical(ServerArgs({**every, "spec-type": method})).flags)
    expected = known.METHOD_FLAGS[method] | known.SYNTHETIC | {"spec-type", "metrics"}
    assert kept == expected - {"spec-draft-backend-sampling"} | (
        kept & {"spec-draft-backend-sampling"}
    )


def test_two_types_keep_the_flags_of_both() -> None:
    kept = flags(
        spec_type="ngram-simple,ngram-mod",
        spec_ngram_simple_size_n=4,
        spec_ngram_mod_n_match=8,
        spec_ngram_map_k_size_n=4,
    )
    assert set(kept) == {"spec-type", "spec-ngram-simple-size-n", "spec-ngram-mod-n-match"}


@pytest.mark.parametrize(("name", "value"), sorted(known.DEFAULTS.items()))
def test_a_default_written_out_is_the_same_server(name: str, value: Any) -> None:
    method = next(m for m in known.METHODS if name in known.METHOD_FLAGS[m])
    for spelling in (value, str(value)):
        assert flags(**{"spec-type": method, name: spelling}) == {"spec-type": method}


def test_spellings_of_numbers_are_one() -> None:
    assert flags(ctx_size="4096") == flags(ctx_size=4096.0) == {"ctx-size": 4096}
    kept = [flags(spec_type="draft-simple", spec_draft_p_min=v) for v in (0.5, "0.5", ".50")]
    assert kept[0] == kept[1] == kept[2]
    rates = [flags(spec_type="ngram-mod", spec_synth_rates=v) for v in ("0.5,.25", [0.5, 0.25])]
    assert rates[0] == rates[1]


def test_what_is_not_a_number_is_kept_for_the_rules() -> None:
    assert flags(ctx_size="4k") == {"ctx-size": "4k"}
    assert flags(ctx_size=4096.5) == {"ctx-size": "4096.5"}
    assert flags(temp=float("nan")) == {"temp": "nan"}


def test_switches() -> None:
    assert flags(flash_attn=True, fit=False) == {"flash-attn": "on", "fit": "off"}
    assert flags(cache_prompt=False) == flags(no_cache_prompt=True) == {"no-cache-prompt": True}
    assert flags(cache_prompt=True) == flags(no_cache_prompt=False) == {"cache-prompt": True}
    assert flags(no_mmap=False, mlock=True) == {"mlock": True}
    assert flags(no_cache_prompt=True, cache_prompt=True) == {"cache-prompt": True}


def test_where_it_listens_is_not_which_server_it_is() -> None:
    assert flags(host="0.0.0.0", port=1, threads=1) == {"threads": 1}


def test_a_point_is_written_over_the_fixed_flags() -> None:
    space = SearchSpace(
        (
            Parameter("t", "int", (1, 2), flag="t"),
            Parameter("kv", "categorical", ("unset", "q8_0"), flag="cache-type-k"),
            Parameter("algo", "categorical", ("unset", "Ring"), env="NCCL_ALGO"),
        )
    )
    base = ServerArgs({"threads": 8, "ctk": "f16"}, {"NCCL_ALGO": "Tree"})
    args = with_point(base, {"t": 2, "kv": "unset", "algo": "unset"}, space)
    assert args == ServerArgs({"threads": 2}, {"NCCL_ALGO": None})
    assert with_point(base, {}, space).flags == {"threads": 8, "cache-type-k": "f16"}


def test_words_have_the_model_first_and_bare_switches() -> None:
    words = flag_words({"ctx-size": 64, "model": "/a b.gguf", "metrics": True, "temp": 0.5})
    assert words == ["--model", "/a b.gguf", "--ctx-size", "64", "--metrics", "--temp", "0.5"]


NAMES = st.one_of(
    st.sampled_from(sorted(known.SPECULATIVE | known.INTEGERS | known.TOGGLES | known.ON_OFF)),
    st.sampled_from(sorted(known.ALIASES)),
    st.text(max_size=5),
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6),
    st.sampled_from([*known.METHODS, "ngram-mod,draft-simple", "none"]),
    st.lists(st.one_of(st.floats(), st.text(max_size=2)), max_size=3),
)  # fmt: skip


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_canonical_is_total_and_idempotent(given_flags: dict[str, Any]) -> None:
    once = canonical(ServerArgs(given_flags))
    assert canonical(once) == once
    assert canonical(once).digest == once.digest


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_order_does_not_matter(given_flags: dict[str, Any]) -> None:
    plain = {canonical_name(name).removeprefix("no-") for name in given_flags}
    if len(plain) == len(given_flags):
        backwards = dict(reversed(given_flags.items()))
        one, other = canonical(ServerArgs(given_flags)), canonical(ServerArgs(backwards))
        assert one.digest == other.digest
