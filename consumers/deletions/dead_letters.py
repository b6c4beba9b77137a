"""Dead letters: records that could not be read or believed, and what workers say of them.

A letter is written once for each refused record. To replay it is to send the record again, as it
came: after a worker was given the key that it lacked, say. What the sender wrote wrongly would be
wrong again: the sender has to correct and send it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from lethe.consumers.commits.recovery.change_requests import digest_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import MAX_REQUEST_BYTES, Source, rfc3339
from lethe.consumers.deletions.validate import Invalid
from lethe.consumers.log.base import PACKED_BATCH, Headers, Message, Reader, Record
from lethe.consumers.log.scan import read_at, tail
from lethe.engine.errors import InvalidRequest

_DEAD_LETTER_KEY = 1024
_DEAD_LETTER_HEADERS = 60 * 1024
"""Bytes of a dead letter's key, and of its record's headers; see `topics.specs`."""

_CODE, _DETAIL, _SOURCE, _CUT = (
    "lethe-error-code", "lethe-error", "lethe-source", "lethe-truncated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A letter as it lies in the log; ``source`` is None if it does not say where it came from."""

    record: Record
    code: str
    detail: str
    source: Source | None

    @property
    def at(self) -> datetime:
        """When the log took the letter."""
        return self.record.logged_at

    @property
    def headers(self) -> Headers:
        """The headers of the refused record, without those that workers add."""
        added = (_CODE, _DETAIL, _SOURCE, _CUT)
        return tuple(one for one in self.record.headers if one[0] not in added)

    @property
    def whole(self) -> bool:
        """Whether it keeps the refused record byte for byte."""
        names = {name for name, _ in self.record.headers}
        kept = self.source is not None and _keeps_whole(self.source.topic)
        return kept and not names & {_CUT, PACKED_BATCH}


def _keeps_whole(topic: str) -> bool:
    """Return whether letters keep the records of a topic byte for byte."""
    return topic in (topics.DELETIONS, topics.ERASURES)


def dead_letter(refused: Invalid) -> Message:
    """Return the message that keeps an unreadable record, byte for byte.

    Of records that hold values of rows, ``lethe.row-changes`` and changes of tables, it keeps the
    digest alone: such values lie in no log of ours for longer than T.

    The message fits, whatever record the log accepted: a key, headers or a value beyond the limits
    of dead letters would stop the worker. If the value is cut, ``lethe-truncated`` has its length.
    """
    record = refused.record
    source = f"{record.partition.topic}/{record.partition.index}/{record.offset}"
    key, value = record.key or b"", record.value or b""
    cut: Headers = ()
    headers = record.headers
    if not _keeps_whole(record.partition.topic):
        value, headers = digest_of(record).encode(), ()
    if len(value) > MAX_REQUEST_BYTES:
        cut = ((_CUT, str(len(value)).encode()),)
    size = sum(len(name.encode()) + len(content) for name, content in headers)
    return Message(
        topics.DEAD_LETTERS,
        key if len(key) <= _DEAD_LETTER_KEY else b"",
        value[:MAX_REQUEST_BYTES],
        (
            *(headers if size <= _DEAD_LETTER_HEADERS else ()),
            *cut,
            (_CODE, refused.code.encode()),
            (_DETAIL, refused.detail.encode("utf-8", errors="replace")),
            (_SOURCE, source.encode()),
        ),
    )


def read_letter(record: Record) -> DeadLetter:
    """Return a record of ``lethe.dead-letters`` as a letter. Pure; any bytes will do."""
    named = {name: value.decode("utf-8", errors="replace") for name, value in record.headers}
    return DeadLetter(
        record, named.get(_CODE, "?"), named.get(_DETAIL, "?"), _place(named.get(_SOURCE, ""))
    )


def last_letters(reader: Reader, count: int) -> Iterator[DeadLetter]:
    """Yield the last letters, the oldest of them first."""
    return map(read_letter, tail(reader, topics.DEAD_LETTERS, count))


@dataclass(frozen=True, slots=True)
class Letters:
    """How many letters the log keeps, and the newest of them."""

    kept: int
    last: DeadLetter | None

    def __str__(self) -> str:
        """Return the count, and why the newest was refused, for a person."""
        if self.last is None:
            return "none"
        last = f"{rfc3339(self.last.at)}: {self.last.code}: {self.last.detail}"
        return f"{self.kept}, the newest of {last}; `lethe dead-letters list` shows them"


def count_letters(reader: Reader) -> Letters:
    """Return how many letters there are. Cost: the bounds of the topic, and one record."""
    partitions = reader.partitions(topics.DEAD_LETTERS)
    bounds = [reader.bounds(partition) for partition in partitions]
    kept = sum(one.end - one.begin for one in bounds)
    return Letters(kept, max(last_letters(reader, 1), key=lambda one: one.at, default=None))


def find_letter(reader: Reader, number: int) -> DeadLetter:
    """Return the letter with an offset.

    Raises
    ------
    InvalidRequest
        There is none, or not any more.
    """
    for partition in reader.partitions(topics.DEAD_LETTERS):
        if (record := reader.record_at(partition, number)) is not None:
            return read_letter(record)
    raise InvalidRequest(f"there is no dead letter {number}; `lethe dead-letters list` shows them")


def replay_message(reader: Reader, letter: DeadLetter) -> Message:
    """Return the message that sends a letter's record again, as it came.

    Of a record with values of rows, a letter has only the digest: the record is read from its
    topic, while the log still has it.

    Raises
    ------
    InvalidRequest
        The record is not one of ours to send, or nobody has all of it any more.
    """
    number, source = letter.record.offset, letter.source
    if source is None or not (_keeps_whole(source.topic) or source.topic == topics.ROW_CHANGES):
        topic = "another topic" if source is None else source.topic
        raise InvalidRequest(
            f"dead letter {number} came from {topic}, which only its own producer writes to; have "
            "that producer send the record again"
        )
    record = letter.record
    if not letter.whole:
        found = read_at(reader, source.topic, source.partition, source.offset)
        if found is None or digest_of(found).encode() != letter.record.value:
            raise InvalidRequest(
                f"dead letter {number} does not have the whole record, and {source.topic} no "
                "longer has it; have its producer send it again"
            )
        return Message(source.topic, found.key or b"", found.value, found.headers)
    return Message(source.topic, record.key or b"", record.value, letter.headers)


def _place(text: str) -> Source | None:
    """Return ``topic/partition/offset`` as a place."""
    where, _, offset = text.rpartition("/")
    topic, _, partition = where.rpartition("/")
    if not (_is_number(partition) and _is_number(offset)):
        return None
    return Source(topic=topic, partition=int(partition), offset=int(offset))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16
