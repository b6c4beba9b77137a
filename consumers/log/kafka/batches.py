"""A limit on the decompressed size of a batch, which kafka-python does not have.

522 KB of gzip became 512 MB. Topics that Lethe creates are stored uncompressed, so no honest batch
arrives compressed. But anyone who may change a topic's settings can turn that off, even by mistake,
and then a producer's bytes reach every reader as they were sent.

This module decompresses gzip up to a limit. A batch beyond it, or compressed by another codec, is
delivered as one unreadable record: its value is the compressed batch, a header describes it, and
its offset is the batch's last. A worker processes it as it does garbage (a dead letter keeps the
bytes) and continues after it. (`test_a_small_batch_that_unpacks_to_a_huge_one_is_refused`)
"""

from __future__ import annotations

import logging
import zlib
from typing import Any

from kafka.record.default_records import DefaultRecord

from lethe.consumers.log.base import PACKED_BATCH

log = logging.getLogger(__name__)

MAX_UNPACKED_BYTES = 8 * 1_048_576
"""Largest size of one unpacked batch: several times the limit of the request topic, so a compressed
batch of honest requests is read, and small compared with a model in a worker's memory."""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_GZIP_WRAPPER = 31  # zlib's window bits for gzip's own header and checksum
_GZIP = 1


def bound_batches(consumer: Any) -> None:
    """Make a consumer of kafka-python decompress no more than the limit."""
    fetcher = consumer._fetcher
    parse = fetcher.PartitionRecords

    def bounded(offset: int, tp: Any, records: Any, **more: Any) -> Any:
        return parse(offset, tp, _BoundedRecords(records), **more)

    fetcher.PartitionRecords = bounded


def unpack(packed: bytes | memoryview, codec: int, limit: int = MAX_UNPACKED_BYTES) -> bytes | None:
    """Return the records of a batch; None if they exceed the limit or are not gzip.

    Never holds more than the limit and one byte.
    """
    if codec != _GZIP:
        return None
    unpacked = bytearray()
    remaining = bytes(packed)
    while remaining:
        member = zlib.decompressobj(_GZIP_WRAPPER)
        try:
            unpacked += member.decompress(remaining, limit + 1 - len(unpacked))
        except zlib.error:
            return None
        if len(unpacked) > limit or not member.eof:
            return None
        remaining = member.unused_data
    return bytes(unpacked)


class _BoundedRecords:
    """Wraps the client's `MemoryRecords`."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        if batch is None or not _codec(batch):
            return batch
        return _PackedBatch(batch)


class _PackedBatch:
    """Wraps the client's batch: decompresses within the limit, or is one unreadable record."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._refused: Any = None
        self._opened = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Any:
        self._open()
        return iter([self._refused]) if self._refused is not None else iter(self._batch)

    def __next__(self) -> Any:
        self._open()
        return next(self._batch)

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        batch = self._batch
        codec = _codec(batch)
        records: bytes | None = None
        if batch.magic == 2:
            records = unpack(memoryview(batch._buffer)[batch._pos :], codec)
        if records is None:
            self._refused = _refusal(batch, codec)
            return
        batch._buffer, batch._pos, batch._decompressed = bytearray(records), 0, True


def _codec(batch: Any) -> int:
    if batch.magic == 2:
        return int(batch.compression_type)
    return int(batch._attributes) & 0x07  # the formats before Kafka 0.11


def _refusal(batch: Any, codec: int) -> DefaultRecord:
    name = _CODECS[codec] if codec < len(_CODECS) else str(codec)
    packed = bytes(batch._buffer)
    last = batch.last_offset if batch.magic == 2 else batch.base_offset
    description = f"{name}, {len(packed)} bytes, offsets {batch.base_offset} to {last}"
    log.error(
        "a compressed batch was not read (%s): set compression.type=uncompressed on its topic",
        description,
        extra={"action": "refuse_batch"},
    )
    timestamp = batch.max_timestamp if batch.magic == 2 else 0
    headers = [(PACKED_BATCH, description.encode())]
    return DefaultRecord(len(packed), last, timestamp, 0, None, packed, headers)
