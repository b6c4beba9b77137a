"""A halted model holds up the erasures of its own subjects alone; they say what they await."""

from __future__ import annotations

from contextlib import closing

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.log.base import Message
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.store.layout.keys import ModelKeys, commit_partition
from tests.support import erasures
from tests.support.commit_records import record_of
from tests.support.erasures import erase, outcomes, rows_of
from tests.support.platform import Platform
from tests.support.stores import backup, neighbour_of, restore
from tests.support.tables import Table

HALTED = "churn"
OTHER = neighbour_of(HALTED)


def halt(platform: Platform) -> None:
    """Let a record continue the model that no key of ours opens."""
    head = platform.load(HALTED).head
    forged = record_of(model_id=HALTED, commit=head.commit + 1, prev=head.digest)
    place = commit_partition(HALTED)
    platform.producer.publish([Message(topics.COMMITS, HALTED.encode(), forged, partition=place)])
    platform.send(HALTED, "row-119")  # the next append meets it
    turns(platform)
    assert HALTED in platform.pair[0]._halts


def turns(platform: Platform, worker: ErasureWorker | None = None) -> None:
    for _ in range(6):
        platform.turn(platform.pair[0])
        if worker is not None:
            erasures.turn(worker)


@pytest.mark.parametrize("changes", [False, True])
def test_an_erasure_in_another_namespace_is_complete(memory: Platform, changes: bool) -> None:
    """Also where a row change of the halted model keeps the watermark of all changes back."""
    erasures.register(memory, HALTED, namespace="crm")
    erasures.register(memory, OTHER)
    memory.drain()
    halt(memory)
    if changes:
        for model, name in ((HALTED, "new-1"), (OTHER, "new-2")):
            row = {**Table(memory, model).row(name), "subject": "subject-2"}
            memory.send_change(model, "insert", row)
        turns(memory)
    erase(memory, "subject-1", "e-1")
    with closing(erasures.erasure_worker(memory)) as worker:
        turns(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert receipt.complete
    assert outcomes(receipt) == {OTHER: ("APPLIED", 3)}


def test_of_the_same_namespace_the_receipt_says_who_has_answered_and_who_is_awaited(
    memory: Platform,
) -> None:
    erasures.register(memory, HALTED)
    erasures.register(memory, OTHER)
    memory.drain()
    halt(memory)
    erase(memory, "nobody", "e-1")
    erase(memory, "subject-1", "e-2")
    with closing(erasures.erasure_worker(memory)) as worker:
        turns(memory, worker)
        assert erasures.finals(memory) == {}
        newest = {one.erasure_id: one for one, _ in erasures.published(memory)}
        assert newest["e-1"].awaited == (HALTED,)
        assert newest["e-2"].awaited == (HALTED,)
        assert outcomes(newest["e-2"])[OTHER] == ("APPLIED", 3)
        assert not set(rows_of(1)) & erasures.live_rows(memory, OTHER)
        # A person goes on without what the record said, and nothing is left waiting
        erasures.register(memory, HALTED, replace_model=True, accept_forgotten=True)
        memory.pair[0].recover()
        erasures.drain(memory, worker)
    finals = erasures.finals(memory)
    assert finals["e-1"].complete
    assert finals["e-2"].complete
    assert not set(rows_of(1)) & erasures.live_rows(memory, HALTED)
    assert memory.store.cursors.read(ModelKeys(HALTED).partition).behind == {}


def test_an_erasure_waits_for_a_model_whose_registration_no_key_opens(memory: Platform) -> None:
    """The store went back to before it, and a worker with another secret was the first to read."""
    erasures.register(memory, OTHER)
    memory.drain()
    before = backup(memory)
    erasures.register(memory, HALTED)
    memory.drain()
    restore(memory, before)
    stranger = DeletionWorker(memory.log, memory.new_store(), SealKeys([b"s" * 32]))
    for _ in range(4):
        stranger.run_once(0.0)
    stranger.close()
    assert HALTED in memory.store.cursors.read(ModelKeys(HALTED).partition).behind
    erase(memory, "subject-1", "e-1")
    with closing(erasures.erasure_worker(memory)) as worker:
        for _ in range(4):
            erasures.turn(worker)
        newest = {one.erasure_id: one for one, _ in erasures.published(memory)}
        assert HALTED in newest["e-1"].awaited
        memory.drain()
        erasures.register(memory, HALTED, replace_model=True, accept_forgotten=True)
        erasures.drain(memory, worker)
    assert erasures.finals(memory)["e-1"].complete
    assert not set(rows_of(1)) & erasures.live_rows(memory, HALTED)
