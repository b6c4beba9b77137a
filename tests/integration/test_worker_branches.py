"""A store that was cut off with its worker, went on by itself, and is the store again."""

from __future__ import annotations

import pytest

from consumers import topics
from consumers.deletion_worker import BatchLimits
from tests.support.platform import Platform
from tests.support.stores import cut_off, put_back

pytestmark = pytest.mark.redis


def finds_the_branch(memory: Platform, branch: dict[bytes, bytes]) -> None:
    """Check that nothing of a branch gets out when its store is the store again."""
    versions, receipts = memory.versions(), memory.records(topics.RECEIPTS)
    put_back(memory, branch)
    worker = memory.deletion_worker()
    memory.drain(worker)
    [reason] = worker._halted.values()
    assert "went on by itself" in reason
    assert memory.versions() == versions
    assert memory.records(topics.RECEIPTS) == receipts


@pytest.mark.parametrize("rows", [("row-1", "row-2"), ("a stranger",)])
def test_a_branch_is_not_published(memory: Platform, rows: tuple[str, ...]) -> None:
    """Given requests that made two versions, or one that made none on either side."""
    memory.register("m", budget=10.0)
    memory.drain()
    for row in rows:
        memory.send("m", row)
    branch = cut_off(memory, BatchLimits(rows=1))
    worker = memory.deletion_worker()
    memory.drain(worker)
    worker.close()
    finds_the_branch(memory, branch)


def test_a_branch_is_found_behind_more_messages_than_are_read_at_once(memory: Platform) -> None:
    """Given a first commit of 258 messages, the last of which is its version."""
    memory.register("m", budget=10.0)
    memory.drain()
    for number in range(255):
        memory.send("m", f"a stranger {number}")
    memory.send_index("m", 1)
    memory.send_index("m", 2)
    branch = cut_off(memory, BatchLimits(rows=1))
    worker = memory.deletion_worker()
    assert worker.run_once(0.0) == 256
    worker.close()
    finds_the_branch(memory, branch)
