"""Owns taking the readings that `tuner doctor` judges: of this machine, and of one study's engine,
checkpoints, left-over servers and database. Prints nothing and launches no server."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tuner.config.engine import EngineBase
from tuner.config.loader import LoadedStudy
from tuner.drafts.inspect import inspect_draft
from tuner.engines.base import Engine
from tuner.engines.catalog import get_engine
from tuner.errors import EngineError, StoreError, UsageError
from tuner.host import checkup
from tuner.host.checkup import Check
from tuner.host.conditions import load_now
from tuner.host.gpus import list_gpus, open_nvml
from tuner.host.topology import Topology, peer_hints, read_topology
from tuner.search.candidates import inspect_engine
from tuner.server.command import LaunchCommand
from tuner.server.headroom import read_headroom
from tuner.server.oneshot import run_command
from tuner.server.strays import find_strays
from tuner.store.database import open_store
from tuner.store.place import RESULTS, StudyPlace, place_of
from tuner.store.urls import parse_url

GPU_ENGINES = ("sglang", "vllm")
NCCL_TIMEOUT_S = 120.0
_NCCL = (
    "import json,torch;print('TUNER',json.dumps([torch.__version__,torch.cuda.nccl.version()]))"
)
_GOVERNORS = "devices/system/cpu/cpu*/cpufreq/scaling_governor"


def machine_checks(engine_kind: str = "", sys_folder: Path = Path("/sys")) -> Iterator[Check]:
    """Everything about this machine; `engine_kind` says whether GPUs are needed."""
    yield checkup.check_python(sys.version_info[:3])
    free = read_headroom(RESULTS.absolute())
    yield checkup.check_free(checkup.MEMORY, free.memory)
    yield checkup.check_free(checkup.SHARED_MEMORY, free.shared_memory)
    yield checkup.check_free(checkup.DISK, free.disk)
    yield checkup.check_governor(
        [path.read_text().strip() for path in sys_folder.glob(_GOVERNORS)]
    )
    yield checkup.check_load(load_now())
    nvml = open_nvml()
    yield from checkup.check_gpus(
        list_gpus(), are_needed=engine_kind in GPU_ENGINES, has_nvml=nvml is not None
    )
    yield from checkup.check_readings(nvml.read() if nvml is not None else [])
    topology = read_topology()
    yield from checkup.check_topology(topology, peer_hints(topology))


def installed_engines() -> Check:
    """Which engines a study without an `executable` would find."""
    found = [name for name in ("llama-server", "vllm", "sglang") if shutil.which(name)]
    if importlib.util.find_spec("xllamacpp"):
        found.append("the bundled llama.cpp")
    if found:
        return Check("engines", "ok", ", ".join(found))
    return Check(
        "engines", "warn", "none on PATH",
        "Set engine.executable in your study, or: pip install 'speculative-tuner[embedded]'",
    )  # fmt: skip


def stray_servers(roots: list[Path]) -> Check:
    """Servers whose tuner died."""
    strays = find_strays(roots)
    if not strays:
        return Check("stray servers", "ok", "none")
    hint = "The next `tuner run` of that study stops them; or end these processes yourself."
    return Check("stray servers", "warn", "; ".join(map(str, strays)), hint)


def study_checks(loaded: LoadedStudy) -> Iterator[Check]:
    """Engine, checkpoints, NCCL, left-over servers and database of a study."""
    config = loaded.config
    place = place_of(config.name, config.storage)
    yield from _engine(get_engine(config.engine), config.engine)
    yield _model(config.engine)
    yield from _pair(config.engine)
    if config.engine.kind in GPU_ENGINES:
        yield from _nccl(config.engine.executable, read_topology())
    yield stray_servers([place.results.root])
    yield _database(place)


def _engine(engine: Engine, config: EngineBase) -> Iterator[Check]:
    try:
        facts = inspect_engine(engine, config)
    except EngineError as error:
        yield Check("engine", "fail", error.message, error.hint)
        return
    if not facts.version and facts.flags is None and engine.fact_commands():
        yield Check("engine", "fail", _last_words(facts.outputs), _EXECUTABLE)
        return
    flags = f", {len(facts.flags)} flags" if facts.flags else ""
    yield Check("engine", "ok", f"{engine.kind} {facts.version or 'of unknown version'}{flags}")
    broken = engine.violations(engine.without_speculation(engine.fixed_args()), facts)
    for violation in broken:
        yield Check("engine flags", "fail", violation.message, violation.hint)


_EXECUTABLE = "Set engine.executable to the program or interpreter that has the engine."


def _last_words(outputs: object) -> str:
    """The last line that the engine's program printed: usually the error's own."""
    texts = outputs.values() if isinstance(outputs, dict) else ()
    lines = [line for text in texts for line in str(text).strip().splitlines()]
    return f"it did not answer: {lines[-1].strip() if lines else 'no output'}"


def _model(config: EngineBase) -> Check:
    """Whether a path names something; a bare name is the engine's to find."""
    missing = [
        text
        for text in (config.model, config.draft_model)
        if text and text.startswith(("/", "~")) and not Path(text).expanduser().exists()
    ]
    if missing:
        return Check("model", "fail", f"nothing at {', '.join(missing)}", _MODEL)
    return Check("model", "ok", config.model)


_MODEL = "Correct the path, or fetch the model first (`make quickstart` fetches its own)."


def _pair(config: EngineBase) -> Iterator[Check]:
    draft = config.draft_model
    if not draft or draft.endswith(".gguf"):
        return
    try:
        found = inspect_draft(draft, config.model, server_flags=config.args)
    except UsageError as error:
        yield Check("draft", "warn", f"not inspected: {error.message}", error.hint)
        return
    serious = [finding for finding in found.findings if finding.severity != "info"]
    for finding in serious:
        state: checkup.State = "fail" if finding.severity == "error" else "warn"
        yield Check("draft", state, finding.message, finding.hint)
    if not serious:
        yield Check("draft", "ok", f"{found.method}: no finding explains a low acceptance")


def _nccl(executable: str | None, topology: Topology) -> Iterator[Check]:
    """The collective library, asked of the engine's own interpreter; it matters to two GPUs."""
    if topology.gpus < 2:
        return
    python = executable or "python3"
    hint = "Name the engine's interpreter in engine.executable."
    try:
        done = run_command(LaunchCommand((python, "-c", _NCCL)), timeout_s=NCCL_TIMEOUT_S)
    except EngineError as error:
        yield Check("nccl", "warn", error.message, hint)
        return
    lines = [line for line in done.stdout.splitlines() if line.startswith("TUNER ")]
    if not lines:
        yield Check("nccl", "warn", "torch did not tell its version", hint)
        return
    torch, nccl = json.loads(lines[-1].removeprefix("TUNER "))
    number = ".".join(map(str, nccl)) if isinstance(nccl, list) else str(nccl)
    yield Check("nccl", "ok", f"{number} (torch {torch})")


def _database(place: StudyPlace) -> Check:
    url = parse_url(place.url)
    shown = str(url.path or url.shown)
    if url.path is not None and not url.path.exists():
        return Check("database", "ok", f"{shown}: not made yet")
    try:
        with open_store(place.url, create=False, timeout_s=10.0) as store:
            answer = store.integrity()
    except StoreError as error:
        return Check("database", "fail", error.message, error.hint)
    if answer == "ok":
        return Check("database", "ok", f"{shown}: sound")
    hint = "Move the file away; `tuner run` reads finished trials back from their folders."
    return Check("database", "fail", f"{shown}: damaged, {answer}", hint)
