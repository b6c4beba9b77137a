"""In which order rebuilds resolve the requests that wait for them."""

from __future__ import annotations

from datetime import UTC, datetime

from lethe.consumers.contract.events import Source
from lethe.consumers.versions.refresh_schedule import in_turn
from lethe.engine.store.layout.state import DeferredRequest

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def waiting(partition: int, offset: int) -> DeferredRequest:
    """Return a request that waits."""
    source = Source(topic="lethe.deletions", partition=partition, offset=offset)
    return DeferredRequest(
        request_id=f"{partition}/{offset}",
        body="",
        row_ids=("row",),
        rows_unknown=0,
        code="AWAITING_REBUILD",
        source=source.model_dump(),
    )


def test_the_oldest_of_a_partition_comes_first() -> None:
    first, second, third = waiting(0, 1), waiting(0, 12), waiting(1, 0)
    assert in_turn([third, second, first]) == [first, second, third]
