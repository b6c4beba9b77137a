"""Records from the client's messages."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from confluent_kafka import Message

from lethe.consumers.log.base import Headers, Partition, Record

ODD_HEADERS = "lethe-odd-headers"
"""Header that replaces all headers of a record if the name of one is not UTF-8."""


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
