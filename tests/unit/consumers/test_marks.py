"""How far back a takeover reads, and when a worker may leave a mark for the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from consumers import reach, topics
from consumers.events import Source
from consumers.log.base import Bounds, Message, Partition
from consumers.log.memory import MemoryLog
from consumers.marks import Marks
from consumers.reach import Reach
from engine.errors import LogReset
from engine.store.handover import Handover

HERE = Partition("lethe.receipts", "topic-id", 0)
ONE, TWO = (Partition("lethe.deletions", "other-id", index) for index in (0, 1))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "TAIL", 50)
    monkeypatch.setattr(reach, "NET", 10)
    monkeypatch.setattr(reach, "FARTHEST", 200)


@pytest.mark.parametrize(
    ("marks", "bounds", "first"),
    [
        ([], Bounds(0, 100), 90),
        ([{}], Bounds(0, 1000), 800),
        ([{"topic-id/0": 70}], Bounds(0, 100), 70),
        ([{"topic-id/0": 70}], Bounds(80, 100), 80),
        ([{"topic-id/0": 99}], Bounds(0, 100), 90),
        ([{"topic-id/0": 70}, {"topic-id/0": 60}], Bounds(0, 100), 60),
        ([{"topic-id/0": 950}, {}], Bounds(0, 1000), 800),
        ([{"topic-id/0": 70}, {}], Bounds(0, 100), 0),
        ([{"topic-id/1": 70}], Bounds(5, 100), 5),
        ([{"topic-id/0": 70}], Bounds(0, 1000), 800),
    ],
)
def test_what_is_read_begins_at_the_earliest_mark(
    marks: list[Mapping[str, int]], bounds: Bounds, first: int
) -> None:
    assert Reach.behind(marks).first(HERE, bounds) == first


class Kept:
    """What was left for the next worker."""

    def __init__(self) -> None:
        self.marks: dict[str, Mapping[str, int]] = {}
        self.watermarks: dict[str, int] = {}

    def set_marks(self, partitions: Iterable[str], ends: Mapping[str, int]) -> None:
        self.marks |= dict.fromkeys(partitions, ends)

    def watermark(self, partition: str) -> int | None:
        return self.watermarks.get(partition)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def marks(kept: Kept) -> Marks:
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    left = Marks(cast(Handover, kept), lambda _: Bounds(0, 7), period=0.0)
    left.look_up(log.reader())
    return left


def test_a_mark_is_left_once_the_records_that_have_answers_are_decided(
    kept: Kept, marks: Marks
) -> None:
    marks.wait_for(Source(topic=ONE.topic, partition=0, offset=offset) for offset in (2, 1))
    marks.taken_over(ONE, 9)
    marks.taken_over(TWO, 9)
    marks.look({ONE: 2, TWO: 0})
    assert list(kept.marks) == [str(TWO)]
    marks.look({ONE: 3, TWO: 0})
    assert set(kept.marks) == {str(ONE), str(TWO)}
    assert len(kept.marks[str(ONE)]) == 3, "versions, parameters and receipts"
    assert set(kept.marks[str(ONE)].values()) == {7}


def test_no_mark_is_left_before_others_have_decided_what_has_answers(kept: Kept) -> None:
    """A repeat in our partition must find the answers, for as long as the store does not."""
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    asked = [Message(topics.DELETIONS, b"m", b"%d" % number) for number in range(3)]
    log.producer().publish(asked)
    [elsewhere] = log.reader().partitions(topics.DELETIONS)
    marks = Marks(cast(Handover, kept), lambda _: Bounds(0, 7), period=0.0)
    # The second answer names a record of a topic that ended: nobody will pass it
    for offset in (1, 50):
        marks.wait_for([Source(topic=elsewhere.topic, partition=0, offset=offset)])
    marks.look_up(log.reader())
    marks.taken_over(ONE, 9)
    marks.look({ONE: 9})
    kept.watermarks[str(elsewhere)] = 2
    marks.look({ONE: 9})
    assert not kept.marks
    kept.watermarks[str(elsewhere)] = 3
    marks.look({ONE: 9})
    assert list(kept.marks) == [str(ONE)]


def test_a_topic_that_was_made_again_ends_marks_and_not_the_worker(kept: Kept) -> None:
    def bounds(partition: Partition) -> Bounds:
        raise LogReset(f"{partition} is not there any more")

    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    marks = Marks(cast(Handover, kept), bounds, period=0.0)
    marks.look_up(log.reader())
    marks.taken_over(ONE, 9)
    marks.look({ONE: 0})
    marks.look({ONE: 0})
    assert not any(kept.marks.values())


def test_no_mark_is_left_of_a_lost_partition_nor_when_the_store_may_have_lost_writes(
    kept: Kept, marks: Marks
) -> None:
    marks.taken_over(ONE, 9)
    marks.taken_over(TWO, 9)
    marks.drop(ONE)
    marks.look({ONE: 5, TWO: 5})
    assert list(kept.marks) == [str(TWO)]
    kept.marks.clear()
    marks.forget()
    marks.look({ONE: 5, TWO: 5})
    assert not kept.marks
