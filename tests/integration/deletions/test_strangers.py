"""Records that anybody can send: made-up keys and models leave nothing in the store."""

from __future__ import annotations

from lethe.engine.store.server.connection import text
from tests.support.events import settle
from tests.support.platform import Platform


def keys_of(platform: Platform) -> set[str]:
    return {text(key) for key in platform.raw().scan_iter("lethe:{*", count=1000)}


def test_unreadable_records_with_new_keys_leave_no_keys_in_the_store(memory: Platform) -> None:
    memory.send_raw(b"not json", b"a first one")
    memory.send_raw(b"not json", b"a second one")
    memory.send_raw(b'{"model_id": "m", "row_ids": ["a"]}', b"m")  # no request id
    memory.drain()
    before = keys_of(memory)
    for i in range(20):
        memory.send_raw(b"not json", f"stranger-{i}".encode())
    memory.send_raw(b"not json", b"\xff")
    memory.drain()
    assert len(memory.dead_letters()) == 24
    assert keys_of(memory) == before


def test_a_model_that_is_not_registered_is_answered_and_not_remembered(memory: Platform) -> None:
    """Anybody can make up names; the answer follows from the record, so it can be given again."""
    memory.send("ghost", "row-0", request_id="early")
    memory.drain()
    before = keys_of(memory)
    for i in range(20):
        memory.send("ghost", "row-0", request_id=f"more-{i}")
        memory.send(f"ghost-{i}", "row-0")
    memory.drain()
    assert len(keys_of(memory) - before) <= 16, "more than the cursors of commits partitions"
    assert not any("ghost" in key for key in keys_of(memory))
    assert len(memory.receipts("ghost")) == 21
    # Read again, after a crash, it comes out the same, byte for byte
    memory.raw().delete(*memory.raw().keys("lethe:watermark:*"))
    settle(memory)
    published = memory.published_receipts("ghost")
    assert len(published) == 42
    assert len({value for _, value in published}) == 21


def test_what_was_asked_before_a_model_was_registered_stays_unknown(memory: Platform) -> None:
    memory.send("ghost", "row-0", request_id="early")
    memory.drain()
    memory.register("ghost")
    memory.raw().delete(*memory.raw().keys("lethe:watermark:*"))
    memory.pair[0].recover()
    late = memory.send("ghost", "row-0", request_id="late")
    memory.send("ghost", "row-1", request_id="early")  # the id is free: nobody has used it
    memory.drain()
    assert memory.final(late, "ghost").status == "APPLIED"
    assert sorted(memory.statuses("early", "ghost")) == ["APPLIED", "REJECTED", "REJECTED"]
    assert memory.load("ghost").meta.rows_deleted == 2
