"""Owns which hidden states a draft asks for, and what each engine makes of the numbers.

Source of the conventions: SGLang 0.5.23, model_runner_components/spec_aux_hidden_state.py
L185-196 (only a dict `eagle_config` is read), models/llama.py L936 (default ids, +1),
models/deepseek_v2.py L3470-3473 (+1 only if the first id is 1), models/gpt_oss.py L1349-1352.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.drafts.checkpoint import Checkpoint

AS_INPUT = ("DeepseekV2", "DeepseekV3", "DeepseekV32", "KimiK2", "KimiK25", "Kimi")
"""Targets whose ids SGLang takes as "input of layer i" unless the first id is 1."""

EMBEDDING = -1
"""In outputs of layers, where layer 0's output is 0: the embedding comes before it."""


@dataclass(frozen=True, slots=True)
class Capture:
    """What an engine will capture: outputs of layers (`EMBEDDING`: the embedding's output).

    `rule` says how the numbers were read.
    """

    ids: tuple[int, ...]
    outputs: tuple[int, ...]
    rule: str

    @property
    def has_embedding(self) -> bool:
        """True when the embedding itself is among the captured states."""
        return EMBEDDING in self.outputs


def takes_input_ids(target_architecture: str) -> bool:
    """True for targets whose ids are inputs of layers (DeepSeek and Kimi families)."""
    return target_architecture.startswith(AS_INPUT)


def sglang_reads(draft: Checkpoint) -> list[int] | None:
    """The ids SGLang sees; None: it will use the target's default."""
    eagle = draft.config.get("eagle_config")
    if not isinstance(eagle, dict):
        return None
    ids = eagle.get("eagle_aux_hidden_state_layer_ids")
    return list(ids) if isinstance(ids, list) and ids else None


def default_ids(target_layers: int) -> list[int]:
    """SGLang's default, as inputs of layers: [2, n // 2, n - 3]."""
    return [2, target_layers // 2, target_layers - 3]


def sglang_captures(
    draft: Checkpoint, target_architecture: str, target_layers: int | None
) -> Capture | None:
    """What SGLang captures for this draft; None when neither ids nor depth are known."""
    ids = sglang_reads(draft)
    if ids is None:
        if target_layers is None:
            return None
        chosen = default_ids(target_layers)
        rule = "no ids in eagle_config: the target's default, taken as inputs of layers"
        return Capture(tuple(chosen), _as_inputs(chosen), rule)
    if takes_input_ids(target_architecture):
        shifted = bool(ids) and ids[0] == 1
        rule = "taken as outputs of layers (first id is 1)" if shifted else "taken as inputs"
        return Capture(tuple(ids), tuple(ids) if shifted else _as_inputs(ids), rule)
    return Capture(tuple(ids), tuple(ids), "taken as outputs of layers (id + 1 is captured)")


def _as_inputs(ids: Sequence[int]) -> tuple[int, ...]:
    return tuple(each - 1 for each in ids)
