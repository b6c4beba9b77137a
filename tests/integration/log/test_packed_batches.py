"""What a producer may do to readers when a topic lets compressed batches through."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from lethe.consumers.contract import topics
from tests.support.platform import Platform

MIB = 1_048_576
BOMB_BYTES = 32 * MIB
# The limit, the same again while it is copied, and what a batch of ordinary requests needs.
ALLOWED_BYTES = 3 * 8 * MIB


def _bomb(size: int) -> bytes:
    """Return gzip that unpacks to ``size`` zeros, made without holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = bytearray()
    for _ in range(size // MIB):
        packed += packer.compress(bytes(MIB))
    return bytes(packed + packer.flush())


def test_unpacking_never_holds_more_than_the_limit() -> None:
    from lethe.consumers.log.kafka.batches import MAX_UNPACKED_BYTES, unpack

    packed = _bomb(BOMB_BYTES)
    assert len(packed) < 80_000
    tracemalloc.start()
    try:
        assert unpack(packed, 1) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * MAX_UNPACKED_BYTES
    # What is within the limit is read: one member or several, as gzip allows
    assert unpack(gzip.compress(b"ab") + gzip.compress(b"c"), 1) == b"abc"
    assert unpack(gzip.compress(bytes(MAX_UNPACKED_BYTES)), 1) == bytes(MAX_UNPACKED_BYTES)
    assert unpack(gzip.compress(bytes(MAX_UNPACKED_BYTES + 1)), 1) is None
    # and what is cut, not gzip, or packed in another way is refused
    assert unpack(gzip.compress(b"abc")[:-3], 1) is None
    assert unpack(b"not gzip", 1) is None
    assert unpack(b"any", 4) is None


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.xdist_group("kafka")
def test_a_small_batch_that_unpacks_to_a_huge_one_is_refused(
    platform_on: Callable[..., Platform],
) -> None:
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import ConfigResource

    from lethe.consumers.log.base import PACKED_BATCH

    # Given a request topic whose settings somebody changed
    platform = platform_on("kafka", partitions=1)
    platform.register("m")
    admin = KafkaAdminClient(bootstrap_servers=platform.bootstrap)
    admin.alter_configs([ConfigResource("TOPIC", topics.DELETIONS, {"compression.type": "gzip"})])
    admin.close()
    # and a producer that sends, between honest requests, 32 KB that unpack to 32 MB
    foreign = KafkaProducer(
        bootstrap_servers=platform.bootstrap, compression_type="gzip",
        max_request_size=2 * BOMB_BYTES,
    )  # fmt: skip
    first = platform.send_index("m", 0)
    end = time.monotonic() + 20
    while True:  # until the broker keeps what comes as it comes
        try:
            foreign.send(topics.DELETIONS, bytes(BOMB_BYTES), b"m").get(20)
            break
        except Exception:
            assert time.monotonic() < end
    packed = {"request_id": "packed", "model_id": "m", "row_ids": ["row-1"]}
    foreign.send(topics.DELETIONS, json.dumps(packed).encode(), b"m").get(20)
    foreign.close()
    last = platform.send_index("m", 2)
    # When a worker reads the topic
    tracemalloc.start()
    try:
        platform.drain()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Then its memory stays bounded, and all its neighbours are decided, the packed one too
    assert peak < ALLOWED_BYTES
    finals = platform.finals()
    assert {finals[name].status for name in (first, "packed", last)} == {"APPLIED"}
    # and the batch is in dead letters once, as it came
    [letter] = platform.dead_letters()
    assert dict(letter.headers)[PACKED_BATCH].startswith(b"gzip, ")
    assert letter.value is not None
    assert len(letter.value) < MIB
    # and a worker that starts anew goes on behind it
    again = platform.deletion_worker()
    platform.pair[0].close()
    platform.drain(again)
    assert len(platform.dead_letters()) == 1
