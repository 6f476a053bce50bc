"""Owns measuring one running server: warm-up, blocks, and reading its pages.

It knows prompts, load points and the wire; not which engine answers, nor what a number means.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from tuner.measure.connection import Address
from tuner.measure.driver import Alive, Driver, Pace, Server
from tuner.measure.exchange import CountTokens, Job
from tuner.measure.load import arrivals, stable_seed
from tuner.measure.prompts import Workload
from tuner.measure.records import Block, LoadPoint, Prompt, RequestRecord, Snapshot
from tuner.measure.wire import Wire

OnProgress = Callable[[int, int, int], None]

_PROGRESS_EVERY_S = 0.2
_PAGE_TIMEOUT_S = 10.0
_WARM_UP_STEADY = 0.15
_BOUND_BUSY_SHARE = 0.9
_BOUND_BUSY_S = 0.1
_BOUND_LAG_SHARE = 0.05
_BOUND_LAG_S = 0.02


@dataclass(slots=True)
class _Progress:
    """Calls back at most a few times per second, and at the end."""

    total: int
    call: OnProgress | None
    done: int = 0
    errors: int = 0
    last_s: float = 0.0

    def __call__(self, record: RequestRecord) -> None:
        self.done += 1
        self.errors += not record.ok
        now = time.monotonic()
        if self.call and (now - self.last_s >= _PROGRESS_EVERY_S or self.done == self.total):
            self.last_s = now
            self.call(self.done, self.total, self.errors)


class LoadClient:
    """Measures the server at `base_url`. Use it as a context manager.

    Args:
        alive: returns a reason once the server is gone, None while it lives; asked several
            times per second while requests are open.
        count_tokens: counts the tokens of an answer whose server reports no usage; without it
            such an answer is an error, never a guess.

    Attributes:
        partial_block: what a block had measured when it was cut short by a TrialFailure or an
            interruption: to be stored, never to be scored.
    """

    def __init__(
        self,
        base_url: str,
        wire: Wire,
        workload: Workload,
        *,
        alive: Alive,
        count_tokens: CountTokens | None = None,
    ) -> None:
        address = Address.parse(base_url)
        self.partial_block: Block | None = None
        self._workload = workload
        self._server = Server(address, wire, workload.timeouts, alive, count_tokens)
        self._pages = httpx.Client(base_url=base_url, timeout=_PAGE_TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pages.close()

    @property
    def cache_mode(self) -> str:
        """How the prompt cache is kept from helping: `off`, `unique`, `flush` or `keep`."""
        if self._workload.cache != "auto":
            return self._workload.cache
        return "off" if self._server.wire.disables_cache else "unique"

    # ---- measuring -------------------------------------------------------------------------
    def warm_up(self, prompts: Sequence[Prompt], load: LoadPoint) -> float:
        """Send requests of the measured shape until their speed is steady; returns seconds.

        With `workload.warm_up` set, exactly so many requests; otherwise rounds of as many as
        the load's concurrency (at least 2) until two rounds agree within 15 %: at most three
        rounds of up to 4 requests, two of up to 16, one of more.
        Raises TrialFailure(STALLED or DIED).
        """
        start = time.perf_counter()
        wanted = self._workload.warm_up
        size = max(2, load.concurrency or 1) if wanted is None else wanted
        pace_before: float | None = None
        most = 3 if size <= 4 else 2 if size <= 16 else 1
        for turn in range(most if wanted is None else 1):
            records = self._warm_up_round(_cycle(prompts, size, turn * size), load, turn)
            pace = _seconds_per_token(records)
            if pace and pace_before and abs(pace / pace_before - 1) <= _WARM_UP_STEADY:
                break
            pace_before = pace
        return time.perf_counter() - start

    def run_block(
        self,
        index: int,
        prompts: Sequence[Prompt],
        load: LoadPoint,
        *,
        on_progress: OnProgress | None = None,
    ) -> Block:
        """Measure one block of prompts at one load point.

        A block smaller than the concurrency is repeated until the load is reached, and says so.
        Raises TrialFailure(STALLED or DIED) promptly; `partial_block` then holds what was seen.
        """
        self.partial_block = None
        asked = _cycle(prompts, max(len(prompts), load.concurrency or 1))
        jobs = self._jobs(asked, f"{load.label} {index}")
        driver = Driver(self._server, _Progress(len(jobs), on_progress))
        cpu = time.thread_time()
        try:
            driver.run(jobs, self._pace(index, load, len(jobs)))
        except BaseException:
            self.partial_block = _block(index, load, driver, time.thread_time() - cpu, ())
            raise
        repeated = len(asked) > len(prompts)
        notes = (f"{len(prompts)} prompts were repeated to reach {load.label}",) * repeated
        return _block(index, load, driver, time.thread_time() - cpu, notes)

    def _warm_up_round(
        self, prompts: Sequence[Prompt], load: LoadPoint, turn: int
    ) -> list[RequestRecord]:
        if not prompts:
            return []
        driver = Driver(self._server, _Progress(len(prompts), None))
        jobs = self._jobs(prompts, f"warm-up {load.label} {turn}")
        driver.run(jobs, Pace(in_flight=load.concurrency or len(jobs)))
        return driver.records

    def _pace(self, index: int, load: LoadPoint, count: int) -> Pace:
        due = arrivals(
            load,
            count,
            seed=stable_seed(self._workload.seed, load.label, index),
            first=index * count,
            trace=self._workload.traces.get(load.trace or "", ()),
        )
        return Pace(load.concurrency or 1, due)

    def _jobs(self, prompts: Sequence[Prompt], occasion: str) -> list[Job]:
        asked = prompts
        if self.cache_mode == "unique":
            asked = [self._workload.fresh(p, f"{occasion} {n}") for n, p in enumerate(prompts)]
        return [
            Job(prompt, self._payload(sent)) for prompt, sent in zip(prompts, asked, strict=True)
        ]

    def _payload(self, prompt: Prompt) -> bytes:
        address, wire = self._server.address, self._server.wire
        body = json.dumps(wire.body(prompt, self._workload.sampling)).encode()
        head = {
            "Host": f"{address.host}:{address.port}",
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Content-Length": str(len(body)),
            **wire.headers,
        }
        lines = [f"POST {address.prefix}{wire.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in head.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    # ---- pages -----------------------------------------------------------------------------
    def snapshot(self, paths: Sequence[str]) -> Snapshot:
        """Texts of the server's pages now; pages that do not answer 200 are left out."""
        texts = {path: self.get_text(path) for path in paths}
        return Snapshot(
            time.perf_counter(), {path: text for path, text in texts.items() if text is not None}
        )

    def get_text(self, path: str) -> str | None:
        """The text of a page; None when it answers anything but 200, or not at all."""
        try:
            answer = self._pages.get(path)
        except httpx.HTTPError:
            return None
        return answer.text if answer.status_code == 200 else None

    def post(self, path: str) -> int:
        """POST without a body; returns the status, 0 when there was no answer."""
        try:
            return self._pages.post(path).status_code
        except httpx.HTTPError:
            return 0


def _cycle(prompts: Sequence[Prompt], count: int, start: int = 0) -> list[Prompt]:
    return [prompts[(start + place) % len(prompts)] for place in range(count)] if prompts else []


def _seconds_per_token(records: Sequence[RequestRecord]) -> float | None:
    paces = [(r.end_s - r.sent_s) / r.output_tokens for r in records if r.ok and r.output_tokens]
    return statistics.median(paces) if paces else None


def _block(
    index: int, load: LoadPoint, driver: Driver, cpu_s: float, notes: tuple[str, ...]
) -> Block:
    end_s = max((record.end_s for record in driver.records), default=driver.start_s)
    bound = _client_bound(driver)
    return Block(
        index=index,
        load=load,
        start_s=driver.start_s,
        end_s=end_s,
        records=tuple(sorted(driver.records, key=lambda record: record.sent_s)),
        client_cpu_s=cpu_s,
        notes=(*notes, bound) if bound else notes,
        client_lag_s=driver.lateness.mean_s,
        peak_in_flight=driver.peak_in_flight,
        is_client_bound=bool(bound),
    )


def _client_bound(driver: Driver) -> str:
    """Why the client was the bottleneck of a block; "" when it was not."""
    busy_s = driver.turns_s - driver.waited_s
    if busy_s > max(_BOUND_BUSY_S, _BOUND_BUSY_SHARE * driver.turns_s):
        return f"client bound: the client was busy {busy_s / driver.turns_s:.0%} of the time"
    times = [record.end_s - record.sent_s for record in driver.records if record.ok]
    lag = driver.lateness.mean_s
    if times and lag > max(_BOUND_LAG_S, _BOUND_LAG_SHARE * statistics.fmean(times)):
        return f"client bound: the client was {1000 * lag:.1f} ms late on average"
    return ""
