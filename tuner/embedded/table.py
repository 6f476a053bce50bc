"""Owns the table of flags of the bundled server: names, attributes, help, removed names.

Targets are attribute paths of `xllamacpp.CommonParams`; nothing here loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.embedded import reading as r


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its names, the attribute it sets, how its value is read.

    `read` None makes it a switch: `names` set `on`, `off_names` set `off`.
    """

    names: tuple[str, ...]
    target: str
    help: str
    metavar: str = ""
    read: Callable[[str], Any] | None = None
    env: str = ""
    off_names: tuple[str, ...] = ()
    on: Any = True
    off: Any = False


def value(names: str, target: str, read: Callable[[str], Any], help: str, env: str = "") -> Flag:
    """A flag with a value; the last word of `names` is the value's placeholder."""
    *spelled, metavar = names.split()
    return Flag(tuple(spelled), target, help, metavar, read, f"LLAMA_ARG_{env}" if env else "")


def switch(
    names: str, target: str, help: str, env: str = "", off: str = "", on: Any = True
) -> Flag:
    """A flag without a value; names in `off` set False."""
    full_env = f"LLAMA_ARG_{env}" if env else ""
    return Flag(
        tuple(names.split()), target, help, env=full_env, off_names=tuple(off.split()), on=on
    )


def _ngram_map(method: str) -> list[Flag]:
    prefix, target = f"--spec-{method}", f"speculative.{method.replace('-', '_')}"
    size = r.within(1, 65535)
    return [
        value(f"{prefix}-size-n N", f"{target}.size_n", size,
              f"ngram size N for {method} speculative decoding, length of lookup n-gram "
              "(default: 12)"),
        value(f"{prefix}-size-m N", f"{target}.size_m", size,
              f"ngram size M for {method} speculative decoding, length of draft m-gram "
              "(default: 48)"),
        value(f"{prefix}-min-hits N", f"{target}.min_hits", size,
              f"minimum hits for {method} speculative decoding (default: 1)"),
    ]  # fmt: skip


_SERVER = [
    value("-m --model FNAME", "model.path", str, "model path to load", "MODEL"),
    value("--host HOST", "hostnames", r.words, "ip address to listen on (default: 127.0.0.1)",
          "HOST"),
    value("--port PORT", "port", r.within(0, 65535), "port to listen (default: 8080)", "PORT"),
    value("-a --alias STRING", "model_alias", lambda text: set(r.words(text)),
          "set model name aliases, comma-separated (to be used by API)", "ALIAS"),
    value("--api-key KEY", "api_keys", r.words, "API key to use for authentication"),
    value("-to --timeout N", "timeout_read", r.whole,
          "server read timeout in seconds (default: 3600)", "TIMEOUT"),
    value("--threads-http N", "n_threads_http", r.whole,
          "number of threads used to process HTTP requests (default: -1)", "THREADS_HTTP"),
    switch("--metrics", "endpoint_metrics",
           "enable prometheus compatible metrics endpoint (default: disabled)",
           "ENDPOINT_METRICS"),
    switch("--props", "endpoint_props",
           "enable changing global properties via POST /props (default: disabled)",
           "ENDPOINT_PROPS"),
    switch("--slots", "endpoint_slots",
           "expose slots monitoring endpoint (default: enabled)", "ENDPOINT_SLOTS",
           off="--no-slots"),
    value("-lv --verbosity --log-verbosity N", "verbosity", r.whole,
          "set the verbosity threshold (default: 3)", "LOG_VERBOSITY"),
]  # fmt: skip

_CONTEXT = [
    value("-c --ctx-size N", "n_ctx", r.whole,
          "size of the prompt context (default: 0, 0 = loaded from model)", "CTX_SIZE"),
    value("-n --predict --n-predict N", "n_predict", r.whole,
          "number of tokens to predict (default: -1, -1 = infinity)", "N_PREDICT"),
    value("-np --parallel N", "n_parallel", r.within(1, 1024),
          "number of server slots (default: 1)", "N_PARALLEL"),
    value("-t --threads N", "cpuparams.n_threads", r.whole,
          "number of CPU threads to use during generation (default: -1)", "THREADS"),
    value("-tb --threads-batch N", "cpuparams_batch.n_threads", r.whole,
          "number of threads to use during batch and prompt processing (default: same as "
          "--threads)", "THREADS_BATCH"),
    value("--poll N", "cpuparams.poll", r.within(0, 100),
          "use polling level to wait for work (0 - no polling, default: 50)"),
    value("-b --batch-size N", "n_batch", r.whole,
          "logical maximum batch size (default: 2048)", "BATCH"),
    value("-ub --ubatch-size N", "n_ubatch", r.whole,
          "physical maximum batch size (default: 512)", "UBATCH"),
    switch("-cb --cont-batching", "cont_batching",
           "whether to enable continuous batching (default: enabled)", "CONT_BATCHING",
           off="-nocb --no-cont-batching"),
    switch("--context-shift", "ctx_shift",
           "whether to use context shift on infinite text generation (default: disabled)",
           "CONTEXT_SHIFT", off="--no-context-shift"),
    switch("--swa-full", "swa_full", "use full-size SWA cache (default: false)", "SWA_FULL"),
    value("-s --seed SEED", "sampling.seed", r.seed,
          "RNG seed (default: -1, use random seed for -1)"),
    value("--temp --temperature N", "sampling.temp", r.number, "temperature (default: 0.80)",
          "TEMPERATURE"),
    value("--top-k N", "sampling.top_k", r.whole, "top-k sampling (default: 40, 0 = disabled)",
          "TOP_K"),
    value("--top-p N", "sampling.top_p", r.number,
          "top-p sampling (default: 0.95, 1.0 = disabled)", "TOP_P"),
    value("--min-p N", "sampling.min_p", r.number,
          "min-p sampling (default: 0.05, 0.0 = disabled)", "MIN_P"),
    switch("--jinja", "use_jinja",
           "whether to use jinja template engine for chat (default: enabled)", "JINJA",
           off="--no-jinja"),
    value("--chat-template JINJA_TEMPLATE", "chat_template", str,
          "set custom jinja chat template (default: template taken from model's metadata)",
          "CHAT_TEMPLATE"),
    value("--reasoning-format FORMAT", "reasoning_format", r.reasoning_format,
          "none, auto, deepseek or deepseek-legacy (default: deepseek)", "THINK"),
    switch("--warmup", "warmup",
           "whether to perform warmup with an empty run (default: enabled)", off="--no-warmup"),
]  # fmt: skip

_MEMORY = [
    value("-fa --flash-attn [on|off|auto]", "flash_attn_type", r.flash_attention,
          "set Flash Attention use ('on', 'off', or 'auto', default: 'auto')", "FLASH_ATTN"),
    value("-ctk --cache-type-k TYPE", "cache_type_k", r.cache_type,
          "KV cache data type for K (default: f16)", "CACHE_TYPE_K"),
    value("-ctv --cache-type-v TYPE", "cache_type_v", r.cache_type,
          "KV cache data type for V (default: f16)", "CACHE_TYPE_V"),
    switch("-kvu --kv-unified", "kv_unified",
           "use single unified KV buffer shared across all sequences (default: disabled)",
           "KV_UNIFIED", off="-no-kvu --no-kv-unified"),
    switch("--cache-prompt", "cache_prompt",
           "whether to enable prompt caching (default: enabled)", "CACHE_PROMPT",
           off="--no-cache-prompt"),
    value("--cache-reuse N", "n_cache_reuse", r.whole,
          "min chunk size to attempt reusing from the cache via KV shifting (default: 0)",
          "CACHE_REUSE"),
    value("-cram --cache-ram N", "cache_ram_mib", r.whole,
          "set the maximum cache size in MiB (default: 8192, -1 - no limit, 0 - disable)",
          "CACHE_RAM"),
    value("-ctxcp --ctx-checkpoints --swa-checkpoints N", "n_ctx_checkpoints", r.whole,
          "max number of context checkpoints to create per slot (default: 32)",
          "CTX_CHECKPOINTS"),
    value("-lm --load-mode MODE", "load_mode", r.load_mode,
          "model loading mode: auto, none, mmap, mlock, mmap+mlock, dio (default: auto)",
          "LOAD_MODE"),
    switch("--no-mmap", "load_mode", "DEPRECATED in favor of --load-mode: do not memory-map",
           on=r.load_mode("none")),
    switch("--mlock", "load_mode", "DEPRECATED in favor of --load-mode: keep the model in RAM",
           on=r.load_mode("mmap+mlock")),
    value("--numa TYPE", "numa", r.numa, "distribute, isolate or numactl", "NUMA"),
    value("-ngl --gpu-layers --n-gpu-layers N", "n_gpu_layers", r.gpu_layers,
          "max. number of layers to store in VRAM, either an exact number, 'auto', or 'all' "
          "(default: auto)", "N_GPU_LAYERS"),
    value("-sm --split-mode {none,layer,row,tensor}", "split_mode", r.split_mode,
          "how to split the model across multiple GPUs (default: layer)", "SPLIT_MODE"),
    value("-mg --main-gpu INDEX", "main_gpu", r.whole, "the GPU to use for the model (default: 0)",
          "MAIN_GPU"),
    value("-fit --fit [on|off]", "fit_params", r.on_off,
          "whether to adjust unset arguments to fit in device memory (default: 'on')", "FIT"),
]  # fmt: skip

_DRAFT = [
    value("--spec-draft-model -md --model-draft FNAME", "speculative.draft.mparams.path", str,
          "draft model for speculative decoding (default: unused)", "SPEC_DRAFT_MODEL"),
    value("--spec-draft-n-max N", "speculative.draft.n_max", r.within(0, 65535),
          "number of tokens to draft for speculative decoding (default: 3)", "SPEC_DRAFT_N_MAX"),
    value("--spec-draft-n-min N", "speculative.draft.n_min", r.within(0, 65535),
          "minimum number of draft tokens to use for speculative decoding (default: 0)",
          "SPEC_DRAFT_N_MIN"),
    value("--spec-draft-p-min --draft-p-min P", "speculative.draft.p_min", r.number,
          "minimum speculative decoding probability (greedy) (default: 0.00)",
          "SPEC_DRAFT_P_MIN"),
    value("--spec-draft-p-split --draft-p-split P", "speculative.draft.p_split", r.number,
          "speculative decoding split probability (default: 0.10)", "SPEC_DRAFT_P_SPLIT"),
    switch("--spec-draft-backend-sampling", "speculative.draft.backend_sampling",
           "offload draft sampling to the backend (default: enabled)",
           "SPEC_DRAFT_BACKEND_SAMPLING", off="--no-spec-draft-backend-sampling"),
    value("--spec-draft-sampling {greedy,probabilistic}", "speculative.draft.probabilistic",
          r.draft_sampling, "how the draft is sampled (default: greedy)", "SPEC_DRAFT_SAMPLING"),
    value("--spec-draft-type-k -ctkd --cache-type-k-draft TYPE",
          "speculative.draft.cache_type_k", r.cache_type,
          "KV cache data type for K for the draft model (default: f16)",
          "SPEC_DRAFT_CACHE_TYPE_K"),
    value("--spec-draft-type-v -ctvd --cache-type-v-draft TYPE",
          "speculative.draft.cache_type_v", r.cache_type,
          "KV cache data type for V for the draft model (default: f16)",
          "SPEC_DRAFT_CACHE_TYPE_V"),
    value("--spec-draft-threads -td --threads-draft N", "speculative.draft.cpuparams.n_threads",
          r.whole, "number of threads to use during generation (default: same as --threads)"),
    value("--spec-draft-threads-batch -tbd --threads-batch-draft N",
          "speculative.draft.cpuparams_batch.n_threads", r.whole,
          "number of threads to use during batch and prompt processing (default: same as "
          "--threads-draft)"),
    value("--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft N",
          "speculative.draft.n_gpu_layers", r.gpu_layers,
          "max. number of draft model layers to store in VRAM, either an exact number, 'auto', "
          "or 'all' (default: auto)", "N_GPU_LAYERS_DRAFT"),
    value("--spec-draft-device -devd --device-draft <dev1,dev2,..>", "speculative.draft.devices",
          str, "comma-separated list of devices to use for offloading the draft model"),
]  # fmt: skip

_SPECULATIVE = [
    value(f"--spec-type {','.join(r.SPECULATIVE_TYPES)}", "speculative.types",
          r.speculative_types,
          "comma-separated list of types of speculative decoding to use (default: none)",
          "SPEC_TYPE"),
    value("--spec-ngram-mod-n-min N", "speculative.ngram_mod.n_min", r.within(0, 65535),
          "minimum number of ngram tokens to use for ngram-based speculative decoding "
          "(default: 48)"),
    value("--spec-ngram-mod-n-max N", "speculative.ngram_mod.n_max", r.within(0, 65535),
          "maximum number of ngram tokens to use for ngram-based speculative decoding "
          "(default: 64)"),
    value("--spec-ngram-mod-n-match N", "speculative.ngram_mod.n_match", r.within(1, 65535),
          "ngram-mod lookup length (default: 24)"),
    *_ngram_map("ngram-simple"),
    *_ngram_map("ngram-map-k"),
    *_ngram_map("ngram-map-k4v"),
    value("-lcs --lookup-cache-static FNAME", "speculative.ngram_cache.lookup_cache_static", str,
          "path to static lookup cache to use for lookup decoding (not updated by generation)"),
    value("-lcd --lookup-cache-dynamic FNAME", "speculative.ngram_cache.lookup_cache_dynamic",
          str, "path to dynamic lookup cache to use for lookup decoding (updated by generation)"),
    value("--spec-synth-len L", "speculative.synth_len", r.number,
          "target mean synthetic acceptance length, including the target token "
          "(benchmarking only)", "SPEC_SYNTH_LEN"),
    value("--spec-synth-rates P0,P1,...", "speculative.synth_rates", r.numbers,
          "comma-separated unconditional per-position synthetic acceptance probabilities "
          "(benchmarking only)", "SPEC_SYNTH_RATES"),
]  # fmt: skip

FLAGS: tuple[Flag, ...] = (*_SERVER, *_CONTEXT, *_MEMORY, *_DRAFT, *_SPECULATIVE)

_GONE = "the argument has been removed. use "
REMOVED: dict[tuple[str, ...], str] = {
    ("--draft", "--draft-n", "--draft-max"): _GONE
    + "--spec-draft-n-max or --spec-ngram-mod-n-max",
    ("--draft-min", "--draft-n-min"): _GONE + "--spec-draft-n-min or --spec-ngram-mod-n-min",
    ("--spec-ngram-size-n",): _GONE
    + "the respective --spec-ngram-*-size-n or --spec-ngram-mod-n-match",
    ("--spec-ngram-size-m",): _GONE + "the respective --spec-ngram-*-size-m",
    ("--spec-ngram-min-hits",): _GONE + "the respective --spec-ngram-*-min-hits",
}
"""Names that llama-server knows only to refuse, with its words."""
