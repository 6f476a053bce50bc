"""What load clients cost and how right they are, side by side on one synthetic server.

SYNTHETIC SERVER: `benchmarks.timed_server` streams on a schedule and writes down when requests
really arrived and chunks really left. Every client asks it the same thing; printed are its
processor seconds per 1,000 output tokens, and the error of each of its figures against the
server's own record. Where there are two processor cores the server has the first and the client,
with all its processes, the last.

Processor time is that of the client's process with all its children, between the first request
and the last answer: starting up and importing do not count.

    python -m benchmarks.client_overhead --tokenizer FOLDER [--vllm PROGRAM] [--sglang PYTHON]
        [--guidellm PROGRAM] [--aiperf PROGRAM] [--concurrency 64] [--gap-ms 12.8]

TUNER_BENCH_VLLM, TUNER_BENCH_TOKENIZER and so on do the same. A client that is not given is left
out. With all four, on an idle machine, it takes about three minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load_clients import NAMES, PEERS, Ask, Client, ours, peer
from benchmarks.processor_time import Sampler

LIMIT_S = 120
AGREEMENT = 0.02
RIGHT = 0.01
COLUMNS = ("tok/s", "ttft", "tpot", "itl", "e2e")


@dataclass(frozen=True)
class Run:
    """One run of a client: its processor time, its figures and the server's."""

    cpu_s: float
    figures: dict[str, float]
    truth: dict[str, float]


@dataclass(frozen=True)
class Result:
    """A line of the table: seconds per 1,000 tokens, and the run."""

    client: str
    cpu_s: float
    run: Run

    def error(self, name: str) -> float | None:
        """Relative error of a figure against the server's record; None when it has none."""
        figure = self.run.figures.get(name)
        return None if figure is None else figure / self.run.truth[name] - 1


# ---- running -----------------------------------------------------------------------------------
def pin(place: int) -> None:
    """Keep what is started from here on on the first (0) or last (-1) core, if there are two."""
    cores = sorted(CORES)
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[place]})


CORES = os.sched_getaffinity(0)


@contextmanager
def timed_server(plan: argparse.Namespace) -> Iterator[str]:
    """The synthetic server, for as long as the context lasts; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.timed_server", "--port", str(port),
               "--chunks", str(plan.chunks), "--tokens", "3",
               "--first-ms", str(plan.first_ms), "--gap-ms", str(plan.gap_ms)]  # fmt: skip
    pin(0)
    server = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url)
        pin(-1)
        yield url
    finally:
        os.sched_setaffinity(0, CORES)
        server.kill()
        server.wait()


def wait_for(url: str) -> None:
    """Wait until the server answers. Raises TimeoutError."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            get(url + "/v1/models")
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer within 30 s")


def get(url: str) -> dict[str, float]:
    """A JSON page of the synthetic server."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        page: dict[str, float] = json.load(answer)
    return page


def run(client: Client, url: str, requests: int, plan: argparse.Namespace) -> Run:
    """Run a client once. Raises RuntimeError with its last words when it fails."""
    with tempfile.TemporaryDirectory() as name:
        ask = Ask(url, requests, plan.concurrency, plan.tokens, Path(name))
        get(url + "/truth")
        sampler = finish(client.command(ask), {**os.environ, **client.environment})
        truth = get(f"{url}/truth/{requests}")
        if truth["requests"] < requests:
            raise RuntimeError(f"it sent {truth['requests']} requests instead of {requests}")
        cpu_s = sampler.between_s(truth["first_s"], truth["last_s"])
        return Run(cpu_s, client.read(ask.folder), truth)


def finish(command: Sequence[str], environment: dict[str, str]) -> Sampler:
    """Run a command to its end; gives the samples of its processor time.

    Raises RuntimeError with its last words when it fails.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    sampler = Sampler(process.pid, min(CORES))
    try:
        words, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it took longer than {LIMIT_S} s") from None
    finally:
        sampler.stop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        last = words.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise RuntimeError(last[0])
    return sampler


def compare(client: Client, url: str, plan: argparse.Namespace) -> Result:
    """Run a client, and set its cost in relation to the tokens."""
    done = run(client, url, plan.concurrency * plan.turns, plan)
    return Result(client.name, 1000 * done.cpu_s / done.truth["tokens"], done)


# ---- showing -----------------------------------------------------------------------------------
def line(result: Result) -> str:
    """A line of the table."""
    errors = [result.error(name) for name in NAMES]
    shown = " ".join(f"{'-':>8}" if error is None else f"{error:>+8.2%}" for error in errors)
    rate = result.run.truth["chunks_per_s"]
    return f"{result.client:18} {result.cpu_s:>9.4f} {shown} {rate:>9.0f}"


def verdicts(results: Sequence[Result]) -> list[str]:
    """What the table says: cost against the best peer, and where peers and the tuner agree."""
    mine, *peers = results
    if not peers:
        return ["No peer was given: nothing to compare with."]
    best = min(peers, key=lambda result: result.cpu_s)
    share = mine.cpu_s / best.cpu_s
    texts = [f"The tuner needs {share:.0%} of the processor time of the best peer, {best.client}."]
    return texts + [agreement(mine, other) for other in peers]


def agreement(mine: Result, other: Result) -> str:
    """How a peer's throughput and TTFT compare with the tuner's, each on its own run's truth."""
    parts = []
    for name, column in zip(NAMES[:2], COLUMNS[:2], strict=True):
        ours, theirs = mine.error(name), other.error(name)
        if ours is None or theirs is None:
            continue
        gap = (1 + theirs) / (1 + ours) - 1
        word = "agrees" if abs(gap) <= AGREEMENT else "differs"
        wrong = "" if abs(theirs) <= RIGHT else f" (it is {theirs:+.1%} off the server's record)"
        parts.append(f"{column} {word}, {gap:+.2%}{wrong}")
    said = "; ".join(parts) or "it reports neither"
    return f"{other.client} against the tuner: {said}."


# ---- the tuner's own client --------------------------------------------------------------------
def measure(plan: argparse.Namespace) -> None:
    """Be the tuner's client: measure one block and write its figures."""
    from tuner.measure.client import LoadClient
    from tuner.measure.metrics import summarize
    from tuner.measure.prompts import Workload
    from tuner.measure.records import LoadPoint, Prompt, Sampling
    from tuner.measure.wire import openai_chat

    load = LoadPoint(concurrency=plan.concurrency)
    prompts = tuple(
        Prompt(f"p{n}", ({"role": "user", "content": f"Tell story number {n}."},), "chat")
        for n in range(plan.requests)
    )
    workload = Workload((prompts,), (), prompts, (load,), Sampling(max_tokens=plan.tokens))
    with LoadClient(plan.measure, openai_chat("timed"), workload, alive=lambda: None) as client:
        block = client.run_block(0, prompts, load)
    for note in block.notes:
        print(note, file=sys.stderr)
    metrics = summarize([block]).at(load).metrics
    plan.out.write_text(json.dumps({name: metrics[name] for name in NAMES}))


def parse() -> argparse.Namespace:
    """The command line, with the environment's defaults."""
    parser = argparse.ArgumentParser(description="load clients side by side, synthetic server")
    for name in (*PEERS, "tokenizer"):
        parser.add_argument(f"--{name}", default=os.environ.get(f"TUNER_BENCH_{name.upper()}"))
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--turns", type=int, default=10, help="requests per slot")
    parser.add_argument("--chunks", type=int, default=128, help="per answer, of 3 tokens each")
    parser.add_argument("--first-ms", type=float, default=100.0)
    parser.add_argument("--gap-ms", type=float, default=12.8)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=64, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    plan = parser.parse_args()
    plan.tokens = plan.tokens or 3 * plan.chunks
    given = [name for name in PEERS if getattr(plan, name)]
    if given and not plan.tokenizer:
        parser.error("--tokenizer must be a tokenizer's folder: the other clients need one.")
    plan.clients = [ours(), *(peer(name, getattr(plan, name), plan.tokenizer) for name in given)]
    return plan


def main() -> None:
    """Print the table."""
    plan = parse()
    if plan.measure:
        measure(plan)
        return
    where = "one core each" if len(CORES) > 1 else "ONE CORE FOR BOTH: timings are not valid"
    print(f"SYNTHETIC SERVER: {plan.concurrency} streams, a chunk of 3 tokens every "
          f"{plan.gap_ms} ms; server and client: {where}")  # fmt: skip
    print(f"{'':18} {'CPU s per':>9} {'error of':>8}")
    heads = " ".join(f"{column:>8}" for column in COLUMNS)
    print(f"{'client':18} {'1000 tok':>9} {heads} {'chunks/s':>9}", flush=True)
    results = []
    with timed_server(plan) as url:
        for client in plan.clients:
            try:
                results.append(compare(client, url, plan))
                print(line(results[-1]), flush=True)
            except (RuntimeError, OSError, LookupError, ValueError) as error:
                print(f"{client.name:18} could not be run: {error}", flush=True)
    if results and results[0].client == "tuner":
        print("\n".join(verdicts(results)))


if __name__ == "__main__":
    main()
