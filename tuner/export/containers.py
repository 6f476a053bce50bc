"""Owns how an exported server runs in a container: image, program, GPUs, model folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tuner.args import FlagValue, ServerArgs
from tuner.errors import ExportRefused
from tuner.export.subject import Subject

MOUNT = "/tuner"
"""Where a container finds the bundle."""

SHARED_MEMORY_GIB = 32
"""NCCL and the engines' workers exchange tensors there; Docker's default of 64 MiB hangs them."""


@dataclass(frozen=True, slots=True)
class Container:
    """What a container needs to run the bundle's launch.sh.

    Args:
        image: image reference with a tag.
        program: interpreter or binary inside the image, for PROGRAM.
        port: the port inside and outside.
        gpus: how many in each container; None: all there are; 0: none.
        folders: host folders that hold the models, mounted read-only at the same path.
        health_path: the engine's readiness path.
        start_s: patience until ready.
        kind: the engine.
        nodes: pods that one server spans.
    """

    image: str
    program: str
    port: int
    gpus: int | None
    folders: tuple[str, ...]
    health_path: str
    start_s: int = 1800
    kind: str = ""
    nodes: int = 1


_IMAGES = {
    "sglang": ("lmsysorg/sglang", "v{version}", "latest"),
    "vllm": ("vllm/vllm-openai", "v{version}", "latest"),
    "llamacpp": ("ghcr.io/ggml-org/llama.cpp", "server-b{version}", "server"),
}
_PORTS = {"sglang": 30000, "vllm": 8000, "llamacpp": 8080}
_WORLD = (
    ("tp-size", "tensor-parallel-size", "tp"),
    ("pp-size", "pipeline-parallel-size", "pp"),
)
_SPANNING = ("sglang", "vllm")
"""Engines whose one server may span nodes."""

_RELEASE = re.compile(r"\d+(\.\d+)*(\.?(post|rc)\d+)?\Z")


def container_for(
    kind: str, subject: Subject, health_path: str, argv: Sequence[str], nodes: int = 1
) -> Container:
    """The container of a server of this engine kind that is started by `argv`.

    Raises:
        ExportRefused: it was measured with a program that the engine's image does not have, or
            its GPUs cannot be spread evenly over so many nodes.
    """
    if kind not in _IMAGES or any(word.startswith("tuner.") for word in argv):
        raise ExportRefused(
            f"{' '.join(argv[:3])}: must be in the engine's container image, which it is not.",
            "Measure with the engine's own server (engine.executable), or leave containers out.",
        )
    name, tag, fallback = _IMAGES[kind]
    version = subject.provenance.engine.get("version", "").removeprefix("v").removeprefix("b")
    exact = tag.format(version=version) if _RELEASE.match(version) else fallback
    return Container(
        image=f"{name}:{exact}",
        program=_program_inside(argv[0]),
        port=default_port(kind),
        gpus=gpus_per_node(kind, subject, nodes),
        folders=model_folders(subject.args),
        health_path=health_path,
        kind=kind,
        nodes=nodes,
    )


def gpus_per_node(kind: str, subject: Subject, nodes: int) -> int | None:
    """GPUs of each node; raises ExportRefused where they cannot be the same everywhere."""
    total = gpu_count(kind, subject)
    if nodes == 1:
        return total
    if kind not in _SPANNING or not total or total % nodes:
        raise ExportRefused(
            f"--nodes: must divide the server's {total or 0} GPUs on sglang or vllm, got {nodes} "
            f"on {kind}.",
            "Choose another number of nodes.",
        )
    return total // nodes


def _program_inside(program: str) -> str:
    name = PurePosixPath(program).name
    if name.startswith("python"):
        return "python3"
    return "/app/llama-server" if name == "llama-server" else name


def default_port(kind: str) -> int:
    """The port that the engine's own documentation uses."""
    return _PORTS.get(kind, 8000)


def gpu_count(kind: str, subject: Subject) -> int | None:
    """GPUs of one server: tensor times pipeline parallel size, 0 on a host without GPUs.

    Data parallel replicas are not counted: where attention alone is data parallel (SGLang) they
    share the tensor-parallel GPUs.
    """
    gpus = subject.provenance.fingerprint.get("gpus")
    if kind == "llamacpp":
        return None if gpus else 0
    count = 1
    for spellings in _WORLD:
        values = [subject.args.flags[name] for name in spellings if name in subject.args.flags]
        count *= int(values[0]) if values and isinstance(values[0], int | str) else 1
    return count


def model_folders(args: ServerArgs) -> tuple[str, ...]:
    """Folders that must be mounted: every absolute path among the flags' values."""
    found = {path for value in args.flags.values() for path in _paths(value)}
    kept: list[str] = []
    for path in sorted(found):
        if not any(path == seen or path.startswith(f"{seen}/") for seen in kept):
            kept.append(path)
    return tuple(kept)


def _paths(value: FlagValue) -> list[str]:
    if isinstance(value, dict):
        return [path for item in value.values() for path in _paths(item)]
    if isinstance(value, list):
        return [path for item in value for path in _paths(item)]
    if not isinstance(value, str) or not value.startswith("/") or "\n" in value:
        return []
    path = PurePosixPath(value)
    return [str(path.parent if path.suffix else path)]
