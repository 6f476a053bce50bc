"""Times all-reduce under the environment it was started with; run by an engine's interpreter.

Standard input: one JSON document {"backend", "ranks", "sizes", "warm_up", "repeats",
"timeout_s"}. Standard output: one line that begins with the marker, then JSON {"rows": [{"bytes",
"seconds", "correct"}], "error", "library"}. Imports torch and nothing of the tuner. One process
per rank; the file of a rendezvous is used, so no port is. Sums are checked: a protocol that is
unsafe on this hardware shows as wrong data, not as an error.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from datetime import timedelta
from typing import Any

MARKER = "TUNER-COLLECTIVES "


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="tuner-collectives-") as folder:
        answer = _measure(request, folder)
    sys.stdout.write("\n" + MARKER + json.dumps(answer) + "\n")


def _measure(request: dict[str, Any], folder: str) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(target=_rank, args=(rank, request, folder, answers), daemon=True)
        for rank in range(request["ranks"])
    ]
    for process in ranks:
        process.start()
    answer = _wait(answers, ranks, time.monotonic() + request["timeout_s"])
    for process in ranks:
        process.join(2 if not answer["error"] else 0)
        if process.is_alive():
            process.kill()
            process.join()
    return answer


def _wait(answers: Any, ranks: list[Any], deadline: float) -> dict[str, Any]:
    while answers.empty():
        failed = [process.exitcode for process in ranks if process.exitcode not in (None, 0)]
        if failed and answers.empty():
            return {"rows": [], "error": f"a rank ended with exit code {failed[0]}"}
        if time.monotonic() > deadline:
            return {"rows": [], "error": "no answer in time: the ranks hang"}
        time.sleep(0.05)
    found: dict[str, Any] = answers.get()
    return found


def _rank(rank: int, request: dict[str, Any], folder: str, answers: Any) -> None:
    try:
        import torch.distributed as dist

        device = _join(rank, request, folder)
        rows = [_size(size, request, device) for size in request["sizes"]]
        dist.barrier()
        dist.destroy_process_group()
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        answers.put({"rows": [], "error": f"rank {rank}: {type(error).__name__}: {error}"[:500]})
        raise SystemExit(1) from error
    if rank == 0:
        answers.put({"rows": rows, "error": "", "library": _library(request["backend"])})


def _join(rank: int, request: dict[str, Any], folder: str) -> Any:
    import torch
    import torch.distributed as dist

    device = torch.device("cpu")
    if request["backend"] == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    dist.init_process_group(
        request["backend"],
        init_method=f"file://{os.path.join(folder, 'rendezvous')}",  # noqa: PTH118
        rank=rank,
        world_size=request["ranks"],
        timeout=timedelta(seconds=request["timeout_s"]),
    )
    return device


def _size(size: int, request: dict[str, Any], device: Any) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    dtype = torch.bfloat16 if request["backend"] == "nccl" else torch.float32
    count = max(1, size // torch.empty(0, dtype=dtype).element_size())
    values = torch.full((count,), float(dist.get_rank() + 1), dtype=dtype, device=device)
    total = request["ranks"] * (request["ranks"] + 1) / 2
    rounds = [
        (_once(work, device), bool((work == total).all()))
        for work in (values.clone() for _ in range(request["warm_up"] + request["repeats"]))
    ]
    seconds = [spent for spent, _ in rounds[request["warm_up"] :]]
    slowest = torch.tensor(seconds, dtype=torch.float64).to(device)
    wrong = torch.tensor([sum(not right for _, right in rounds)], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    dist.all_reduce(wrong)
    return {"bytes": size, "seconds": slowest.tolist(), "correct": int(wrong.item()) == 0}


def _once(work: Any, device: Any) -> float:
    """Seconds of one all-reduce in place, from a barrier on; its slowest rank is what counts."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    if device.type != "cuda":
        start = time.perf_counter()
        dist.all_reduce(work)
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    dist.all_reduce(work)
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1000


def _library(backend: str) -> str:
    import torch

    if backend != "nccl":
        return f"{backend}, torch {torch.__version__}"
    return "NCCL " + ".".join(str(part) for part in torch.cuda.nccl.version())


if __name__ == "__main__":
    main()
