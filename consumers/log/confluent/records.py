"""What the group consumer and the reader share: settings, and conversion of records."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from confluent_kafka import KafkaError, Message

from lethe.consumers.log.base import Headers, Partition, Record
from lethe.consumers.log.confluent.server import Heard, Server

# A broker answers an empty fetch after this time, which bounds how long a seek waits.
FETCH_WAIT_MS = 20
# Limits on what one fetch brings into memory, still compressed. A broker sends one batch even if
# it is larger than these.
MAX_PARTITION_FETCH_BYTES = 2 * 1_048_576
MAX_FETCH_BYTES = 16 * 1_048_576
# How much librdkafka reads ahead of us, whichever is less.
READ_AHEAD_RECORDS = 20_000
READ_AHEAD_KIB = 16 * 1_024

OUT_OF_RANGE = (
    KafkaError._AUTO_OFFSET_RESET,  # reported under "auto.offset.reset=error"
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
"""Consumer errors meaning that its position is not in the log."""

ODD_HEADERS = "lethe-odd-headers"
"""Header that replaces all headers of a record if the name of one is not UTF-8."""


def reading_settings(server: Server, heard: Heard) -> dict[str, Any]:
    """Return the settings of every consumer; the client's defaults would lose requests."""
    return server.settings(heard) | {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # we seek ourselves; an offset out of range is an alarm
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


def to_record(partition: Partition, message: Message) -> Record:
    """Convert the client's message to a `Record`."""
    offset, epoch = message.offset(), message.leader_epoch()
    assert offset is not None  # noqa: S101 (mypy: every record has one)
    key, value = message.key(), message.value()
    return Record(
        partition,
        offset,
        key if key is None or isinstance(key, bytes) else key.encode(),
        value if value is None or isinstance(value, bytes) else value.encode(),
        _headers(message),
        message.timestamp()[1],
        None if epoch is None or epoch < 0 else epoch,
    )


def _headers(message: Message) -> Headers:
    """Return the headers; a header without a value gets an empty one.

    Brokers accept any bytes as a name. If a name is not UTF-8, the list that the client returns
    must not be read, so none of the record's headers is known. Its key and value are.
    (`test_a_header_name_that_is_no_text_harms_nobody`)
    """
    try:
        headers: Any = _call_headers(message) or ()
    except (UnicodeDecodeError, SystemError):
        return ((ODD_HEADERS, b""),)
    return tuple((name, value or b"") for name, value in headers)


# The client returns a broken list and sets an exception as well. Python notices that in a call of
# this kind; in `message.headers()`, once optimized, it does not, and the process can crash.
_call_headers = methodcaller("headers")
