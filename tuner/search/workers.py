"""Owns several workers on one study: who is present, who is lost, who may use which devices.

A machine that dies cannot say so, and another machine cannot look at its processes: a worker
there counts as lost when the database has not seen it for long. On one's own machine the process
table decides at once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tuner.errors import HostError, StoreError, UsageError
from tuner.store import presence
from tuner.store.database import Store
from tuner.store.owner import Owner, current_owner
from tuner.store.place import place_of
from tuner.store.urls import parse_url

SEEN_EVERY_S = 20.0
LOST_AFTER_S = 600.0
"""Thirty missed sightings: a worker that lost only its network for a while is not given up."""


def require_shared(name: str, storage: str | None) -> None:
    """Refuse several workers on a database that only one tuner may use; raises UsageError.

    Args:
        name: of the study.
        storage: its `storage:`.
    """
    url = parse_url(place_of(name, storage).url)
    if url.is_sqlite:
        raise UsageError(
            f"storage: must be PostgreSQL for several workers, got {url.shown}.",
            "Set storage: postgresql+psycopg://USER@HOST/DATABASE in the study file.",
        )


@contextlib.contextmanager
def present(
    store: Store, study: str, owner: Owner | None = None, *, every_s: float = SEEN_EVERY_S
) -> Iterator[Owner]:
    """Be seen as a worker of the study for the life of the block.

    A database that cannot be reached is tried again at the next sighting; measuring goes on.
    """
    worker = owner or current_owner(os.getpid())
    presence.sight(store, study, worker)
    ended = threading.Event()
    thread = threading.Thread(
        target=_keep_seen,
        args=(store, study, worker, ended, every_s),
        name="presence",
        daemon=True,
    )
    thread.start()
    try:
        yield worker
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(StoreError):  # others will miss this worker all the same
            presence.leave(store, worker)


def _keep_seen(
    store: Store, study: str, worker: Owner, ended: threading.Event, every_s: float
) -> None:
    while not ended.wait(every_s):
        with contextlib.suppress(StoreError):
            presence.sight(store, study, worker)


def lost_owners(store: Store, study: str, *, after_s: float = LOST_AFTER_S) -> set[Owner]:
    """Workers that nobody has seen for long; none on a database of one tuner."""
    if not store.is_shared:
        return set()
    return {each.owner for each in presence.sightings(store, study) if each.age_s > after_s}


# ---- devices ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lease:
    """Devices of this host that one launch may use; `names` in the order of the host."""

    names: tuple[str, ...]

    def visible(self) -> dict[str, str]:
        """The environment that shows a server these GPUs alone."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.names)} if self.names else {}


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of this host and how they are shared out among threads and workers.

    Args:
        store: the shared database.
        study: who asks.
        names: every device in order, as CUDA_VISIBLE_DEVICES takes them (UUIDs or indices).
        owner: this worker.
    """

    store: Store
    study: str
    names: tuple[str, ...]
    owner: Owner = field(default_factory=lambda: current_owner(os.getpid()))

    def free(self) -> tuple[str, ...]:
        """Devices nobody holds; what a dead worker held counts as free."""
        held = presence.leases(self.store, self.owner.host)
        lost = lost_owners(self.store, self.study)
        taken = {name for name, owner in held.items() if not self._is_gone(owner, lost)}
        return tuple(name for name in self.names if name not in taken)

    def _is_gone(self, owner: Owner, lost: set[Owner]) -> bool:
        return owner.liveness() == "dead" or owner in lost

    def try_lease(self, count: int) -> Lease | None:
        """The first `count` free devices, or None while there are not that many."""
        with self.store.asking():
            free = self.free()
            if len(free) < count:
                return None
            presence.take(self.store, self.study, self.owner, free[:count])
            return Lease(free[:count])

    @contextlib.contextmanager
    def lease(self, count: int, *, wait: Callable[[], bool] | None = None) -> Iterator[Lease]:
        """Hold `count` devices for the life of the block.

        Args:
            count: how many devices one server needs.
            wait: called while too few are free; False gives up. None gives up at once.

        Raises:
            UsageError: the host does not have that many.
            HostError: they are held by others and waiting was given up.
        """
        self._require(count)
        lease = self.try_lease(count)
        while lease is None:
            if wait is None or not wait():
                raise self._busy(count)
            lease = self.try_lease(count)
        try:
            yield lease
        finally:
            presence.release(self.store, self.owner, lease.names)

    def _require(self, count: int) -> None:
        if count > len(self.names):
            raise UsageError(
                f"a server must have {count} devices, got a host with {len(self.names)}.",
                "Lower the tensor-parallel size, or name more devices in execution.gpus.",
            )

    def _busy(self, count: int) -> HostError:
        held = presence.leases(self.store, self.owner.host)
        who = ", ".join(sorted({owner.label for owner in held.values()}))
        return HostError(
            f"{count} devices must be free on {self.owner.host}, got {len(self.free())} "
            f"(held by {who or 'nobody'}).",
            "Wait for the other worker, or stop it.",
        )


def split_devices(names: Sequence[str], per_server: int, parallel: int) -> list[tuple[str, ...]]:
    """Which devices each of `parallel` servers gets when all of them start together.

    Raises:
        UsageError: there are not enough.
    """
    if per_server * parallel > len(names):
        raise UsageError(
            f"execution.parallel: must be at most {len(names) // max(1, per_server)} for servers "
            f"of {per_server} devices on a host with {len(names)}, got {parallel}.",
            "Lower execution.parallel or the tensor-parallel size.",
        )
    return [tuple(names[i * per_server : (i + 1) * per_server]) for i in range(parallel)]
