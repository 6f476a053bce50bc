"""Owns the event loop that drives requests over sockets and notices when they stop moving.

One thread, one poller. What arrived carries the kernel's time of its arrival, or, where there is
none, the time of the turn that found it: parsing one stream never delays another's clock.
It knows bytes, times and patience; what a prompt or an answer is belongs to the exchange.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tuner.config.workload import TimeoutsConfig
from tuner.errors import FailureKind, TrialFailure
from tuner.measure.connection import READ, WRITE, Address, Connection
from tuner.measure.exchange import CountTokens, Exchange, Job
from tuner.measure.http1 import MalformedAnswer
from tuner.measure.poller import Poller
from tuner.measure.records import RequestRecord
from tuner.measure.wire import Wire

_TURN_S = 0.05
_ALIVE_EVERY_S = 0.25
_LINGER_S = 0.25
_GRACE_S = 1.0
_RECENT = 0.1

Alive = Callable[[], str | None]
OnDone = Callable[[RequestRecord], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """Closed loop: at most `in_flight` requests at once. Open loop: `due_s` after the start."""

    in_flight: int = 1
    due_s: tuple[float, ...] | None = None


@dataclass(slots=True)
class Lateness:
    """How late the client itself was: sum of seconds over events, and their number."""

    total_s: float = 0.0
    events: int = 0

    def add(self, seconds: float) -> None:
        """Note one event that came `seconds` too late."""
        self.total_s += max(0.0, seconds)
        self.events += 1

    @property
    def mean_s(self) -> float:
        """Mean lateness in seconds, 0 without events."""
        return self.total_s / self.events if self.events else 0.0


@dataclass(slots=True, eq=False)
class Flight:
    """An exchange on its connection."""

    exchange: Exchange
    connection: Connection


@dataclass(frozen=True, slots=True)
class Server:
    """What the driver needs to know of the server: address, route, patience, signs of life."""

    address: Address
    wire: Wire
    patience: TimeoutsConfig
    alive: Alive
    count_tokens: CountTokens | None = None


@dataclass(slots=True)
class Driver:
    """Drives one list of jobs. `records` grow as requests end, also when the run is cut short.

    Of `turns_s` seconds in the loop, `waited_s` were spent waiting for the server. Garbage is not
    collected meanwhile: a collection stops the client for milliseconds.
    """

    server: Server
    on_done: OnDone
    clock: Callable[[], float] = time.perf_counter
    records: list[RequestRecord] = field(default_factory=list)
    lateness: Lateness = field(default_factory=Lateness)
    peak_in_flight: int = 0
    start_s: float = 0.0
    turns_s: float = 0.0
    _poller: Poller = field(init=False)
    _flights: dict[int, Flight] = field(default_factory=dict)
    _idle: list[Connection] = field(default_factory=list)
    _waiting: deque[tuple[float, Job]] = field(default_factory=deque)
    _freed: deque[float] = field(default_factory=deque)
    _alive_s: float = 0.0
    _watched_s: float = 0.0
    _request_s: float = 0.0
    _is_suspect: bool = False

    def __post_init__(self) -> None:
        self._poller = Poller(self.clock)

    @property
    def waited_s(self) -> float:
        """Seconds of the loop spent waiting for the server."""
        return self._poller.waited_s

    def run(self, jobs: Sequence[Job], pace: Pace) -> None:
        """Send all jobs and receive all answers. Raises TrialFailure(STALLED or DIED)."""
        self.start_s = self._alive_s = self.clock()
        self._schedule(jobs, pace)
        with self._closing():
            while self._waiting or self._flights:
                self._send_due(pace)
                self._receive(self._wait_s(pace))
                self._watch()
            self.turns_s = self.clock() - self.start_s
            self._look_closer()

    # ---- sending ---------------------------------------------------------------------------
    def _schedule(self, jobs: Sequence[Job], pace: Pace) -> None:
        due = pace.due_s or (0.0,) * len(jobs)
        self._waiting.extend((self.start_s + at, job) for at, job in zip(due, jobs, strict=True))
        self._freed.extend([self.start_s] * pace.in_flight)

    def _send_due(self, pace: Pace) -> None:
        while self._waiting:
            due_s, job = self._waiting[0]
            if pace.due_s is None:
                if not self._freed:
                    return
                due_s = self._freed.popleft()
            elif due_s > self.clock():
                return
            self._waiting.popleft()
            self._send(job, due_s)

    def _send(self, job: Job, due_s: float) -> None:
        now = self.clock()
        self.lateness.add(now - due_s)
        exchange = Exchange(job, self.server.wire, due_s, now)
        try:
            connection = self._connection()
            exchange.sent_s = self.clock()
            connection.send(job.payload)
        except OSError as error:
            self._finish(exchange, f"the request could not be sent: {error}")
            return
        self._flights[connection.fd] = Flight(exchange, connection)
        self.peak_in_flight = max(self.peak_in_flight, len(self._flights))

    def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return Connection(self.server.address, self._poller.epoll)

    # ---- receiving -------------------------------------------------------------------------
    def _wait_s(self, pace: Pace) -> float:
        if not self._waiting or pace.due_s is None:
            return _TURN_S
        return min(_TURN_S, max(0.0, self._waiting[0][0] - self.clock()))

    def _receive(self, wait_s: float) -> None:
        poller = self._poller
        asked = self.clock()
        ready = poller.wait(wait_s, is_exact=wait_s < _TURN_S)
        if not ready:
            self.lateness.add(poller.now - asked - wait_s)
        for fd, mask in ready:
            self._serve(self._flights[fd], mask)

    def _serve(self, flight: Flight, mask: int) -> None:
        connection, poller = flight.connection, self._poller
        try:
            if mask != READ:
                if not connection.is_connected:
                    flight.exchange.sent_s = self.clock()
                connection.on_event()
                if mask == WRITE:
                    return
            data, stamp = connection.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(flight, f"the connection broke: {error}", poller.now)
            return
        at = poller.arrived_s(stamp) if stamp else poller.now
        try:
            if data and not flight.exchange.take(data, at):
                return
        except MalformedAnswer as error:
            self._land(flight, str(error))
            return
        self._ended(flight, at, is_closed=not data)

    def _ended(self, flight: Flight, at: float, *, is_closed: bool) -> None:
        exchange = flight.exchange
        if is_closed and not exchange.has_answer_bytes:
            self._broken(flight, "the connection was closed without an answer", at)
            return
        if is_closed:
            exchange.end_of_input(at)
        self._land(flight, at=at)

    def _broken(self, flight: Flight, reason: str, now: float) -> None:
        """A broken connection; a reused one is no sign of trouble: the request is sent again."""
        exchange = flight.exchange
        if flight.connection.is_reused and not exchange.has_answer_bytes:
            self._drop(flight)
            self._resend(exchange)
            return
        self._is_suspect = True
        self._land(flight, reason, now)

    def _resend(self, exchange: Exchange) -> None:
        try:
            connection = Connection(self.server.address, self._poller.epoll)
            connection.send(exchange.job.payload)
        except OSError as error:
            self._finish(exchange, f"the request could not be sent: {error}")
            return
        self._flights[connection.fd] = Flight(exchange, connection)

    def _drop(self, flight: Flight) -> None:
        del self._flights[flight.connection.fd]
        flight.connection.close()

    def _land(self, flight: Flight, cut: str = "", at: float | None = None) -> None:
        if flight.exchange.is_complete and flight.exchange.keeps_alive and not cut:
            del self._flights[flight.connection.fd]
            flight.connection.rest()
            self._idle.append(flight.connection)
        else:
            self._drop(flight)
        self._finish(flight.exchange, cut, at)

    def _finish(self, exchange: Exchange, cut: str, at: float | None = None) -> None:
        now = self.clock() if at is None else at
        self._is_suspect = self._is_suspect or not exchange.has_answer_bytes
        record = exchange.record(now, cut, self.server.count_tokens)
        self.records.append(record)
        self._freed.append(now)
        self._request_s += _RECENT * (now - exchange.sent_s - self._request_s)
        self.on_done(record)

    # ---- watching --------------------------------------------------------------------------
    def _watch(self) -> None:
        now = self.clock()
        if now - self._watched_s < _TURN_S:
            return
        self._watched_s = now
        self._poller.pace(self._request_s)
        if now - self._alive_s >= (_TURN_S if self._is_suspect else _ALIVE_EVERY_S):
            self._alive_s = now
            self._check_alive()
        patience = self.server.patience
        if now - self.start_s > patience.block:
            raise _stalled("the block", patience.block)
        for flight in tuple(self._flights.values()):
            self._check_patience(flight, now)

    def _check_alive(self) -> None:
        reason = self.server.alive()
        if reason is not None:
            raise TrialFailure(FailureKind.DIED, reason)

    def _check_patience(self, flight: Flight, now: float) -> None:
        exchange, patience = flight.exchange, self.server.patience
        if exchange.done_s is not None:
            if now - exchange.done_s > _LINGER_S:
                self._land(flight)
        elif now - exchange.sent_s > patience.request:
            raise _stalled("a request", patience.request)
        elif exchange.last_event_s is None or not exchange.has_text:
            if now - exchange.sent_s > patience.first_token:
                raise _stalled("the first token of a request", patience.first_token)
        elif now - exchange.last_event_s > patience.between_chunks:
            raise _stalled("the next chunk of an answer", patience.between_chunks)

    def _look_closer(self) -> None:
        """Connections broke: give a dying server a moment to be seen as dead."""
        deadline = self.clock() + _GRACE_S
        while self._is_suspect and self.clock() < deadline:
            self._check_alive()
            time.sleep(_TURN_S)

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        cut, collects = "given up", gc.isenabled()
        gc.disable()
        try:
            yield
        except TrialFailure as failure:
            cut = failure.reason
            raise
        finally:
            for flight in tuple(self._flights.values()):
                flight.connection.close()
                self.records.append(flight.exchange.record(self.clock(), cut))
            self._flights.clear()
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            self._poller.close()
            if collects:
                gc.enable()


def _stalled(what: str, patience_s: float) -> TrialFailure:
    return TrialFailure(
        FailureKind.STALLED,
        f"{what} took longer than {patience_s:g} s",
        hint="Raise workload.timeouts if the server is merely slow.",
    )
