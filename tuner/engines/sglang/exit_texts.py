"""Owns the table of log texts that tell why SGLang did not start or died.

Texts were read in 0.5.23 and in field reports of older versions; the logic is in `exits`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.errors import FailureKind as Kind


@dataclass(frozen=True, slots=True)
class Pattern:
    """A row: what the log says, what it means, what to do."""

    text: re.Pattern[str]
    kind: Kind
    hint: str
    is_draft_fault: bool = False


def _row(text: str, kind: Kind, hint: str, is_draft_fault: bool = False) -> Pattern:
    return Pattern(re.compile(text, re.I), kind, hint, is_draft_fault)


_MEMORY = "Lower mem-fraction-static, max-running-requests or cuda-graph-max-bs-decode."
_UNKNOWN = "Compare with `tuner doctor`: the installed SGLang does not know this."
_DRAFT = "Run `tuner draft inspect` on the draft and its target."
_LOADING = "Check engine.model and engine.draft_model."

PORT = _row(r"address already in use|Errno 98|EADDRINUSE|port \d+ is (already )?(in use|not free)",
            Kind.PORT_IN_USE, "It is launched again on another port.")  # fmt: skip
"""Internal rendezvous ports too: the clash is the host's and passes."""

COMBINATION = _row(
    r"Unknown speculative algorithm|is not supported|not support(ed)? |unsupported|"
    r"only supports? |only supported|not compatible|incompatible|requires? |must be |"
    r"NotImplementedError|AssertionError",
    Kind.LAUNCH_CRASH,
    "This combination does not work on this SGLang and GPU; it is not launched again.",
)

PATTERNS: tuple[Pattern, ...] = (
    _row(r"No module named 'sglang\b",
         Kind.LAUNCH_CRASH, "Set engine.executable to the Python interpreter that has SGLang."),
    _row(r"unrecognized arguments?:|ambiguous option:|error: argument |invalid choice:|"
         r"expected (one|at least one) argument|the following arguments are required",
         Kind.REJECTED_FLAG, _UNKNOWN),
    _row(r"Unsupported config option|Config file must|Multiple config files",
         Kind.REJECTED_FLAG, "Move the option behind --config."),
    _row(r"Capture \w+ graph failed:[^\n]*(out of memory|OutOfMemory|alloc)",
         Kind.OUT_OF_MEMORY, _MEMORY),
    _row(r"torch\.(cuda\.)?OutOfMemoryError|(CUDA|HIP|XPU|NPU) out of memory|CUDA error: out of "
         r"memory|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|DefaultCPUAllocator: "
         r"can't allocate", Kind.OUT_OF_MEMORY, _MEMORY),
    _row(r"Prefill out of memory|Decode out of memory|Try to allocate .* tokens.*out of memory",
         Kind.OUT_OF_MEMORY, "Lower max-running-requests, or raise mem-fraction-static."),
    _row(r"Not enough memory\. Please try to increase|Not enough memory for|"
         r"Loading the model.*out of memory|"
         r"max_total_num_tokens.*(<=|less than)|insufficient (GPU )?memory",
         Kind.OUT_OF_MEMORY, "Raise mem-fraction-static, or use more GPUs."),
    _row(r"(CUDA|HIP) failure \d+ '?out of memory", Kind.OUT_OF_MEMORY, _MEMORY),
    _row(r"The memory capacity is unbalanced", Kind.OUT_OF_MEMORY,
         "Another process holds memory of a GPU: `tuner doctor` lists it; end it."),
    _row(r"scheduler died during initialization \(exit code: -9\)|"
         r"Subprocess \S+ .{0,40}crashed with exit code -9|"
         r"scheduler is dead[^\n]*\n[^\n]*Exit code: -9", Kind.OUT_OF_MEMORY,
         "The system ended it, usually for host memory: look at `dmesg`."),
    PORT,
    _row(r"selected index k out of range", Kind.LAUNCH_CRASH,
         "The draft tree cannot hold so many tokens: lower the draft tokens."),
    _row(r"has no attribute '(draft_vocab_size|hot_token_id|set_embed|get_embed)'|"
         r"does not implement set_eagle3_layers_to_capture|"
         r"(vocab_size|vocabular(y|ies)).*(mismatch|not (match|equal|the same)|must be)|"
         r"tokenizers? .*(mismatch|differ|not (match|identical))",
         Kind.LAUNCH_CRASH, _DRAFT, True),
    _row(r"size mismatch for|mat1 and mat2 shapes cannot be multiplied|"
         r"param_data\.shape == loaded_weight\.shape|"
         r"Attempted to load weight .* into parameter|loaded_weight\.shape",
         Kind.LAUNCH_CRASH, _DRAFT, True),
    _row(r"Target model's context_length \(.*\) is greater than", Kind.LAUNCH_CRASH,
         "Set context-length to the draft's, or SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1.",
         True),
    _row(r"(draft|eagle|mtp|nextn).*(No such file|does not exist|not a local folder|"
         r"Cannot find any model weights)", Kind.LAUNCH_CRASH, _LOADING, True),
    _row(r"gated repo|401 Client Error|does not recognize this architecture|"
         r"Model architectures .* are not supported", Kind.LAUNCH_CRASH,
         "Check that the model may be read here, and that this SGLang knows it."),
    _row(r"No space left on device", Kind.LAUNCH_CRASH, "Free disk space, then run again."),
    _row(r"Cannot find any model weights|Repo id must be in the form|"
         r"No (safetensors|model) (weights|files)|"
         r"not a local folder and is not a valid model identifier|"
         r"does not appear to have a file named|SafetensorError|"
         r"(weights?|parameters?) .*(not initialized|missing) .*checkpoint", Kind.LAUNCH_CRASH,
         _LOADING),
    _row(r"NCCL (WARN|error)|Watchdog caught collective operation timeout|"
         r"ncclUnhandledCudaError|ncclSystemError|ncclInvalidUsage|"
         r"unhandled (cuda|system) error", Kind.LAUNCH_CRASH,
         "Check the NCCL variables with `tuner probe collectives`."),
    COMBINATION,
)  # fmt: skip
"""First match wins, so the sure and narrow texts come first."""
