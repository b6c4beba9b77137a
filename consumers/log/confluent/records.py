"""What both ways of reading share: settings, and the form of a record."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from confluent_kafka import KafkaError, Message

from lethe.consumers.log.base import Headers, Partition, Record
from lethe.consumers.log.confluent.server import Heard, Server

# A broker answers an empty fetch after this; it bounds what a change of position waits for.
FETCH_WAIT_MS = 20
# What one fetch may bring into memory, packed as it comes. A broker sends one batch even when it
# is larger than these.
MAX_PARTITION_FETCH_BYTES = 2 * 1_048_576
MAX_FETCH_BYTES = 16 * 1_048_576
# What librdkafka reads ahead of us, whichever is less.
READ_AHEAD_RECORDS = 20_000
READ_AHEAD_KIB = 16 * 1_024

OUT_OF_RANGE = (
    KafkaError._AUTO_OFFSET_RESET,  # what "auto.offset.reset=error" makes of it
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
"""Errors of a consumer that say that its position is not in the log."""

ODD_HEADERS = "lethe-odd-headers"
"""Header that stands for all headers of a record when the name of one is no text."""


def reading_settings(server: Server, heard: Heard) -> dict[str, Any]:
    """Return the settings of every consumer; the client's defaults lose requests."""
    return server.settings(heard) | {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # we seek ourselves; being out of range is an alarm
        "isolation.level": "read_committed",
        "check.crcs": True,
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "fetch.max.bytes": MAX_FETCH_BYTES,
        "fetch.message.max.bytes": MAX_PARTITION_FETCH_BYTES,
        "receive.message.max.bytes": 2 * MAX_FETCH_BYTES,
        "fetch.error.backoff.ms": 50,
        "fetch.queue.backoff.ms": FETCH_WAIT_MS,
        "queued.min.messages": READ_AHEAD_RECORDS,
        "queued.max.messages.kbytes": READ_AHEAD_KIB,
    }


def to_record(partition: Partition, found: Message) -> Record:
    """Return the client's record as ours."""
    offset, epoch = found.offset(), found.leader_epoch()
    assert offset is not None  # noqa: S101 (mypy: every record has one)
    key, value = found.key(), found.value()
    return Record(
        partition,
        offset,
        key if key is None or isinstance(key, bytes) else key.encode(),
        value if value is None or isinstance(value, bytes) else value.encode(),
        _headers(found),
        found.timestamp()[1],
        None if epoch is None or epoch < 0 else epoch,
    )


def _headers(found: Message) -> Headers:
    """Return the headers; one without a value gets an empty one.

    Brokers take any bytes for a name. When the name of one is no UTF-8, what the client returns
    must not be read, and none of the record's headers is known. Its key and value are.
    (`test_a_header_name_that_is_no_text_harms_nobody`)
    """
    try:
        headers: Any = _ask_headers(found) or ()
    except (UnicodeDecodeError, SystemError):
        return ((ODD_HEADERS, b""),)
    return tuple((name, value or b"") for name, value in headers)


# The client returns a broken list and has an exception set as well. Python notices that in a call
# of this kind; in `found.headers()`, once it is optimized, it does not, and the process can crash.
_ask_headers = methodcaller("headers")
