"""Which records count, who has won, and when nothing is sent at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lethe.consumers.commits.commit import Commit, CommitKind
from lethe.consumers.commits.frame import OpenPart, decode_frame
from lethe.consumers.commits.journal import (
    CommitTooLarge,
    Followed,
    Journal,
    Tail,
    Verdict,
    check_tail,
    judge,
)
from lethe.consumers.commits.record import encode
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.log.base import Appended, Message
from lethe.engine.errors import LogReset
from lethe.engine.store.layout.keys import commit_partition
from lethe.engine.store.layout.state import Head
from tests.support.families import make
from tests.support.memory_log import MemoryFlush, MemoryLog
from tests.support.states import start
from tests.support.stores import neighbour_of
from tests.unit.deletions.test_decide import state_of

META = state_of(start(make("benign", "linear"))).meta
SEALS = SealKeys([bytes(range(32))])
HERE = commit_partition("m")
OTHER = neighbour_of("m")
PREV = "a" * 64
HEAD = Head(4, PREV)


def commit_of(number: int = 5, prev: str = PREV, model_id: str = "m", **more: object) -> Commit:
    return Commit(model_id, number, prev, CommitKind.REQUESTS, META, 3, **more)  # type: ignore[arg-type]  # a test's


@pytest.mark.parametrize(
    ("number", "prev", "checkpoint", "verdict"),
    [
        (5, PREV, False, Verdict.VALID),
        (4, PREV, False, Verdict.VOID),
        (0, "", False, Verdict.VOID),
        (5, "b" * 64, False, Verdict.GAP),
        (6, PREV, False, Verdict.GAP),
        (9, PREV, True, Verdict.VALID),
        (9, "b" * 64, True, Verdict.GAP),
        (4, PREV, True, Verdict.VOID),
    ],
)
def test_a_record_counts_if_it_continues_its_model(
    number: int, prev: str, checkpoint: bool, verdict: Verdict
) -> None:
    assert judge(OpenPart("m", number, prev, None, "k", checkpoint), HEAD, HERE) is verdict


def test_a_record_in_another_partition_is_void() -> None:
    assert judge(OpenPart("m", 5, PREV, None, "k"), HEAD, (HERE + 1) % 16) is Verdict.VOID


def test_the_first_commit_of_a_model_follows_nothing() -> None:
    assert judge(OpenPart("m", 0, "", None, "k"), Head(), HERE) is Verdict.VALID
    assert judge(OpenPart("m", 0, PREV, None, "k"), Head(), HERE) is Verdict.GAP


class Appending:
    """A journal over a log in memory, whose answers a test may change."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.ensure_topics(topics.specs(2))
        self.reader = self.log.reader()
        self.slept: list[float] = []
        self.journal = Journal(self.log.producer(), SEALS, lambda: None, self.slept.append)
        self.partition = self.reader.partitions(topics.COMMITS)[HERE]
        self.follow()

    def follow(self, **heads: Head) -> Followed:
        end = self.reader.bounds(self.partition).end
        followed = Followed(
            Tail(self.partition, end), {"m": HEAD, OTHER: HEAD} | heads, valid_end=end
        )
        self.journal.follow(HERE, followed)
        return followed

    def rival(self) -> None:
        producer = self.log.producer()
        producer.publish([Message(topics.COMMITS, b"m", b"a rival's", partition=HERE)])
        producer.close()

    def count(self) -> int:
        return self.reader.bounds(self.partition).end


@pytest.fixture
def appending() -> Iterator[Appending]:
    made = Appending()
    yield made
    made.reader.close()


def test_who_continues_the_tail_has_won(appending: Appending) -> None:
    first, second = appending.journal.append([commit_of(), commit_of(model_id=OTHER)])
    assert [one.place.offset for one in (first, second)] == [0, 1]
    assert (second.place.previous_end, second.place.model_previous_end) == (1, 1)
    [third] = appending.journal.append([commit_of(6, first.digest)])
    assert (third.place.offset, third.place.previous_end, third.place.model_previous_end) == (
        2,
        2,
        1,
    )
    tail = appending.journal.tails()[HERE]
    assert (tail.offset, tail.last_digest) == (3, third.digest)


def test_who_finds_somebody_elses_record_below_has_not(appending: Appending) -> None:
    appending.rival()
    assert appending.journal.append([commit_of(), commit_of(model_id=OTHER)]) == []
    assert appending.journal.followed(HERE) is None
    assert appending.count() == 3


def test_what_does_not_continue_what_is_known_is_not_sent(appending: Appending) -> None:
    stale = commit_of(3, "c" * 64)
    [won] = appending.journal.append([commit_of(model_id=OTHER), stale])
    assert won.commit.model_id == OTHER
    assert appending.count() == 1
    assert appending.journal.followed(HERE) is None, "its partition has to be read again"
    assert appending.journal.append([commit_of()]) == []
    assert appending.count() == 1


def test_a_model_that_nobody_knows_begins_at_nothing(appending: Appending) -> None:
    followed = appending.follow()
    del followed.heads["m"]
    assert appending.journal.append([commit_of()]) == []
    appending.follow().heads.pop("m")
    assert len(appending.journal.append([commit_of(0, "")])) == 1


def test_the_winner_beside_a_rivals_void_record_waits_a_little(appending: Appending) -> None:
    appending.rival()
    assert appending.journal.append([commit_of()]) == []
    framed = decode_frame(appending.reader.read(appending.partition, 1, 1.0, 1)[0][0].value)
    assert framed is not None
    appending.follow(m=Head(5, framed.digest))
    appending.journal.note_rival("m")
    appending.journal.append([commit_of(6, framed.digest)])
    assert len(appending.slept) == 1
    assert 0 <= appending.slept[0] <= 0.05
    appending.journal.append([commit_of(model_id=OTHER)])
    assert len(appending.slept) == 1


def test_a_commit_that_does_not_fit_is_not_sent(appending: Appending) -> None:
    large = commit_of(thetas={"theta_exact": bytes(8 << 20)})
    with pytest.raises(CommitTooLarge, match="fewer rows") as refused:
        appending.journal.append([large, commit_of(model_id=OTHER)])
    assert refused.value.model_id == "m"
    assert appending.count() == 0


@pytest.mark.parametrize("change", ["epoch", "topic", "no offset", "order"])
def test_an_acknowledgement_that_is_not_as_expected_is_no_win(
    appending: Appending, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    inner = MemoryFlush.wait
    followed = appending.follow()
    followed.tail = replace(followed.tail, epoch=3)

    def answering(flush: MemoryFlush, timeout: float = 30.0) -> list[Appended]:
        placed = [replace(one, leader_epoch=3) for one in inner(flush, timeout)]
        if change == "epoch":
            return [replace(one, leader_epoch=4) for one in placed]
        if change == "topic":
            other = replace(appending.partition, topic_id="another")
            return [replace(one, partition=other) for one in placed]
        if change == "no offset":
            return [replace(one, offset=None) for one in placed]
        return placed[::-1]

    monkeypatch.setattr(MemoryFlush, "wait", answering)
    won = appending.journal.append([commit_of(), commit_of(model_id=OTHER)])
    assert len(won) == (2 if change == "order" else 0)


def test_a_tail_that_is_there_no_more_is_a_log_that_was_reset(appending: Appending) -> None:
    [won] = appending.journal.append([commit_of()])
    tail = appending.journal.tails()[HERE]
    check_tail(appending.reader, tail, appending.count())
    with pytest.raises(LogReset, match="another record lies at offset 0"):
        check_tail(appending.reader, replace(tail, last_digest="b" * 64), appending.count())
    appending.log.truncate(appending.partition, 0)
    with pytest.raises(LogReset, match="ends at offset 0, but was read up to offset 1"):
        check_tail(appending.reader, tail, appending.count())
    value, _ = encode(commit_of(), SEALS, None)
    producer = appending.log.producer()
    producer.publish([Message(topics.COMMITS, b"m", value, partition=HERE)])
    with pytest.raises(LogReset, match="another record"):
        check_tail(appending.reader, tail, appending.count())
    del won
