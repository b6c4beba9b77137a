"""Combined receipts that their topic no longer keeps: after 90 days an id begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.store.layout.keys import ERASED_CURSORS, ERASURE_RECEIPTS
from tests.support import erasures
from tests.support.erasures import erase
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform


@pytest.fixture
def worker(memory: Platform) -> Iterator[ErasureWorker]:
    """An erasure worker of the platform."""
    with closing(erasures.erasure_worker(memory)) as made:
        yield made


def forget_receipts(platform: Platform) -> None:
    """Remove all combined receipts, as the log does after 90 days."""
    log = platform.log
    assert isinstance(log, MemoryLog)
    [partition] = platform.reader.partitions(topics.ERASURE_RECEIPTS)
    log.trim(partition, log.bounds(partition).end)


def final_receipts(platform: Platform) -> list[bytes]:
    """Return the final combined receipts that the topic still has, byte for byte."""
    return [value for receipt, value in erasures.published(platform) if receipt.final]


@pytest.mark.parametrize("read_before", [True, False])
def test_an_erasure_that_comes_again_after_its_receipt_expired_is_answered_anew(
    memory: Platform, worker: ErasureWorker, read_before: bool
) -> None:
    """Whether the store had read the receipt before it expired, or nobody had asked since."""
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    if read_before:
        worker._receipts.catch_up()
    forget_receipts(memory)

    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)

    first, again = final_receipts(memory)
    assert first == again
    assert erasures.finals(memory)["e-1"].complete


def test_receipts_whose_key_is_gone_are_read_from_the_topic_again(
    memory: Platform, worker: ErasureWorker
) -> None:
    """Else the id of one person's erasure would stand for another's."""
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    worker._receipts.catch_up()
    assert memory.raw().delete(ERASURE_RECEIPTS) == 1

    erase(memory, "subject-2", "e-1")
    erasures.drain(memory, worker)

    assert erasures.published(memory)[-1][0].code == "REQUEST_ID_CONFLICT"
    assert set(erasures.rows_of(2)) <= erasures.live_rows(memory, "churn")


def test_a_store_that_was_lost_reads_the_receipts_that_the_topic_still_has(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    forget_receipts(memory)
    erase(memory, "subject-2", "e-2")
    erasures.drain(memory, worker)
    memory.raw().delete(ERASURE_RECEIPTS)
    memory.raw().hdel(ERASED_CURSORS, "receipts")

    erase(memory, "subject-2", "e-2")
    erasures.drain(memory, worker)

    first, again = final_receipts(memory)
    assert first == again
