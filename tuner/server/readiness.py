"""Owns when a launched server is ready, and why it never will be.

Ready means all of: the process lives, the port is listened on by its own processes and nobody
else, health answers 200, the expected model is served, one real generation returns text. Health
alone is not believed: servers answer 200 before they can generate, and strangers answer 200 on a
port they hold. Knows no engine: what to request comes as a `ReadyProbe`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from tuner.errors import FailureKind, TrialFailure
from tuner.server import ports
from tuner.server.command import ReadyProbe
from tuner.server.exits import describe_exit, last_telling_line, names_address_in_use
from tuner.server.process import ServerProcess

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_WATCH_S = 0.02
_STRANGER_S = 0.25
_NAMELESS_STRANGER_S = 5.0
_LAST_WORDS_S = 0.5
"""After its last words a server is given so long to finish its sentence, or to end."""
_LEAST_PATIENCE_S = 5.0
"""A health answer that takes a second or two is slow, not absent."""


class FailureLike(Protocol):
    """What an engine says about an exit (engines.base.Failure)."""

    @property
    def kind(self) -> FailureKind: ...  # noqa: D102

    @property
    def reason(self) -> str: ...  # noqa: D102

    @property
    def hint(self) -> str: ...  # noqa: D102

    @property
    def is_draft_fault(self) -> bool: ...  # noqa: D102


Classify = Callable[[int | None, str], FailureLike]


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """Seconds from launch to ready, and the name of the served model ("" when not asked)."""

    seconds: float
    identity: str


def wait_ready(
    process: ServerProcess,
    probe: ReadyProbe,
    *,
    timeout_s: float,
    hard_cap_s: float,
    classify: Classify,
) -> ReadyReport:
    """Wait until the server is ready.

    Args:
        process: the launched server.
        probe: what to ask it.
        timeout_s: patience without progress; a new log line that our own probing did not cause
            starts it again.
        hard_cap_s: patience from launch, progress or not.
        classify: says why a server exited, from its code and the end of its log.

    Raises:
        TrialFailure: the exit as classified; PORT_IN_USE for an address taken; NOT_READY for
            patience that ran out or another model than expected.
    """
    return asyncio.run(_Waiter(process, probe, timeout_s, hard_cap_s, classify).wait())


def exit_failure(
    process: ServerProcess, classify: Classify, patience_s: float = 0.5, *, is_doomed: bool = False
) -> TrialFailure | None:
    """Why the server's process is gone, as a failure; None while it runs.

    A dying server's connections break a moment before its exit code exists: `patience_s` is how
    long to wait for one. `is_doomed`: it is judged as killed even if it still runs then.
    """
    code = process.wait(patience_s)
    if code is None and is_doomed:
        code = -signal.SIGKILL
    if code is None:
        return None
    log = process.log_tail()
    failure = classify(code, log)
    is_unexplained = failure.kind in (FailureKind.LAUNCH_CRASH, FailureKind.UNEXPECTED)
    if is_unexplained and names_address_in_use(log):
        return TrialFailure(
            FailureKind.PORT_IN_USE,
            failure.reason or last_telling_line(log),
            hint="Nothing to do: the same server is launched again with another port.",
        )
    if is_unexplained and process.is_oom_killed:
        return TrialFailure(
            FailureKind.OUT_OF_MEMORY,
            "the kernel killed the server: the host ran out of memory",
            hint="Give the server less host memory (a smaller model, cache or context), or free "
            "some on this machine.",
        )
    reason = failure.reason or describe_exit(code)
    return TrialFailure(
        failure.kind, reason, hint=failure.hint, is_draft_fault=failure.is_draft_fault
    )


def said_last_words(process: ServerProcess, words: Sequence[str]) -> bool:
    """True when the end of a server's log holds any of these texts."""
    tail = process.log_tail() if words else ""
    return any(word in tail for word in words)


async def lasting_stranger(look: Callable[[], int | None]) -> int | None:
    """Who listens on a port that is not theirs, once it is certain that it is not one of ours.

    Two tables of /proc are compared, and they change between two reads: a child just forked and a
    server just dying (its descriptors are gone from /proc before its sockets are closed) look
    like strangers for a moment. Only one who stays is a stranger.

    Args:
        look: one look: the stranger's pid, 0 for one that may not be inspected, None for nobody.
    """
    first_seen = time.monotonic()
    while (stranger := look()) is not None:
        patience = _STRANGER_S if stranger else _NAMELESS_STRANGER_S
        if time.monotonic() - first_seen >= patience:
            return stranger
        await asyncio.sleep(_FIRST_PAUSE_S)
    return None


class _NotYet(Exception):
    """One probe did not pass; the text says which and how."""


class _Waiter:
    def __init__(
        self,
        process: ServerProcess,
        probe: ReadyProbe,
        timeout_s: float,
        hard_cap_s: float,
        classify: Classify,
    ) -> None:
        self._process = process
        self._probe = probe
        self._timeout_s = timeout_s
        self._hard_cap_s = hard_cap_s
        self._classify = classify
        self._state = "nothing listens on its port"
        self._progress = _LogProgress(process, probe)

    async def wait(self) -> ReadyReport:
        patience = max(_LEAST_PATIENCE_S, self._probe.request_timeout_s)
        # trust_env=False: a proxy variable must not put a stranger between us and the server.
        # verify=False: there is no TLS on 127.0.0.1, and reading certificates takes 30 ms.
        async with httpx.AsyncClient(
            base_url=self._process.base_url, timeout=patience, trust_env=False, verify=False
        ) as client:
            asking = asyncio.create_task(self._ask_until_ready(client))
            try:
                while not asking.done():
                    self._require_alive()
                    self._require_patience()
                    await asyncio.wait({asking}, timeout=_WATCH_S)
                identity = asking.result()
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        self._require_alive()
        return ReadyReport(time.monotonic() - self._process.started_monotonic, identity)

    # ---- what ends the wait ----------------------------------------------------------------
    def _require_alive(self) -> None:
        failure = exit_failure(self._process, self._classify, patience_s=0.0)
        if failure is None and self._progress.has_said(self._probe.last_words):
            failure = exit_failure(
                self._process, self._classify, patience_s=_LAST_WORDS_S, is_doomed=True
            )
        if failure is not None:
            raise failure

    def _require_patience(self) -> None:
        waited = time.monotonic() - self._process.started_monotonic
        silent = self._progress.silent_s()
        if waited > self._hard_cap_s:
            raise self._not_ready(f"not ready {self._hard_cap_s:g} s after launch")
        if silent > self._timeout_s:
            raise self._not_ready(f"not ready, and no log line for {self._timeout_s:g} s")

    def _not_ready(self, what: str) -> TrialFailure:
        last = last_telling_line(self._process.log_tail())
        return TrialFailure(
            FailureKind.NOT_READY,
            f"{what}: {self._state}" + (f"; last log line: {last}" if last else ""),
            hint="Read the server log; set engine.launch_timeout higher if it was still loading.",
        )

    # ---- asking ----------------------------------------------------------------------------
    async def _ask_until_ready(self, client: httpx.AsyncClient) -> str:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await self._ask(client)
            except _NotYet as error:
                self._state = str(error)
            except httpx.HTTPError as error:
                self._state = f"{error.request.url.path}: {type(error).__name__} {error}".strip()
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 1.2)

    async def _ask(self, client: httpx.AsyncClient) -> str:
        await self._require_own_port()
        await self._require_health(client)
        identity = await self._require_identity(client)
        generation = self._probe.generation
        answer = await client.post(generation.path, json=generation.body)
        _require_200(answer)
        if not _has_text(generation.has_text, _decode(answer)):
            raise _NotYet(f"{generation.path} answered without generated text")
        await self._require_own_port()
        return identity

    async def _require_own_port(self) -> None:
        if not ports.listening_inodes(self._process.port):
            raise _NotYet("nothing listens on its port")
        stranger = await lasting_stranger(self._stranger)
        if stranger is not None:
            who = f"process {stranger}" if stranger else "a process that may not be inspected"
            raise TrialFailure(
                FailureKind.PORT_IN_USE,
                f"port {self._process.port} is listened on by {who}, not by the launched server",
                hint="Nothing to do: the same server is launched again with another port.",
            )

    def _stranger(self) -> int | None:
        """The pid of a listener that is not ours, 0 where it may not be inspected, or None."""
        port = self._process.port
        ours = {stat.id.pid for stat in self._process.members()}
        if not ports.foreign_listeners(port, ours):
            return None
        owners = sorted(ports.owner_pids(port) - ours)
        return owners[0] if owners else 0

    async def _require_health(self, client: httpx.AsyncClient) -> None:
        older = self._probe.older_health_path
        answer = await client.get(self._probe.health_path)
        if answer.status_code == 404 and older is not None:
            answer = await client.get(older)
        _require_200(answer)

    async def _require_identity(self, client: httpx.AsyncClient) -> str:
        probe = self._probe
        if probe.identity_path is None or probe.identity is None:
            return ""
        name = probe.identity((await self._get(client, probe.identity_path)).text)
        if name is None:
            raise _NotYet(f"{probe.identity_path} names no model")
        if probe.expected_identity and name not in probe.expected_identity:
            expected = " or ".join(probe.expected_identity)
            raise TrialFailure(
                FailureKind.NOT_READY,
                f"{probe.identity_path}: the served model must be {expected}, got {name}",
                hint="Make engine.model and the served model name in engine.args agree.",
            )
        return name

    async def _get(self, client: httpx.AsyncClient, path: str) -> httpx.Response:
        answer = await client.get(path)
        _require_200(answer)
        return answer


def _require_200(answer: httpx.Response) -> None:
    if answer.status_code != 200:
        raise _NotYet(f"{answer.request.url.path} answered {answer.status_code}")


def _decode(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _NotYet(f"{answer.request.url.path} answered no JSON") from error


def _has_text(judge: Callable[[Any], bool], body: Any) -> bool:
    try:
        return judge(body)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        return False  # JSON of another shape, such as {"detail": "Not Found"}


class _LogProgress:
    """Seconds since the log last grew by something else than the record of our own probing."""

    def __init__(self, process: ServerProcess, probe: ReadyProbe) -> None:
        self._process = process
        health = (probe.health_path, probe.older_health_path)
        paths = (*health, probe.identity_path, probe.generation.path)
        self._ours = tuple(path for path in paths if path)
        self._stamp: tuple[int, int] | None = None
        self._seen = ""
        self._since = process.started_monotonic
        self._searched: tuple[int, int] | None = None

    def has_said(self, words: tuple[str, ...]) -> bool:
        """True when the end of the log holds any of these texts; read only when it has grown."""
        stamp = self._read_stamp() if words else None
        if stamp == self._searched:
            return False
        self._searched = stamp
        return said_last_words(self._process, words)

    def silent_s(self) -> float:
        """Seconds of silence."""
        now = time.monotonic()
        stamp = self._read_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            lines = reversed(self._process.log_tail(8192).splitlines())
            is_new = (x for x in lines if x and not any(path in x for path in self._ours))
            last = next(is_new, self._seen)
            if last != self._seen:
                self._seen, self._since = last, now
        return now - self._since

    def _read_stamp(self) -> tuple[int, int] | None:
        try:
            info = self._process.log_path.stat()
        except OSError:
            return None
        return info.st_size, info.st_mtime_ns
