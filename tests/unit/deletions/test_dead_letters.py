"""Dead letters: what is kept of a refused record, and how it is sent again, byte for byte."""

from __future__ import annotations

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import MAX_REQUEST_BYTES
from lethe.consumers.deletions.dead_letters import (
    count_letters,
    dead_letter,
    find_letter,
    last_letters,
    replay_message,
)
from lethe.consumers.deletions.validate import Invalid
from lethe.consumers.log.base import PACKED_BATCH, Headers, Message, Record, TopicSpec
from lethe.engine.errors import InvalidRequest
from tests.support.memory_log import MemoryLog


class Refusing:
    """A log, and a worker that refuses what is sent."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.ensure_topics([*topics.specs(1), TopicSpec("shop.customers")])
        self.producer, self.reader = self.log.producer(), self.log.reader()

    def refuse(self, topic: str, value: bytes, key: bytes = b"m", headers: Headers = ()) -> int:
        [place] = self.producer.append([Message(topic, key, value, headers)])
        assert place.offset is not None
        record = self.reader.record_at(place.partition, place.offset)
        assert isinstance(record, Record)
        letter = dead_letter(Invalid(record, "INVALID_REQUEST", "why"))
        [place] = self.producer.append([letter])
        assert place.offset is not None
        return place.offset


@pytest.fixture
def refusing() -> Refusing:
    return Refusing()


@pytest.mark.parametrize("topic", [topics.DELETIONS, topics.ERASURES, topics.ROW_CHANGES])
def test_what_is_sent_again_is_what_was_refused(refusing: Refusing, topic: str) -> None:
    """Of values of rows the letter has the digest alone; their own topic still has them."""
    headers = (("ce_id", b"r1"), ("lethe-signature", b"s"))
    number = refusing.refuse(topic, b"{}", b"key", headers)

    letter = find_letter(refusing.reader, number)

    assert (letter.code, letter.detail) == ("INVALID_REQUEST", "why")
    assert letter.whole == (topic != topics.ROW_CHANGES)
    assert replay_message(refusing.reader, letter) == Message(topic, b"key", b"{}", headers)


def test_what_nobody_has_as_it_came_is_not_sent_again(refusing: Refusing) -> None:
    cut = refusing.refuse(topics.DELETIONS, b"x" * (MAX_REQUEST_BYTES + 1))
    packed = refusing.refuse(topics.DELETIONS, b"x", headers=((PACKED_BATCH, b"snappy"),))
    stranger = refusing.refuse("shop.customers", b"x")
    for number, why in ((packed, "whole record"), (stranger, "only its own producer writes to")):
        with pytest.raises(InvalidRequest, match=why):
            replay_message(refusing.reader, find_letter(refusing.reader, number))
    with pytest.raises(InvalidRequest, match="whole record"):
        replay_message(refusing.reader, find_letter(refusing.reader, cut))
    with pytest.raises(InvalidRequest, match="there is no dead letter 99"):
        find_letter(refusing.reader, 99)


def test_they_are_counted_and_the_newest_is_known(refusing: Refusing) -> None:
    assert (count_letters(refusing.reader).kept, count_letters(refusing.reader).last) == (0, None)
    numbers = [refusing.refuse(topics.DELETIONS, b"%d" % n) for n in range(5)]

    count = count_letters(refusing.reader)

    assert count.kept == 5
    assert count.last is not None
    assert count.last.record.offset == numbers[-1]
    assert [one.record.offset for one in last_letters(refusing.reader, 2)] == numbers[-2:]
    assert "5, the newest of " in str(count)


def test_any_bytes_are_a_letter(refusing: Refusing) -> None:
    """Whoever may write to the topic may write anything."""
    refusing.producer.publish(
        [
            Message(topics.DEAD_LETTERS, b"", None),
            Message(topics.DEAD_LETTERS, b"", b"x", (("lethe-source", b"a/b/c"),)),
            Message(topics.DEAD_LETTERS, b"", b"x", (("lethe-source", b"\xff/1/-2"),)),
        ]
    )
    letters = list(last_letters(refusing.reader, 10))
    assert [one.source for one in letters] == [None, None, None]
    for letter in letters:
        with pytest.raises(InvalidRequest):
            replay_message(refusing.reader, letter)
