"""Owns whether prompts and answers fit into the draft's context, judged before any launch.

Beyond it a draft guesses or an engine stops speculating, silently: such a study would measure
something else. Reads local files only; launches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.config.loader import LoadedStudy
from tuner.config.reading import read_document
from tuner.drafts.checkpoint import Checkpoint
from tuner.drafts.opening import read_checkpoint
from tuner.errors import ConfigError, Problem, UsageError
from tuner.measure.exchange import CountTokens
from tuner.measure.prompts import Workload
from tuner.measure.records import Prompt
from tuner.measure.tokens import local_counter

FEWEST_BYTES, MOST_BYTES = 3, 5
"""Bytes of UTF-8 per token of ordinary text: between these for the vocabularies in use, so that a
count from bytes refuses only what cannot fit, and warns of what may not."""


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest prompt with its answer, in tokens: at least and at most (equal when counted)."""

    prompt: str
    output: int
    least: int
    most: int
    basis: str


@dataclass(frozen=True, slots=True)
class ContextFinding:
    """What is wrong (nothing may be launched), and what may be."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


def check_draft_context(
    loaded: LoadedStudy, workload: Workload, count: CountTokens | None = None
) -> ContextFinding:
    """Hold the workload against the draft's context; nothing is said of what cannot be read.

    Args:
        loaded: the study.
        workload: its prompts.
        count: tokens of a text; None: by the model's tokenizer where it lies here, else by bytes.
    """
    engine = loaded.config.engine
    context = draft_context(engine.draft_model)
    if context is None:
        return ContextFinding()
    longest = longest_request(workload, count or local_counter([engine.model]))
    needs = (
        f"prompts with their answers must fit into the draft's context of {context:,} tokens, got "
        f"%s for prompt {longest.prompt} ({longest.output:,} of them for the answer; "
        f"{longest.basis})"
    )
    hint = (
        "Use shorter prompts, lower workload.output_tokens, or take a draft with a longer context."
    )
    if longest.least > context:
        document = read_document(loaded.path)
        said = needs % f"at least {longest.least:,}"
        problem = document.problem(("workload", "prompts"), said, hint, of_key=True)
        return ContextFinding(problems=(problem,))
    if longest.most > context:
        said = needs % f"up to {longest.most:,}"
        return ContextFinding(warnings=(f"workload.prompts: {said}. {hint}",))
    return ContextFinding()


def require_draft_context(loaded: LoadedStudy, workload: Workload) -> tuple[str, ...]:
    """Warnings about the draft's context; raises ConfigError when requests cannot fit."""
    found = check_draft_context(loaded, workload)
    if found.problems:
        raise ConfigError(found.problems)
    return found.warnings


def draft_context(draft_model: str | None) -> int | None:
    """Tokens a draft was built for; None without a draft, or where it does not say."""
    if draft_model is None:
        return None
    try:
        return context_of(read_checkpoint(draft_model))
    except (UsageError, OSError):
        return None


def context_of(checkpoint: Checkpoint) -> int | None:
    """`max_position_embeddings` (GGUF: `context_length`), stretched by RoPE scaling where the
    configuration does not say that it is in it already."""
    longest: Any = checkpoint.setting("max_position_embeddings")
    if not isinstance(longest, int) or isinstance(longest, bool) or longest <= 0:
        return None
    scaling = checkpoint.setting("rope_scaling") or checkpoint.setting("rope_parameters")
    if not isinstance(scaling, dict) or "original_max_position_embeddings" in scaling:
        return longest
    factor = scaling.get("factor", 1)
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    return int(longest * max(1.0, factor)) if is_number else longest


def longest_request(workload: Workload, count: CountTokens | None) -> Longest:
    """The request that takes most context; templates and tags are left out of the least."""
    blocks = (*workload.blocks, *workload.held_out_blocks, workload.warm_up_prompts)
    prompts = [prompt for block in blocks for prompt in block]
    measure = count or (lambda text: len(text.encode()))
    sizes = [measure(_text(prompt)) for prompt in prompts]
    size = max(sizes)
    longest, output = prompts[sizes.index(size)], workload.sampling.max_tokens
    if count is not None:
        tokens = size + output
        return Longest(longest.id, output, tokens, tokens, "counted by the model's tokenizer")
    basis = (
        f"estimated from {size:,} bytes of text, {FEWEST_BYTES} to {MOST_BYTES} a token: there is "
        "no tokenizer here"
    )
    return Longest(
        longest.id, output, size // MOST_BYTES + output, size // FEWEST_BYTES + output, basis
    )


def _text(prompt: Prompt) -> str:
    return "\n".join(message["content"] for message in prompt.messages)
