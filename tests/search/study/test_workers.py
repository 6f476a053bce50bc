"""Several workers: seen and missed, each with its devices; a dead one gives everything back."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tuner.errors import HostError, UsageError
from tuner.search.sampling import make_suggester
from tuner.search.study import open_study
from tuner.search.workers import (
    Devices,
    lost_owners,
    present,
    require_shared,
    split_devices,
)
from tuner.store import presence
from tuner.store.database import Store, open_store
from tuner.store.owner import Owner, current_owner
from tuner.store.place import place_of

GPUS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/study.db", create=True) as opened:
        yield opened


@pytest.fixture
def me() -> Owner:
    return current_owner(os.getpid())


def dead(owner: Owner) -> Owner:
    return replace(owner, proc_start="1")


# ---- presence ---------------------------------------------------------------------------------


def test_a_worker_is_seen_while_it_works_and_gone_afterwards(store: Store, me: Owner) -> None:
    with present(store, "demo", every_s=0.01) as worker:
        assert worker == me
        first = presence.sightings(store, "demo")
        assert [sighting.owner for sighting in first] == [me]
        assert first[0].age_s < 5
        assert presence.sightings(store, "other") == []
    assert presence.sightings(store, "demo") == []


def test_only_a_shared_database_misses_workers(store: Store, me: Owner) -> None:
    presence.sight(store, "demo", me)
    assert lost_owners(store, "demo", after_s=-1) == set()
    store.is_shared = True
    assert lost_owners(store, "demo", after_s=-1) == {me}
    assert lost_owners(store, "demo") == set()


def test_several_workers_need_a_shared_database() -> None:
    with pytest.raises(UsageError, match=r"must be PostgreSQL.*results/demo/study.db") as caught:
        require_shared("demo", None)
    assert "postgresql+psycopg" in caught.value.hint
    require_shared("demo", "postgresql+psycopg://tuner@db/tuner")


# ---- devices ----------------------------------------------------------------------------------


def test_devices_are_leased_in_order_and_given_back(store: Store) -> None:
    devices = Devices(store, "demo", GPUS)
    with devices.lease(2) as one, devices.lease(1) as two:
        assert (one.names, two.names) == (("GPU-a", "GPU-b"), ("GPU-c",))
        assert one.visible() == {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
        assert devices.free() == ("GPU-d",)
        assert devices.try_lease(2) is None
    assert devices.free() == GPUS


def test_too_few_free_devices_are_waited_for_or_refused(store: Store) -> None:
    devices = Devices(store, "demo", GPUS)
    held = devices.try_lease(3)
    assert held is not None
    said = r"2 devices must be free .* got 1 \(held by pid"
    with pytest.raises(HostError, match=said), devices.lease(2):
        pass
    waits: list[int] = []

    def wait() -> bool:
        waits.append(1)
        if len(waits) == 2:
            presence.release(store, devices.owner, held.names)
        return True

    with devices.lease(2, wait=wait) as lease:
        assert lease.names == ("GPU-a", "GPU-b")
    assert len(waits) == 2


def test_a_host_without_so_many_devices_is_told(store: Store) -> None:
    devices = Devices(store, "demo", GPUS)
    with pytest.raises(UsageError, match="8 devices, got a host with 4"), devices.lease(8):
        pass


def test_the_devices_of_a_dead_worker_are_free(store: Store, me: Owner) -> None:
    presence.take(store, "demo", dead(me), GPUS[:2])
    presence.take(store, "demo", replace(me, pid_namespace="other"), GPUS[2:3])
    devices = Devices(store, "demo", GPUS)
    assert devices.free() == ("GPU-a", "GPU-b", "GPU-d")
    with devices.lease(3) as lease:
        assert lease.names == ("GPU-a", "GPU-b", "GPU-d")
        assert set(presence.leases(store, me.host).values()) == {
            me, replace(me, pid_namespace="other")
        }  # fmt: skip


def test_no_devices_are_a_lease_too(store: Store) -> None:
    with Devices(store, "demo", ()).lease(0) as lease:
        assert lease.visible() == {}


def test_releasing_takes_nothing_from_others(store: Store, me: Owner) -> None:
    presence.take(store, "demo", replace(me, pid_namespace="other"), GPUS)
    presence.release(store, me, GPUS)
    assert len(presence.leases(store, me.host)) == 4
    presence.leave(store, replace(me, pid_namespace="other"))
    assert presence.leases(store, me.host) == {}


def test_devices_are_split_among_servers_that_start_together() -> None:
    assert split_devices(GPUS, 2, 2) == [("GPU-a", "GPU-b"), ("GPU-c", "GPU-d")]
    assert split_devices((), 0, 3) == [(), (), ()]
    with pytest.raises(UsageError, match="at most 2 for servers of 2 devices"):
        split_devices(GPUS, 2, 3)


# ---- on PostgreSQL ----------------------------------------------------------------------------


@contextmanager
def joined(workshop: Any, url: str) -> Iterator[Any]:
    place = place_of("demo", url, workshop.folder)
    lock = place.results.lock(shared=True)
    with lock, open_store(url, create=True) as store, present(store, "demo"):
        yield open_study(workshop.setup(steps=2), store, place.results)


def test_workers_share_the_servers_and_a_killed_one_loses_nothing(
    workshop: Any, postgres_url: str
) -> None:
    with joined(workshop, postgres_url) as opened:
        workshop.run(opened, limit=1)

    def work() -> None:
        with joined(workshop, postgres_url) as opened:
            workshop.run(opened)

    def die() -> None:
        with joined(workshop, postgres_url) as opened:
            ground = workshop.ground(opened.setup)
            assert opened.ask(ground, make_suggester(ground)) is not None
            os.kill(os.getpid(), signal.SIGKILL)

    assert workshop.in_child(die) == -signal.SIGKILL
    children = [workshop.fork(work) for _ in range(3)]
    assert [workshop.status_of(pid) for pid in children] == [0, 0, 0]
    with joined(workshop, postgres_url) as opened:
        records = opened.records()
        measured = Counter(r.digest for r in records if r.state == "complete")
        assert set(measured.values()) == {1}
        assert len(measured) == len(workshop.ground(opened.setup).survey.servers)
        assert [r.failure for r in records if r.state == "failed"] == ["interrupted"]
        trials = opened.study.get_trials()
        assert (
            [t.number for t in trials] == list(range(len(trials))) == [r.number for r in records]
        )
        retried = [t for t in trials if t.user_attrs.get("retry_of") == 1]
        assert len(retried) == 1


def test_a_worker_lost_on_another_machine_is_missed_after_a_while(
    workshop: Any, postgres_url: str, me: Owner
) -> None:
    elsewhere = replace(me, host="elsewhere", boot_id="other")
    with joined(workshop, postgres_url) as opened:
        workshop.run(opened, limit=1)
        ground = workshop.ground(opened.setup)
        asked = opened.ask(ground, make_suggester(ground))
        trial = opened.study.get_trials()[asked.number]
        opened.study._storage.set_trial_user_attr(trial._trial_id, "owner", elsewhere.to_json())
        presence.sight(opened.store, "demo", elsewhere)
    with joined(workshop, postgres_url) as opened:
        assert "still run by" in opened.notes[0]
        with opened.store.engine.begin() as connection:
            connection.execute(text("UPDATE tuner_workers SET seen_s = seen_s - 601"))
        again = opened.ask(ground, make_suggester(ground))
        assert (again.retry_of, again.params) == (asked.number, asked.params)
