"""In which order rebuilds resolve the requests that wait for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from consumers.events import Receipt, Source
from consumers.refresh_order import in_turn
from engine.errors import CorruptState
from engine.store.state import Deferred

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def waiting(partition: int, offset: int, answered: float | None = None) -> Deferred:
    """Return a request that waits, answered so many seconds after `MOMENT`."""
    name = f"{partition}/{offset}"
    source = Source(topic="lethe.deletions", partition=partition, offset=offset)
    answer = None
    if answered is not None:
        answer = Receipt(
            request_id=name,
            model_id="m",
            status="APPLIED",
            version=1,
            source=source,
            completed_at=MOMENT + timedelta(seconds=answered),
        )
    return Deferred(
        request_id=name,
        body="",
        row_ids=("row",),
        rows_unknown=0,
        code="AWAITING_REBUILD",
        source=source.model_dump(),
        answer=None if answer is None else answer.value().decode(),
    )


def test_the_oldest_of_a_partition_comes_first() -> None:
    first, second, third = waiting(0, 1), waiting(0, 12), waiting(1, 0)
    assert in_turn([third, second, first]) == [first, second, third]


def test_the_answered_come_before_all_others_in_the_order_of_their_answers() -> None:
    """Two rebuilds may be lost: what the first one answered, the second one left alone."""
    first, second = waiting(1, 5, answered=0.0), waiting(0, 9, answered=60.0)
    third = waiting(0, 10, answered=60.0)
    other = waiting(0, 0)
    assert in_turn([other, third, second, first]) == [first, second, third, other]


def test_an_answer_that_does_not_parse_is_corrupt_state() -> None:
    damaged = waiting(0, 0).model_copy(update={"answer": "{"})
    with pytest.raises(CorruptState, match="its answer"):
        in_turn([damaged])
