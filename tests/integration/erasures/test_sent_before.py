"""A worker that takes erasures over sends no request that is on its way or answered already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.erasures import sent_before
from lethe.consumers.erasures.sent_before import AlreadySent
from lethe.consumers.log.base import Message, Record
from lethe.consumers.workers.erasure_worker import ErasureWorker
from tests.support import erasures
from tests.support.erasures import erase, outcomes
from tests.support.platform import Platform
from tests.support.waiting import until


@contextmanager
def asking(platform: Platform) -> Iterator[ErasureWorker]:
    """Let a worker take over, and run it until it has asked the models."""
    with closing(erasures.erasure_worker(platform)) as worker:

        def asked() -> bool:
            erasures.turn(worker)
            return bool(worker._pending)

        until(asked, 60.0)
        yield worker


def test_who_takes_over_sends_nothing_that_somebody_has_sent(platform: Platform) -> None:
    for name in ("churn", "risk"):
        erasures.register(platform, name)
    erase(platform, "subject-1", "e-1")
    with asking(platform):
        sent = platform.records(topics.DELETIONS)
        assert {record.key for record in sent} == {b"churn", b"risk"}
    with asking(platform):  # nothing is decided yet
        assert platform.records(topics.DELETIONS) == sent
    platform.drain()
    with closing(erasures.erasure_worker(platform)) as last:
        erasures.drain(platform, last)
    assert platform.records(topics.DELETIONS) == sent
    [receipt] = erasures.finals(platform).values()
    assert outcomes(receipt) == dict.fromkeys(("churn", "risk"), ("APPLIED", 3))


@pytest.fixture
def sent(memory: Platform) -> Record:
    """The request that an erasure has become."""
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    with asking(memory):
        pass
    [record] = memory.records(topics.DELETIONS)
    return record


@pytest.fixture
def before(memory: Platform) -> AlreadySent:
    """What looks for it."""
    return AlreadySent(memory.store, memory.reader, lambda: None)


def message_of(record: Record) -> Message:
    """Return the message that a record was."""
    return Message(topics.DELETIONS, record.key or b"", record.value, record.headers)


def test_a_request_is_found_once_where_the_log_has_it(sent: Record, before: AlreadySent) -> None:
    assert before.take(message_of(sent)) == (sent.partition, sent.offset)
    assert before.take(message_of(sent)) is None
    before.forget()
    assert before.take(message_of(sent)) == (sent.partition, sent.offset)


@pytest.mark.parametrize(
    "other",
    [
        lambda one: replace(one, headers=(*one.headers, ("lethe-signature", b"a stranger's"))),
        lambda one: replace(one, value=one.value + b" "),
    ],
    ids=["headers", "value"],
)
def test_a_record_that_differs_in_anything_is_another(
    sent: Record, before: AlreadySent, other: Callable[[Message], Message]
) -> None:
    """Deletion workers may refuse that one."""
    assert before.take(other(message_of(sent))) is None


def test_what_a_watermark_has_passed_is_not_on_its_way(
    memory: Platform, sent: Record, before: AlreadySent
) -> None:
    memory.store.cursors.set_watermarks({str(sent.partition): sent.offset + 1})
    assert before.take(message_of(sent)) is None


def test_too_long_a_backlog_is_not_read(
    sent: Record, before: AlreadySent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_before, "MOST_RECORDS", 0)
    assert before.take(message_of(sent)) is None
