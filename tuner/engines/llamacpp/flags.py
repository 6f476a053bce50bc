"""Owns what is known about llama-server's flags: aliases, kinds, defaults, who reads which.

Seen in builds 11434 (`llama-server`) and 11549 (`xllamacpp`). Knows no values of a study.
"""

from __future__ import annotations

from tuner.embedded.reading import SPECULATIVE_TYPES


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALIASES = {
    "m": "model",
    "c": "ctx-size",
    "np": "parallel",
    "t": "threads",
    "tb": "threads-batch",
    "b": "batch-size",
    "ub": "ubatch-size",
    "n": "n-predict",
    "predict": "n-predict",
    "fa": "flash-attn",
    "ctk": "cache-type-k",
    "ctv": "cache-type-v",
    "kvu": "kv-unified",
    "cram": "cache-ram",
    "ctxcp": "ctx-checkpoints",
    "swa-checkpoints": "ctx-checkpoints",
    "ngl": "n-gpu-layers",
    "gpu-layers": "n-gpu-layers",
    "sm": "split-mode",
    "ts": "tensor-split",
    "mg": "main-gpu",
    "dev": "device",
    "ot": "override-tensor",
    "cmoe": "cpu-moe",
    "ncmoe": "n-cpu-moe",
    "lm": "load-mode",
    "a": "alias",
    "s": "seed",
    "to": "timeout",
    "cb": "cont-batching",
    "lv": "log-verbosity",
    "verbosity": "log-verbosity",
    "temperature": "temp",
    "md": "spec-draft-model",
    "model-draft": "spec-draft-model",
    "td": "spec-draft-threads",
    "threads-draft": "spec-draft-threads",
    "tbd": "spec-draft-threads-batch",
    "threads-batch-draft": "spec-draft-threads-batch",
    "ngld": "spec-draft-ngl",
    "gpu-layers-draft": "spec-draft-ngl",
    "n-gpu-layers-draft": "spec-draft-ngl",
    "devd": "spec-draft-device",
    "device-draft": "spec-draft-device",
    "ctkd": "spec-draft-type-k",
    "cache-type-k-draft": "spec-draft-type-k",
    "ctvd": "spec-draft-type-v",
    "cache-type-v-draft": "spec-draft-type-v",
    "draft-p-min": "spec-draft-p-min",
    "draft-p-split": "spec-draft-p-split",
    "lcs": "lookup-cache-static",
    "lcd": "lookup-cache-dynamic",
}
"""Other names of a flag, without dashes, to the one used here."""

RENAMED = {
    "draft": "spec-draft-n-max or spec-ngram-mod-n-max",
    "draft-n": "spec-draft-n-max or spec-ngram-mod-n-max",
    "draft-max": "spec-draft-n-max or spec-ngram-mod-n-max",
    "draft-min": "spec-draft-n-min or spec-ngram-mod-n-min",
    "draft-n-min": "spec-draft-n-min or spec-ngram-mod-n-min",
    "spec-ngram-size-n": "spec-ngram-simple-size-n (or of the type used) or "
    "spec-ngram-mod-n-match",
    "spec-ngram-size-m": "spec-ngram-simple-size-m (or of the type used)",
    "spec-ngram-min-hits": "spec-ngram-simple-min-hits (or of the type used)",
}
"""Removed names, fatal when given, to what took their place."""

TOGGLES = _names(
    "slots cont-batching context-shift kv-unified kv-offload repack op-offload cache-prompt "
    "cache-idle-slots jinja warmup perf escape webui ui prefill-assistant log-prefix "
    "log-timestamps spec-draft-backend-sampling"
)
"""Flags without a value whose opposite is spelled `no-…`."""

ON_OFF = frozenset({"flash-attn", "fit", "reasoning", "log-colors"})
"""Flags whose value is a word: YAML's booleans mean `on` and `off`."""

METHODS = SPECULATIVE_TYPES[1:]
"""All but `none`."""
NEEDS_DRAFT_MODEL = frozenset({"draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark"})
"""Without one the server starts and never drafts. draft-mtp may use the target's own heads."""


SYNTHETIC = frozenset({"spec-synth-len", "spec-synth-rates"})
_DRAFT = _names(
    "spec-draft-model spec-draft-n-max spec-draft-n-min spec-draft-p-min spec-draft-p-split "
    "spec-draft-sampling spec-draft-backend-sampling spec-draft-type-k spec-draft-type-v "
    "spec-draft-threads spec-draft-threads-batch spec-draft-ngl spec-draft-device "
    "spec-draft-cpu-moe spec-draft-n-cpu-moe spec-draft-override-tensor spec-draft-hf "
    "spec-draft-cpu-mask spec-draft-cpu-range spec-draft-cpu-strict spec-draft-prio "
    "spec-draft-poll spec-draft-cpu-mask-batch spec-draft-cpu-range-batch "
    "spec-draft-cpu-strict-batch spec-draft-prio-batch spec-draft-poll-batch"
)


def _map_flags(method: str) -> frozenset[str]:
    return frozenset(f"spec-{method}-{name}" for name in ("size-n", "size-m", "min-hits"))


METHOD_FLAGS: dict[str, frozenset[str]] = {
    **{method: _DRAFT for method in METHODS if method.startswith("draft-")},
    **{name: _map_flags(name) for name in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")},
    "ngram-mod": frozenset(f"spec-ngram-mod-{name}" for name in ("n-match", "n-max", "n-min")),
    "ngram-cache": frozenset({"lookup-cache-static", "lookup-cache-dynamic"}),
}
"""Which flags each speculative type reads (n-gram types ignore every `spec-draft-…`, seen)."""

SPECULATIVE = frozenset({"spec-type", "spec-default"}) | SYNTHETIC.union(*METHOD_FLAGS.values())

DEFAULTS: dict[str, bool | int | float | str] = {
    "spec-draft-n-max": 3,
    "spec-draft-n-min": 0,
    "spec-draft-p-min": 0.0,
    "spec-draft-p-split": 0.1,
    "spec-draft-sampling": "greedy",
    "spec-draft-type-k": "f16",
    "spec-draft-type-v": "f16",
    "spec-ngram-mod-n-match": 24,
    "spec-ngram-mod-n-max": 64,
    "spec-ngram-mod-n-min": 48,
    **{
        f"spec-{method}-{name}": value
        for method in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
        for name, value in (("size-n", 12), ("size-m", 48), ("min-hits", 1))
    },
}
"""Values of speculative flags that are the same server when left out."""

INTEGERS = _names(
    "port ctx-size parallel threads threads-batch batch-size ubatch-size n-predict cache-ram "
    "cache-reuse ctx-checkpoints main-gpu seed timeout threads-http log-verbosity poll keep "
    "top-k n-cpu-moe spec-draft-threads spec-draft-threads-batch spec-draft-n-cpu-moe "
    "spec-draft-poll"
) | {name for name, value in DEFAULTS.items() if isinstance(value, int)}
NUMBERS = _names(
    "temp top-p min-p rope-freq-base rope-freq-scale spec-synth-len slot-prompt-similarity"
) | {name for name, value in DEFAULTS.items() if isinstance(value, float)}
MANAGED = frozenset({"host", "port"})
"""Decided by whoever launches, never part of a server's identity."""

SPECULATIVE_ENV = tuple(
    f"LLAMA_ARG_{name}"
    for name in sorted(
        _names(
            "SPEC_TYPE SPEC_DRAFT_MODEL SPEC_DRAFT_HF_REPO SPEC_DRAFT_N_MAX SPEC_DRAFT_N_MIN "
            "SPEC_DRAFT_P_MIN SPEC_DRAFT_P_SPLIT SPEC_DRAFT_SAMPLING SPEC_DRAFT_CACHE_TYPE_K "
            "SPEC_DRAFT_CACHE_TYPE_V SPEC_DRAFT_BACKEND_SAMPLING SPEC_SYNTH_LEN "
            "SPEC_SYNTH_RATES N_GPU_LAYERS_DRAFT"
        )
    )
)
"""Inherited variables that would draft behind the baseline's back."""
