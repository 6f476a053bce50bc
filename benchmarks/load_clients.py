"""The load clients that `benchmarks.client_overhead` compares: how each is run and read.

Each peer names its figures in its own way; here they get the tuner's names. Where definitions
differ the one that means the same is taken: GuideLLM and AIPerf call `(last - first) / (tokens -
1)` inter-token latency, which is the TPOT of the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("output_tokens_per_s", "ttft_ms", "tpot_ms", "inter_chunk_ms", "e2e_ms")
PEERS = ("vllm", "sglang", "guidellm", "aiperf")


@dataclass(frozen=True)
class Ask:
    """What a client is asked to do: its figures go somewhere into `folder`."""

    url: str
    requests: int
    concurrency: int
    tokens: int
    folder: Path


@dataclass(frozen=True)
class Client:
    """A load client.

    Args:
        figures: where each figure is in the output, as a dotted path, and its unit in ours.
    """

    name: str
    command: Callable[[Ask], list[str]]
    output: str
    figures: Mapping[str, tuple[str, float]]
    environment: Mapping[str, str] = field(default_factory=dict)

    def read(self, folder: Path) -> dict[str, float]:
        """The figures of a finished run. Raises OSError or LookupError when there are none."""
        data = _last_json((folder / self.output).read_text())
        return {
            name: float(_dig(data, path)) * unit for name, (path, unit) in self.figures.items()
        }


def _last_json(text: str) -> Any:
    """A JSON document, or the last one of several that have a line each."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text.splitlines()[-1])


def _dig(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def ours() -> Client:
    """The tuner's own client, as a process of its own."""

    def command(ask: Ask) -> list[str]:
        return [sys.executable, "-m", "benchmarks.client_overhead", "--measure", ask.url,
                "--requests", str(ask.requests), "--concurrency", str(ask.concurrency),
                "--tokens", str(ask.tokens), "--out", str(ask.folder / "out.json")]  # fmt: skip

    return Client("tuner", command, "out.json", {name: (name, 1.0) for name in NAMES})


def vllm(program: str, tokenizer: str) -> Client:
    """`vllm bench serve`; `program` is vllm's executable."""

    def command(ask: Ask) -> list[str]:
        return [program, "bench", "serve", "--backend", "openai-chat", "--base-url", ask.url,
                "--endpoint", "/v1/chat/completions", "--model", "timed",
                "--tokenizer", tokenizer, "--dataset-name", "random",
                "--random-input-len", "32", "--random-output-len", str(ask.tokens),
                "--num-prompts", str(ask.requests), "--max-concurrency", str(ask.concurrency),
                "--ready-check-timeout-sec", "0", "--disable-tqdm",
                "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result",
                "--result-dir", str(ask.folder), "--result-filename", "out.json"]  # fmt: skip

    return Client("vllm bench serve", command, "out.json", _serving("mean_e2el_ms"))


def sglang(program: str, tokenizer: str) -> Client:
    """`sglang.benchmark.serving`; `program` is the Python that has it."""

    def command(ask: Ask) -> list[str]:
        return [program, "-m", "sglang.benchmark.serving", "--backend", "sglang-oai-chat",
                "--base-url", ask.url, "--model", "timed", "--tokenizer", tokenizer,
                "--dataset-name", "random-ids", "--random-input-len", "32",
                "--random-output-len", str(ask.tokens), "--random-range-ratio", "1.0",
                "--num-prompts", str(ask.requests), "--max-concurrency", str(ask.concurrency),
                "--warmup-requests", "0", "--disable-tqdm",
                "--output-file", str(ask.folder / "out.json")]  # fmt: skip

    return Client("sglang serving", command, "out.json", _serving("mean_e2e_latency_ms"))


def guidellm(program: str, tokenizer: str) -> Client:
    """`guidellm run`; prompts come from a file, for it makes synthetic ones while it measures."""

    def command(ask: Ask) -> list[str]:
        prompts = ask.folder / "prompts.jsonl"
        prompts.write_text("".join(_prompt(n, ask.tokens) for n in range(2 * ask.requests)))
        backend = f"target={ask.url},model=timed,request_format=/v1/chat/completions"
        return [program, "run", "--backend", f"kind=openai_http,{backend}",
                "--profile", f"kind=concurrent,streams={ask.concurrency}",
                "--constraint", f"kind=max_requests,count={ask.requests}",
                "--data", f"kind=json_file,path={prompts}",
                "--data-loader", "kind=pytorch,num_workers=1,prefetch_factor=64",
                "--tokenizer", f"kind=hf_auto,model={tokenizer}", "--disable-console",
                "--output", f"kind=json,path={ask.folder / 'out.json'}"]  # fmt: skip

    base, mean = "benchmarks.0.metrics", "successful.mean"
    figures = {
        "output_tokens_per_s": (f"{base}.output_tokens_per_second.{mean}", 1.0),
        "ttft_ms": (f"{base}.time_to_first_token_ms.{mean}", 1.0),
        "tpot_ms": (f"{base}.inter_token_latency_ms.{mean}", 1.0),
        "e2e_ms": (f"{base}.request_latency.{mean}", 1000.0),
    }
    one_worker = {"GUIDELLM__MAX_WORKER_PROCESSES": "1"}
    return Client("guidellm", command, "out.json", figures, one_worker)


def aiperf(program: str, tokenizer: str) -> Client:
    """`aiperf profile`, with one worker: the comparison is on one core."""

    def command(ask: Ask) -> list[str]:
        return [program, "profile", "-m", "timed", "--endpoint-type", "chat", "--streaming",
                "-u", ask.url, "--concurrency", str(ask.concurrency),
                "--request-count", str(ask.requests), "--tokenizer", tokenizer,
                "--isl", "32", "--osl", str(ask.tokens), "--use-server-token-count",
                "--use-legacy-max-tokens", "--no-server-metrics", "--no-gpu-telemetry",
                "--ui", "none", "--output-artifact-dir", str(ask.folder),
                "--export-level", "summary", "--workers-max", "1"]  # fmt: skip

    names = ("output_token_throughput", "time_to_first_token", "inter_token_latency",
             "inter_chunk_latency", "request_latency")  # fmt: skip
    figures = {ours: (f"{theirs}.avg", 1.0) for ours, theirs in zip(NAMES, names, strict=True)}
    return Client("aiperf", command, "profile_export_aiperf.json", figures)


def _serving(e2e: str) -> dict[str, tuple[str, float]]:
    names = ("output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms", e2e)
    return {ours: (theirs, 1.0) for ours, theirs in zip(NAMES, names, strict=True)}


def _prompt(number: int, tokens: int) -> str:
    prompt = {"prompt": f"Tell story number {number}.", "output_tokens_count": tokens}
    return json.dumps(prompt) + "\n"


def peer(name: str, program: str, tokenizer: str) -> Client:
    """The peer of that name (one of `PEERS`)."""
    make = {"vllm": vllm, "sglang": sglang, "guidellm": guidellm, "aiperf": aiperf}
    return make[name](program, tokenizer)
