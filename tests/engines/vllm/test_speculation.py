"""The canonical form of the speculative configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.engines.vllm.speculation import (
    canonical_speculation,
    is_lossy,
    is_synthetic,
    method_of,
    read_speculation,
    source_of,
)


def canonical(draft: str | None = None, tp: int = 1, **given: Any) -> dict[str, Any] | None:
    return canonical_speculation(given, draft_model=draft, tensor_parallel=tp)


@pytest.mark.parametrize("off", [None, False, "off", "none", "unset"])
def test_off_in_every_spelling(off: Any) -> None:
    assert canonical(method=off, num_speculative_tokens=3, prompt_lookup_max=4) is None


def test_nothing_and_zero_tokens_are_off() -> None:
    assert canonical() is None
    assert canonical(draft="/d", num_speculative_tokens=3) is None
    assert canonical(method="ngram", num_speculative_tokens=0) is None


@pytest.mark.parametrize(
    ("given", "window"),
    [({}, (5, 5)), ({"prompt_lookup_max": 3}, (3, 3)), ({"prompt_lookup_min": 2}, (2, 2)),
     ({"prompt_lookup_min": 2, "prompt_lookup_max": 4}, (2, 4))],
)  # fmt: skip
def test_a_lookup_window_is_written_out_as_vllm_fills_it(
    given: dict[str, int], window: tuple[int, int]
) -> None:
    spec = canonical(method="[ngram]", num_speculative_tokens=2, **given)
    low, high = window
    assert spec == {
        "method": "ngram", "num_speculative_tokens": 2,
        "prompt_lookup_min": low, "prompt_lookup_max": high,
    }  # fmt: skip


def test_a_method_loses_what_belongs_to_others() -> None:
    everything = {
        "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
        "suffix_decoding_max_spec_factor": 2.0, "draft_tensor_parallel_size": 1,
        "dspark_draft_topk": 4, "parallel_drafting": True,
    }  # fmt: skip
    assert canonical("/d", 2, method="eagle3", **everything) == {
        "method": "eagle3", "model": "/d", "num_speculative_tokens": 3,
        "draft_tensor_parallel_size": 1, "parallel_drafting": True,
    }  # fmt: skip
    assert canonical("/d", 2, method="suffix", **everything) == {
        "method": "suffix", "num_speculative_tokens": 3, "suffix_decoding_max_spec_factor": 2.0,
    }  # fmt: skip


def test_what_equals_a_default_is_dropped() -> None:
    spec = canonical(
        "/d", 4, method="eagle", num_speculative_tokens=2, draft_tensor_parallel_size=4,
        parallel_drafting=False, rejection_sample_method="standard",
    )  # fmt: skip
    assert spec == {"method": "eagle", "model": "/d", "num_speculative_tokens": 2}
    alone = canonical(method="mtp", num_speculative_tokens=2, use_local_argmax_reduction=True)
    assert alone == {"method": "mtp", "num_speculative_tokens": 2}
    small = canonical("/d", 4, method="mlp_speculator", draft_tensor_parallel_size=1)
    assert small == {"method": "mlp_speculator", "model": "/d"}


def test_suffix_depth_is_its_own_limit() -> None:
    assert canonical(method="suffix") == {"method": "suffix", "num_speculative_tokens": 24}
    assert canonical(method="suffix", suffix_decoding_max_tree_depth=16) == {
        "method": "suffix", "num_speculative_tokens": 16, "suffix_decoding_max_tree_depth": 16,
    }  # fmt: skip


def test_mtp_takes_a_draft_only_when_there_is_one() -> None:
    assert canonical(method="deepseek_mtp", num_speculative_tokens=1) == {
        "method": "mtp", "num_speculative_tokens": 1,
    }  # fmt: skip
    assert canonical("/d", method="mtp", num_speculative_tokens=1) == {
        "method": "mtp", "model": "/d", "num_speculative_tokens": 1,
    }  # fmt: skip


def test_an_explicit_model_wins_and_unknown_fields_stay() -> None:
    spec = canonical("/d", method="eagle3", model="/mine", num_speculative_tokens=2, brand_new=7)
    assert spec == {
        "brand_new": 7, "method": "eagle3", "model": "/mine", "num_speculative_tokens": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "method"),
    [("yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"), ("org/Llama-EAGLE3", "eagle3"),
     ("[ngram]", "ngram"), ("Qwen/Qwen3-0.6B", "draft_model"), ("org/x-dflash", "dflash")],
)  # fmt: skip
def test_a_missing_method_is_inferred_as_vllm_does(model: str, method: str) -> None:
    assert method_of({"model": model}) == method
    assert (canonical(model=model, num_speculative_tokens=2) or {})["method"] == method


def test_schedules_in_three_notations_are_one() -> None:
    notations: list[Any] = [[[1, 4, 5], [5, 64, 2]], "[[1,4,5],[5,64,2]]", "1-4:5,5-64:2"]
    specs = [
        canonical(
            method="ngram",
            num_speculative_tokens=4,
            num_speculative_tokens_per_batch_size=notation,
        )
        for notation in notations
    ]
    assert specs[0] == specs[1] == specs[2]
    table = (specs[0] or {})["num_speculative_tokens_per_batch_size"]
    assert table == [[1, 4, 4], [5, 64, 2]]


def test_json_text_and_hyphens_are_read() -> None:
    assert read_speculation('{"num-speculative-tokens": 3}') == {"num_speculative_tokens": 3}
    assert read_speculation("{'method': 'ngram'}") is None
    assert read_speculation([1]) is None


@pytest.mark.parametrize(
    ("spec", "synthetic", "lossy"),
    [({"method": "ngram"}, False, False),
     ({"rejection_sample_method": "block"}, False, False),
     ({"rejection_sample_method": "strict"}, False, False),
     ({"rejection_sample_method": "synthetic"}, True, True),
     ({"synthetic_acceptance_length": 2.5}, True, True),
     ({"draft_sample_method": "probabilistic"}, False, True),
     ({"acceptance_method": "typical_acceptance_sampler"}, False, True)],
)  # fmt: skip
def test_synthetic_and_lossy_settings(spec: dict[str, Any], synthetic: bool, lossy: bool) -> None:
    assert (is_synthetic(spec), is_lossy(spec)) == (synthetic, lossy)


def test_who_drafts() -> None:
    assert [source_of({"method": m}) for m in ("ngram", "ngram_gpu", "suffix", "mtp")] == [
        "lookup", "lookup", "lookup", "model",
    ]  # fmt: skip
