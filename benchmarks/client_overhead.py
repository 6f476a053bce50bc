"""What load clients cost and how right they are, side by side on one synthetic server.

SYNTHETIC SERVER: `benchmarks.timed_server` streams on a schedule and writes down when each chunk
really left. Every client asks it the same thing; printed are its processor seconds per 1,000
output tokens, and the error of each of its figures against the server's own record.

Processor time is that of the client's process with all its children, from the difference of a
long and a short run: starting up and importing do not count.

    python -m benchmarks.client_overhead [--vllm BIN] [--vllm-tokenizer DIR]
        [--sglang PYTHON] [--sglang-tokenizer DIR] [--concurrency 64] [--gap-ms 12.8]

The environment variables TUNER_BENCH_VLLM, TUNER_BENCH_VLLM_TOKENIZER, TUNER_BENCH_SGLANG and
TUNER_BENCH_SGLANG_TOKENIZER do the same. A client that is not given is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NAMES = ("output_tokens_per_s", "ttft_ms", "tpot_ms", "e2e_ms")
LIMIT_S = 600


@dataclass(frozen=True)
class Client:
    """A load client: its command for so many requests, and where its figures are."""

    name: str
    command: Callable[[str, int, Path], list[str]]
    figures: tuple[str, str, str, str]


@dataclass(frozen=True)
class Run:
    """One run of a client: its processor time, its figures and the server's."""

    cpu_s: float
    figures: dict[str, float]
    truth: dict[str, float]


def ours(plan: argparse.Namespace) -> Client:
    """The tuner's own client, as a process of its own."""

    def command(url: str, requests: int, out: Path) -> list[str]:
        return [sys.executable, "-m", "benchmarks.client_overhead", "--measure", url,
                "--requests", str(requests), "--concurrency", str(plan.concurrency),
                "--out", str(out)]  # fmt: skip

    return Client("tuner", command, NAMES)


def vllm(plan: argparse.Namespace) -> Client:
    """`vllm bench serve`."""

    def command(url: str, requests: int, out: Path) -> list[str]:
        return [plan.vllm, "bench", "serve", "--backend", "openai-chat", "--base-url", url,
                "--endpoint", "/v1/chat/completions", "--model", "timed",
                "--tokenizer", plan.vllm_tokenizer, "--dataset-name", "random",
                "--random-input-len", "32", "--random-output-len", str(plan.tokens),
                "--num-prompts", str(requests), "--max-concurrency", str(plan.concurrency),
                "--ready-check-timeout-sec", "0", "--disable-tqdm",
                "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result",
                "--result-dir", str(out.parent), "--result-filename", out.name]  # fmt: skip

    return Client(
        "vllm bench serve",
        command,
        ("output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms"),
    )


def sglang(plan: argparse.Namespace) -> Client:
    """`sglang.bench_serving`."""

    def command(url: str, requests: int, out: Path) -> list[str]:
        return [plan.sglang, "-m", "sglang.bench_serving", "--backend", "sglang-oai-chat",
                "--base-url", url, "--model", "timed", "--tokenizer", plan.sglang_tokenizer,
                "--dataset-name", "random-ids", "--random-input-len", "32",
                "--random-output-len", str(plan.tokens), "--random-range-ratio", "1.0",
                "--num-prompts", str(requests), "--max-concurrency", str(plan.concurrency),
                "--warmup-requests", "0", "--disable-tqdm",
                "--output-file", str(out)]  # fmt: skip

    return Client(
        "sglang bench_serving",
        command,
        ("output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_e2e_latency_ms"),
    )


@contextmanager
def timed_server(plan: argparse.Namespace) -> Iterator[str]:
    """The synthetic server, for as long as the context lasts; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.timed_server", "--port", str(port),
               "--chunks", str(plan.chunks), "--tokens", "3",
               "--first-ms", str(plan.first_ms), "--gap-ms", str(plan.gap_ms)]  # fmt: skip
    server = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url)
        yield url
    finally:
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


def run(client: Client, url: str, requests: int) -> Run:
    """Run a client once. Raises RuntimeError with its last words when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        get(url + "/truth")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            client.command(url, requests, out), capture_output=True, text=True, timeout=LIMIT_S
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode or not out.exists():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise RuntimeError(" ".join(last) or f"exit code {done.returncode}")
        found = json.loads(out.read_text().splitlines()[-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = {ours: found[theirs] for ours, theirs in zip(NAMES, client.figures, strict=True)}
    return Run(cpu, figures, get(f"{url}/truth/{requests}"))


def compare(client: Client, url: str, plan: argparse.Namespace) -> str:
    """One line of the table."""
    short = run(client, url, plan.concurrency)
    long = run(client, url, plan.concurrency * plan.turns)
    tokens = long.truth["tokens"] - short.truth["tokens"]
    cpu = 1000 * (long.cpu_s - short.cpu_s) / tokens
    errors = [long.figures[name] / long.truth[name] - 1 for name in NAMES]
    shown = " ".join(f"{error:>+8.2%}" for error in errors)
    return f"{client.name:22} {cpu:>10.4f} {shown} {long.truth['chunks_per_s']:>9.0f}"


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
    metrics = summarize([block]).at(load).metrics
    plan.out.write_text(json.dumps({name: metrics[name] for name in NAMES}))


def parse() -> argparse.Namespace:
    """The command line, with the environment's defaults."""
    parser = argparse.ArgumentParser(description="load clients side by side, synthetic server")
    for name in ("vllm", "vllm-tokenizer", "sglang", "sglang-tokenizer"):
        variable = "TUNER_BENCH_" + name.upper().replace("-", "_")
        parser.add_argument(f"--{name}", default=os.environ.get(variable))
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--turns", type=int, default=16, help="requests per slot in the long run")
    parser.add_argument("--chunks", type=int, default=128, help="per answer, of 3 tokens each")
    parser.add_argument("--first-ms", type=float, default=100.0)
    parser.add_argument("--gap-ms", type=float, default=12.8)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--requests", type=int, default=64, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    plan = parser.parse_args()
    plan.tokens = 3 * plan.chunks
    return plan


def main() -> None:
    """Print the table."""
    plan = parse()
    if plan.measure:
        measure(plan)
        return
    clients = [ours(plan)]
    clients += [vllm(plan)] if plan.vllm else []
    clients += [sglang(plan)] if plan.sglang else []
    print(f"SYNTHETIC SERVER: {plan.concurrency} streams, a chunk of 3 tokens every "
          f"{plan.gap_ms} ms")  # fmt: skip
    print(f"{'':22} {'CPU s per':>10} {'error of':>8}")
    print(f"{'client':22} {'1000 tok':>10} {'tok/s':>8} {'ttft':>8} {'tpot':>8} {'e2e':>8} "
          f"{'chunks/s':>9}")  # fmt: skip
    with timed_server(plan) as url:
        for client in clients:
            try:
                print(compare(client, url, plan), flush=True)
            except (RuntimeError, subprocess.TimeoutExpired, KeyError) as error:
                print(f"{client.name:22} could not be run: {error}", flush=True)


if __name__ == "__main__":
    main()
