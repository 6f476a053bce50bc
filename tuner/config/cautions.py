"""Owns cautions: what is legal in a study and probably not meant, one line each.

Knows names of engines' flags only where a wrong belief about them costs trust in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.args import UNSET
from tuner.config.document import Document
from tuner.config.environment import is_nccl, is_undocumented_nccl
from tuner.config.space import ParameterConfig
from tuner.config.space_rules import MergedSpace
from tuner.config.study import StudyConfig

_LOSSY = {
    "speculative-accept-threshold-single": "accepts drafts the model would not have written",
    "speculative-accept-threshold-acc": "accepts drafts the model would not have written",
    "kv-cache-dtype": "changes what the model writes",
    "quantization": "changes what the model writes",
    "cache-type-k": "changes what the model writes",
    "cache-type-v": "changes what the model writes",
    "ctk": "changes what the model writes",
    "ctv": "changes what the model writes",
}
_TOPK = "speculative-eagle-topk"
_DEBUGGING = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS")
_LOAD_SHAPING = frozenset(
    {"max-running-requests", "max-num-seqs", "parallel", "np", "max-concurrency"}
)


def find_cautions(study: Document, config: StudyConfig, space: MergedSpace) -> Iterator[str]:
    """Every caution of a valid study, in the order of the space, then the study."""
    for declared in space.declared.values():
        if declared.config is not None:
            is_inline = declared.document is study
            for text in _parameter_cautions(declared.config, is_inline=is_inline):
                place = declared.document.place(declared.path, of_key=True)
                path = ".".join(str(part) for part in declared.path)
                yield f"{declared.document.label}:{place.line}:{place.column}: {path}: {text}"
    for key, text in _study_cautions(config, space):
        place = study.place(tuple(key.split(".")), of_key=True)
        yield f"{study.label}:{place.line}:{place.column}: {key}: {text}"


def _parameter_cautions(config: ParameterConfig, *, is_inline: bool) -> Iterator[str]:
    values = config.values()
    if len(values) == 1 and config.note is None and is_inline:  # a note says that it is meant
        yield "has only one value; it is a fixed setting"
    if config.env is not None:
        yield from _variable_cautions(config.env, values)
    if config.flag in _LOSSY:
        yield f"{config.flag} {_LOSSY[config.flag]}; a server that uses it is marked lossy"
    if config.flag in _LOAD_SHAPING:
        yield f"{config.flag} limits how many requests run at once; the load belongs to workload"


def _variable_cautions(name: str, values: tuple[object, ...]) -> Iterator[str]:
    if is_undocumented_nccl(name):
        yield f"{name} is in no NCCL documentation; NCCL may ignore it"
    if is_nccl(name) and UNSET not in values:
        yield f"{name} has no choice `{UNSET}`; NCCL's own selection is never measured"
    if name == "NCCL_PROTO" and any(_forces_ll128(str(value)) for value in values):
        yield "LL128 gives wrong data on some links without an error; outputs must be compared"
    if name in _DEBUGGING:
        yield f"{name} writes logs while servers are measured"


def _forces_ll128(value: str) -> bool:
    return "LL128" in value.upper() and not value.startswith("^")


def _study_cautions(config: StudyConfig, space: MergedSpace) -> Iterator[tuple[str, str]]:
    if not space.declared:
        yield "space", "has no parameters; only the baseline is measured"
    if config.workload.held_out == 0:
        yield "workload.held_out", "is 0; nothing can be confirmed, so nothing is recommended"
    if config.workload.temperature > 0 and config.fidelity.compare != "off":
        yield (
            "workload.temperature",
            "is above 0; answers are compared as distributions",
        )
    if config.workload.cache == "keep":
        yield (
            "workload.cache",
            "keeps the prompt cache; repeated prompts make ttft look better than it is",
        )
    if _has_paged_trees(config, space):
        yield (
            "engine.args.page-size",
            "is above 1 and topk may be too: the attention backend that SGLang chooses may refuse "
            "that, or change the page size; set attention-backend to flashinfer, fa3 or triton",
        )
    for flag, text in _LOSSY.items():
        if flag in config.engine.args:
            yield f"engine.args.{flag}", f"{text}, in the baseline as well"
    for name in config.engine.env:
        if is_undocumented_nccl(name):
            yield f"engine.env.{name}", "is in no NCCL documentation; NCCL may ignore it"
        if name in _DEBUGGING and config.engine.env[name]:
            yield f"engine.env.{name}", "writes logs while servers are measured"


def _has_paged_trees(config: StudyConfig, space: MergedSpace) -> bool:
    """Pages and trees with the attention backend left to SGLang, which goes by the GPU."""
    args, flags = config.engine.args, {p.flag: p.values() for p in _parameters(space)}
    if config.engine.kind != "sglang" or {"attention-backend"} & {*args, *flags}:
        return False
    page, topk = args.get("page-size"), flags.get(_TOPK, (args.get(_TOPK),))
    return isinstance(page, int) and page > 1 and any(isinstance(k, int) and k > 1 for k in topk)


def _parameters(space: MergedSpace) -> list[ParameterConfig]:
    return [each.config for each in space.declared.values() if each.config is not None]
