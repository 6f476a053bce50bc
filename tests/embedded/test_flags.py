"""The command line of the bundled server, without the engine."""

from __future__ import annotations

import pytest

from tuner.embedded.flags import FlagError, help_text, parse_command_line
from tuner.embedded.reading import Member
from tuner.embedded.table import FLAGS, REMOVED


def values(*argv: str, **environ: str) -> dict[str, object]:
    return dict(parse_command_line(argv, environ).values)


def test_values_by_attribute_path() -> None:
    assert values("--model", "m.gguf", "-c", "4096", "--spec-ngram-simple-size-n", "4") == {
        "model.path": "m.gguf",
        "n_ctx": 4096,
        "speculative.ngram_simple.size_n": 4,
    }


def test_aliases_are_one_flag_and_the_last_wins() -> None:
    assert values("-md", "a", "--model-draft", "b", "--spec-draft-model", "c") == {
        "speculative.draft.mparams.path": "c"
    }


def test_switches_and_their_opposites() -> None:
    assert values("--metrics") == {"endpoint_metrics": True}
    assert values("--cache-prompt", "--no-cache-prompt") == {"cache_prompt": False}
    assert values("--no-mmap") == {"load_mode": Member("llama_load_mode", "LLAMA_LOAD_MODE_NONE")}


def test_words_become_enum_members() -> None:
    types = values("--spec-type", "ngram-map-k4v,draft-simple")["speculative.types"]
    prefix = "COMMON_SPECULATIVE_TYPE_"
    assert types == [
        Member("common_speculative_type", prefix + "NGRAM_MAP_K4V"),
        Member("common_speculative_type", prefix + "DRAFT_SIMPLE"),
    ]
    assert values("-fa", "off")["flash_attn_type"] == Member(
        "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_DISABLED"
    )


def test_special_values() -> None:
    assert values("-ngl", "all", "--spec-draft-ngl", "auto") == {
        "n_gpu_layers": -2,
        "speculative.draft.n_gpu_layers": -1,
    }
    assert values("--seed", "-1")["sampling.seed"] == 2**32 - 1
    assert values("--spec-synth-rates", ".5,0.25")["speculative.synth_rates"] == [0.5, 0.25]
    assert values("--alias", "a,b")["model_alias"] == {"a", "b"}


def test_the_environment_applies_where_no_flag_is_given() -> None:
    environ = {"LLAMA_ARG_CTX_SIZE": "512", "LLAMA_ARG_ENDPOINT_METRICS": "1", "OTHER": "x"}
    assert values(**environ) == {"n_ctx": 512, "endpoint_metrics": True}
    assert values("-c", "64", **environ)["n_ctx"] == 64
    assert values(LLAMA_ARG_CACHE_PROMPT="off") == {"cache_prompt": False}


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--nonsense"], "error: invalid argument: --nonsense"),
        (["model.gguf"], "error: invalid argument: model.gguf"),
        (["--port"], 'error while handling argument "--port": expected value for argument'),
        (["--port", "70000"], "must be in 0 to 65535, got 70000"),
        (["-c", "4k"], "must be an integer, got '4k'"),
        (["--temp", "nan"], "must be a number, got 'nan'"),
        (["--spec-type", "ngram"], "unknown value: 'ngram', must be one of none, draft-simple"),
        (["-ctk", "q3"], "unknown value: 'q3', must be one of f32, f16"),
        (["--fit", "maybe"], "must be on or off"),
        (["--spec-draft-sampling", "beam"], "must be one of greedy, probabilistic"),
    ],
)
def test_refusals(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_command_line(argv, {})
    assert text in str(caught.value)


def test_a_bad_environment_value_names_the_variable() -> None:
    with pytest.raises(FlagError, match="LLAMA_ARG_PORT"):
        parse_command_line([], {"LLAMA_ARG_PORT": "http"})


@pytest.mark.parametrize("name", [name for names in REMOVED for name in names])
def test_a_removed_flag_names_its_successor(name: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_command_line([name, "4"], {})
    assert str(caught.value).startswith(
        f'error while handling argument "{name}": the argument has been removed. use '
    )
    assert "--spec-" in str(caught.value).partition("use ")[2]


def test_help_and_version_win_over_everything_else() -> None:
    assert parse_command_line(["--nonsense", "-h"], {}).wants_help
    assert parse_command_line(["--version", "--nonsense"], {}).wants_version


def test_help_lists_every_flag_exactly_once() -> None:
    lines = [line for line in help_text().splitlines() if line.startswith("-")]
    heads = [line.partition("the argument has been removed")[0] for line in lines]
    names = [word.rstrip(",") for head in heads for word in head.split() if word[0] == "-"]
    wanted = [name for flag in FLAGS for name in (*flag.names, *flag.off_names)]
    for name in wanted:
        assert names.count(name) == 1, name
    assert "(env: LLAMA_ARG_SPEC_TYPE)" in help_text()


def test_names_are_unique() -> None:
    names = [n for flag in FLAGS for n in (*flag.names, *flag.off_names)]
    names += [n for removed in REMOVED for n in removed]
    assert len(names) == len(set(names))
