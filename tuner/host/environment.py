"""Owns which inherited environment variables change how a server runs, and keeps secrets out."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping

_RELEVANT = re.compile(
    r"(?:NCCL|RCCL|NVSHMEM|SGLANG|SGL|VLLM|LLAMA_ARG|GGML|CUDA|NVIDIA|HIP|ROCR|OMP|GOMP|KMP|MKL"
    r"|OPENBLAS|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER|DG|UCX|GLOO)_\w+"
    r"|LD_PRELOAD|LD_LIBRARY_PATH|MALLOC_\w+"
)
_PLACE = re.compile(r"\w+_(?:DIR|HOME|CACHE|ROOT)|CUDA_PATH|NCCL_DEBUG_FILE")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH", re.IGNORECASE)


def relevant_environment(
    environ: Mapping[str, str], without: Collection[str] = ()
) -> dict[str, str]:
    """Variables that servers and their libraries act on, by name.

    Left out: `without` (a study's own variables, which it records itself), names that only place
    files, and anything that may be a secret.
    """
    return {
        name: value
        for name, value in sorted(environ.items())
        if _RELEVANT.fullmatch(name)
        and name not in without
        and not _SECRET.search(name)
        and not _PLACE.fullmatch(name)
    }


@contextlib.contextmanager
def handed_down(secrets: Mapping[str, str]) -> Iterator[None]:
    """Have every process that is started inside inherit these variables; they are in no record."""
    before = {name: os.environ.get(name) for name in secrets}
    os.environ.update(secrets)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
