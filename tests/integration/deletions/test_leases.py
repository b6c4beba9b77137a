"""Workers announce themselves: who is alive and reads what, and that nobody does."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.workers import leases
from lethe.consumers.workers.drained import PartitionLag, lags
from lethe.consumers.workers.leases import Announcement, Lease, find_unattended, ranges, read_leases
from lethe.engine.store.layout.keys import WORKERS
from tests.support.platform import Platform

pytestmark = pytest.mark.redis


@pytest.fixture
def platform(memory: Platform) -> Platform:
    memory.register()
    return memory


def waiting(platform: Platform) -> list[PartitionLag]:
    names = (topics.DELETIONS, topics.ROW_CHANGES)
    return [lag for name in names for lag in lags(platform.reader, platform.store, name)]


def test_a_worker_says_who_it_is_and_what_it_reads_until_it_leaves(platform: Platform) -> None:
    consumer = platform.log.consumer("group", [topics.DELETIONS])
    announce = Announcement(consumer, platform.new_store(), "deletions")
    while not consumer.assignment():
        announce()
        consumer.poll(0.01, 1)
    announce()

    [lease] = read_leases(platform.store)
    assert (lease.role, lease.partitions) == ("deletions", {topics.DELETIONS: (0, 1)})
    assert lease.reads == f"{topics.DELETIONS} 0-1"
    assert lease.pid > 0
    assert lease.version
    consumer.close()
    announce.end()
    assert read_leases(platform.store) == []
    assert platform.raw().smembers(WORKERS) == set()


def test_a_worker_that_was_killed_is_gone_after_its_lease(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.05)
    killed = platform.log.consumer("group", [topics.REFRESH_JOBS])
    Announcement(killed, platform.new_store(), "refresh")()
    assert [one.role for one in read_leases(platform.store)] == ["refresh"]
    time.sleep(0.1)

    assert read_leases(platform.store) == []
    assert platform.raw().scard(WORKERS) == 1
    Announcement(killed, platform.new_store(), "refresh")  # the next one forgets its name
    assert platform.raw().scard(WORKERS) == 0


def test_requests_that_no_living_worker_reads_are_named(platform: Platform) -> None:
    assert find_unattended(waiting(platform), []) == []
    platform.send("m", "row-1")
    [partition] = [lag.partition.index for lag in waiting(platform) if lag.waiting]

    [line] = find_unattended(waiting(platform), [])
    assert line == (
        f"no living worker for deletions, and records wait: 1 in {topics.DELETIONS} {partition}; "
        "start `lethe work`"
    )
    reads = Lease(
        role="deletions", host="a", pid=1, version="1", since=datetime.now(UTC),
        partitions={topics.DELETIONS: (partition,)},
    )  # fmt: skip
    elsewhere = reads.model_copy(update={"partitions": {topics.DELETIONS: (1 - partition,)}})
    assert find_unattended(waiting(platform), [reads]) == []
    assert find_unattended(waiting(platform), [elsewhere]) == [line]


def test_a_store_that_takes_no_lease_holds_up_no_work(platform: Platform) -> None:
    """Its user may lack the right, and the work must go on."""
    platform.raw().set(WORKERS, "not a set")
    with closing(platform.deletion_worker(role="deletions")) as worker:
        for _ in range(3):
            worker.run_once(0.01)


def test_numbers_are_written_in_short() -> None:
    assert ranges([]) == ""
    assert ranges([3]) == "3"
    assert ranges([9, 0, 1, 2, 7, 3]) == "0-3,7,9"
