"""Owns the routes of the fake server: what each path answers, and how requests go wrong."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from tuner.server.fake import bodies, speed
from tuner.server.fake.behaviour import Behaviour
from tuner.server.fake.flags import Flags
from tuner.server.fake.generation import Generation
from tuner.server.fake.http import Reply, Request
from tuner.server.fake.ledger import Ledger, Truth, metrics_page, timer_page

_FOREVER_S = 3600.0
DEVICE_TIMER = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
"""Where this is 1 the metrics page tells the seconds of each part of a step."""


class App:
    """One launch of the fake server."""

    def __init__(self, flags: Flags, behaviour: Behaviour, log: Callable[[str], None]) -> None:
        self.behaviour = behaviour
        self.ledger = Ledger(launch=str(time.time_ns()), started_s=time.perf_counter())
        self.end_worker: Callable[[], None] = lambda: None
        self._flags = flags
        self._log = log
        self._drift = speed.launch_factor(behaviour)
        self._chance = random.Random(11)
        self._routes: dict[str, Callable[[Request, Reply], Awaitable[None]]] = {
            "/health": self._health,
            "/health_generate": self._health,
            "/ready": self._health,
            "/v1/models": self._models,
            "/model_info": self._models,
            "/metrics": self._metrics,
            "/props": self._info,
            "/server_info": self._info,
            "/get_server_info": self._info,
            "/truth": self._truth,
            "/flush_cache": self._flush,
            "/reset_prefix_cache": self._flush,
            "/v1/chat/completions": self._generate,
            "/v1/completions": self._generate,
            "/generate": self._generate,
        }

    async def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        route = self._routes.get(request.path)
        if self.behaviour.log_requests:
            self._log(f'INFO: "{request.method} {request.path} HTTP/1.1"')
        if route is None:
            await reply.send_json(404, {"detail": "Not Found"})
        else:
            await route(request, reply)

    @property
    def is_starting(self) -> bool:
        """True while generation is refused after the port is open."""
        return time.perf_counter() - self.ledger.started_s < self.behaviour.starting_s

    @property
    def model(self) -> str:
        """The id under which the model is served."""
        return self.behaviour.served_model or self._flags.model

    # ---- information -----------------------------------------------------------------------
    async def _health(self, request: Request, reply: Reply) -> None:
        if self.behaviour.slow_health_s:
            await asyncio.sleep(self.behaviour.slow_health_s)
        if self.is_starting and not self.behaviour.early_health:
            await reply.send_json(503, {"error": {"message": "Loading model"}})
        else:
            await reply.send_json(200, {"status": "ok"})

    async def _models(self, request: Request, reply: Reply) -> None:
        model = {"id": self.model, "object": "model"}
        await reply.send_json(200, {"object": "list", "data": [model], "model_path": self.model})

    async def _metrics(self, request: Request, reply: Reply) -> None:
        if self.behaviour.metrics_status == 200:
            await reply.send(200, metrics_page(self.ledger, self.behaviour) + self._timers())
        else:
            await reply.send_json(self.behaviour.metrics_status, {"error": "not supported"})

    def _timers(self) -> str:
        if os.environ.get(DEVICE_TIMER) != "1" or not self.ledger.drafts:
            return ""
        parts = speed.step_parts(self.behaviour, self._flags.speculation)
        return timer_page(self.ledger, self.behaviour, *parts)

    async def _info(self, request: Request, reply: Reply) -> None:
        info = {"is_synthetic": True, "model": self.model, **self._flags.effective()}
        await reply.send_json(200, {**info, **self.behaviour.info})

    async def _truth(self, request: Request, reply: Reply) -> None:
        await reply.send_json(200, self.ledger.to_json())

    async def _flush(self, request: Request, reply: Reply) -> None:
        self.ledger.seen_prompts.clear()
        await reply.send(200, "Cache flushed.\n")

    # ---- generation ------------------------------------------------------------------------
    async def _generate(self, request: Request, reply: Reply) -> None:
        if self.is_starting:
            await reply.send_json(503, {"error": {"message": "Loading model"}})
            return
        truth = self._admit(bodies.prompt_of(request.body))
        try:
            await self._misbehave(truth)
            if self._is_rejected():
                truth.outcome = "rejected"
                await reply.send_json(503, {"error": {"message": "Server is overloaded"}})
            elif self.behaviour.not_found:
                truth.outcome = "not found"
                await reply.send_json(200, {"detail": "Not Found"})
            else:
                await self._answer(request, reply, truth)
        finally:
            self.ledger.running -= 1
            truth.end_s = time.perf_counter()

    def _admit(self, prompt: str) -> Truth:
        ledger, behaviour = self.ledger, self.behaviour
        if not ledger.requests and behaviour.log_flood_bytes:
            line = "x" * 99
            for _ in range(behaviour.log_flood_bytes // 100):
                self._log(line)
        ledger.running += 1
        ledger.peak_running = max(ledger.peak_running, ledger.running)
        limit = behaviour.collapse_at_concurrency
        ledger.has_collapsed |= limit is not None and ledger.running >= limit
        number = len(ledger.requests)
        truth = Truth(number, prompt[:200], time.perf_counter(), ledger.running)
        ledger.requests.append(truth)
        return truth

    async def _misbehave(self, truth: Truth) -> None:
        behaviour, running = self.behaviour, self.ledger.running
        count = truth.number + 1
        if _reaches(behaviour.die_at_request, count) or _reaches(
            behaviour.die_at_concurrency, running
        ):
            await self._die()
        if _reaches(behaviour.worker_dies_at_request, count):
            self.end_worker()
            await asyncio.sleep(_FOREVER_S)
        if _reaches(behaviour.silent_after, count) or _reaches(
            behaviour.silent_at_concurrency, running
        ):
            truth.outcome = "silent"
            await asyncio.sleep(_FOREVER_S)

    async def _die(self) -> None:
        if self.behaviour.exit_log:
            self._log(self.behaviour.exit_log)
        await asyncio.sleep(self.behaviour.dying_s)
        if self.behaviour.die_signal:
            os.kill(os.getpid(), signal.Signals[self.behaviour.die_signal])
        os._exit(self.behaviour.die_code)

    def _is_rejected(self) -> bool:
        return self._chance.random() < self.behaviour.reject_share

    def _breaks_after(self) -> int | None:
        if self._chance.random() < self.behaviour.error_share:
            return self.behaviour.error_after_tokens
        return None

    async def _answer(self, request: Request, reply: Reply, truth: Truth) -> None:
        speculation = self._flags.speculation.at(self.ledger.running)
        generation = Generation(self.behaviour, speculation, self.ledger, self._drift)
        answer = generation.prepare(bodies.ask_of(request.body), truth)
        chunks = generation.stream(answer, truth)
        if request.body.get("stream"):
            await self._stream(request, reply, truth, chunks)
            if truth.outcome == "running":
                await self._finish(request, reply, truth, answer.finish_reason)
            return
        text = "".join([chunk async for chunk in chunks])
        truth.outcome = answer.finish_reason
        body = bodies.whole_answer(self.behaviour, request.path, text, truth, truth.outcome)
        await reply.send_json(200, body)

    async def _stream(
        self, request: Request, reply: Reply, truth: Truth, chunks: AsyncIterator[str]
    ) -> None:
        reply.begin_stream()
        broken_at = self._breaks_after()
        so_far = ""
        async for text in chunks:
            so_far += text
            shown = so_far if self.behaviour.cumulative_text else text
            reply.event(bodies.delta_event(request.path, shown))
            if broken_at is not None and truth.output_tokens >= broken_at:
                truth.outcome = "broken"
                reply.event('{"error": {"message": "internal error", "code": 500}}')
                await reply.end_stream()
                return
            if reply.is_closed:
                truth.outcome = "cancelled"
                return
            await reply.flush()

    async def _finish(self, request: Request, reply: Reply, truth: Truth, reason: str) -> None:
        for event in bodies.last_events(self.behaviour, request, truth, reason):
            reply.event(event)
        reply.event("[DONE]")
        truth.outcome = reason
        await reply.end_stream()


def _reaches(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit
