"""Long folds of a partition come one after another; the lease decides nothing but when."""

from __future__ import annotations

import threading

import pytest

from lethe.consumers.commits.recovery import fold, fold_lease
from lethe.consumers.commits.recovery.fold_lease import FoldLease
from tests.support.events import settle
from tests.support.invariants import check_model
from tests.support.platform import Platform
from tests.support.stores import backup, restore

pytestmark = pytest.mark.redis


def lease(platform: Platform) -> FoldLease:
    return FoldLease(platform.raw(), platform.load().keys.partition, lambda: None)


def test_the_second_waits_until_the_first_gives_up(memory: Platform) -> None:
    memory.register("m")
    first, second = lease(memory), lease(memory)
    assert first.take() is False
    assert first.take() is False  # it is the first one's already
    waited: list[bool] = []
    waiting = threading.Thread(target=lambda: waited.append(second.take()))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    first.give_up()
    waiting.join(10.0)
    assert waited == [True]
    first.give_up()  # not the second one's
    assert memory.raw().exists(memory.load().keys.partition.fold_lease) == 1
    second.give_up()
    assert memory.raw().exists(memory.load().keys.partition.fold_lease) == 0


def test_the_lease_of_a_worker_that_died_expires(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_lease, "SECONDS", 0.3)
    memory.register("m")
    lease(memory).take()
    assert lease(memory).take() is True


def test_a_long_fold_waits_for_another_ones_lease_and_then_goes_on(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "_LONG_FOLD", 3)
    memory.register("m", budget=10.0)
    early = backup(memory)
    for row in range(5):
        memory.delete("m", row)
    head = memory.load().head
    restore(memory, early)
    key = memory.load().keys.partition.fold_lease
    memory.raw().set(key, "another worker", px=300)
    settle(memory)
    assert memory.load().head == head
    assert memory.raw().exists(key) == 0
    check_model(memory)
