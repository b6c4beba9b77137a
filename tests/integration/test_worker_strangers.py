"""Records that anybody can send: made-up keys and models leave little in the store."""

from __future__ import annotations

import json

import pytest

from consumers import deletion_transition
from engine.store.connection import text
from engine.store.keys import ModelKeys
from tests.support.platform import Platform

GHOST = ModelKeys.of_model("ghost")


def test_unreadable_records_with_new_keys_leave_no_keys_in_the_store(memory: Platform) -> None:
    def keys() -> set[str]:
        return {text(key) for key in memory.raw().scan_iter("lethe:{*", count=1000)}

    memory.send_raw(b"not json", b"a first one")
    memory.send_raw(b"not json", b"a second one")
    memory.send_raw(b'{"model_id": "m", "row_ids": ["a"]}', b"m")  # no request id
    memory.drain()
    before = keys()
    for i in range(20):
        memory.send_raw(b"not json", f"stranger-{i}".encode())
    memory.send_raw(b"not json", b"\xff")
    memory.drain()
    assert len(memory.dead_letters()) == 24
    assert keys() <= before | {
        key
        for partition in memory.reader.partitions("lethe.deletions")
        for where in [ModelKeys.of_partition(str(partition))]
        for key in (where.head, where.offsets, where.outbox)
    }


def test_what_is_kept_of_an_unregistered_model_expires_and_registering_keeps_it(
    memory: Platform,
) -> None:
    client = memory.raw()
    kept = [GHOST.head, GHOST.offsets, GHOST.requests, GHOST.outbox]
    memory.send("ghost", "row-0", request_id="early")
    memory.drain()
    times = {client.expiretime(key) for key in kept}
    assert len(times) == 1
    assert 29 * 86_400 < client.ttl(GHOST.head) <= 30 * 86_400
    memory.register("ghost")
    assert {client.ttl(key) for key in kept} == {-1}
    memory.send("ghost", "row-0", request_id="early")
    memory.send("ghost", "row-0", request_id="late")
    memory.drain()
    assert memory.statuses("early", "ghost") == ["REJECTED", "REJECTED"]
    assert memory.final("late", "ghost").status == "APPLIED"
    assert {client.ttl(key) for key in kept} == {-1}


def test_a_request_after_all_of_it_expired_is_decided_once(memory: Platform) -> None:
    memory.send("ghost", "row-0", request_id="early")
    memory.drain()
    for key in (GHOST.head, GHOST.offsets, GHOST.requests, GHOST.outbox):
        assert memory.raw().delete(key)
    memory.send("ghost", "row-0", request_id="late")
    memory.drain()
    assert memory.statuses("early", "ghost") == ["REJECTED"]
    assert memory.statuses("late", "ghost") == ["REJECTED"]


def test_receipts_of_an_unregistered_model_are_bounded_however_they_arrive(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit keeps up to 256 receipts, so commits are not what to count."""
    monkeypatch.setattr(deletion_transition, "_UNREGISTERED_RECEIPTS", 7)
    for i in range(5):
        memory.send("ghost", "row-0", request_id=f"first-{i}")
    memory.drain()
    for i in range(20):
        memory.send("ghost", "row-0", request_id=f"more-{i}")
    memory.drain()
    assert memory.raw().hlen(GHOST.requests) == 7
    assert len(memory.receipts("ghost")) == 25
    memory.send("ghost", "row-0", request_id="first-0")
    memory.send("ghost", "row-0", request_id="more-19")
    memory.drain()
    assert memory.raw().hlen(GHOST.requests) == 7
    again = [r for r in memory.receipts("ghost") if r.request_id == "first-0"]
    assert len(again) == 2
    assert json.loads(again[0].value()) == json.loads(again[1].value())
    assert memory.statuses("more-19", "ghost") == ["REJECTED", "REJECTED"]
