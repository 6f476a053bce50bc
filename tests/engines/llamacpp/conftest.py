"""Shared by the llama.cpp tests: an engine, and texts of real builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.config.engine import LlamacppConfig
from tuner.engines.base import EngineFacts
from tuner.engines.llamacpp.engine import LlamacppEngine
from tuner.engines.llamacpp.facts import parse_facts

# Lines of `llama-server --help` as newer builds lay them out.
HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
                                        (env: LLAMA_ARG_CTX_SIZE)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
-m,    --model FNAME                    model path to load
                                        (env: LLAMA_ARG_MODEL)
-cb,   --cont-batching, -nocb, --no-cont-batching
                                        whether to enable continuous batching (default: enabled)
       --host HOST                      ip address to listen on (default: 127.0.0.1)
       --port PORT                      port to listen (default: 8080)
       --metrics                        enable prometheus compatible metrics endpoint (default: disabled)
-np,   --parallel N                     number of server slots (default: -1, -1 = auto)
--spec-draft-model, -md, --model-draft FNAME
                                        draft model for speculative decoding (default: unused)
--spec-draft-n-max N                    number of tokens to draft for speculative decoding (default: 3)
                                        (env: LLAMA_ARG_SPEC_DRAFT_N_MAX)
--spec-draft-n-min N                    minimum number of draft tokens to use (default: 0)
--spec-draft-p-min, --draft-p-min P     minimum speculative decoding probability (greedy) (default: 0.00)
--spec-type none,draft-simple,ngram-simple,ngram-mod
                                        comma-separated list of types of speculative decoding to use
                                        (default: none)
--spec-ngram-mod-n-min N                minimum number of ngram tokens to use (default: 48)
--spec-ngram-mod-n-max N                maximum number of ngram tokens to use (default: 64)
--spec-ngram-mod-n-match N              ngram-mod lookup length (default: 24)
--spec-ngram-simple-size-n N            length of lookup n-gram (default: 12)
--spec-ngram-simple-size-m N            length of draft m-gram (default: 48)
--spec-ngram-simple-min-hits N          minimum hits (default: 1)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
                                        (env: LLAMA_ARG_DRAFT_MAX)
--spec-ngram-size-n N                   the argument has been removed. use the respective
                                        --spec-ngram-*-size-n or --spec-ngram-mod-n-match
"""  # noqa: E501
VERSION = "version: 11434 (9d77fa172)\nbuilt with GNU 13.3.0 for Linux x86_64\n"


@pytest.fixture
def facts() -> EngineFacts:
    return parse_facts({"help": HELP, "version": VERSION})


@pytest.fixture
def make() -> Callable[..., LlamacppEngine]:
    def engine(*, on_path: str | None = None, **fields: Any) -> LlamacppEngine:
        config = LlamacppConfig(**{"kind": "llamacpp", "model": "/m.gguf", **fields})
        return LlamacppEngine(config, which=lambda name: on_path)

    return engine
