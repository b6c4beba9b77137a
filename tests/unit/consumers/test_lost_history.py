"""Which published receipt stands when a lost record is decided again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from consumers.events import Receipt, Source
from consumers.lost_history import Lost


def receipt(status: str, version: int, **more: Any) -> Receipt:
    return Receipt(
        request_id="r",
        model_id="m",
        status=status,  # type: ignore[arg-type]
        rows_deleted=1 if status == "APPLIED" else 0,
        version=version,
        source=Source(topic="lethe.deletions", partition=0, offset=3),
        completed_at=datetime(2026, 1, 1, tzinfo=UTC),
        **more,
    )


WAITS = {"code": "AWAITING_REBUILD"}


@pytest.mark.parametrize(
    ("published", "made", "stands"),
    [
        (receipt("APPLIED", 7), receipt("APPLIED", 7), True),
        (receipt("APPLIED", 7), receipt("APPLIED", 8), False),
        # of a version that the state has: the model was registered again since
        (receipt("APPLIED", 4), receipt("ALREADY_APPLIED", 7), True),
        # a pending one stands for no final one, whatever version it names (seed 1514)
        (receipt("DEFERRED", 4, **WAITS), receipt("APPLIED", 7), False),
        # the version in an answer that made none is the newest of that time (seed 1514)
        (receipt("ALREADY_APPLIED", 6), receipt("ALREADY_APPLIED", 7), True),
        # a final one whose version is lost stands where the request must wait now (seed 1435)
        (receipt("APPLIED", 7), receipt("DEFERRED", 5, **WAITS), True),
        (receipt("APPLIED", 5), receipt("DEFERRED", 5, **WAITS), True),
    ],
)
def test_a_published_receipt_stands_for_what_is_made_again(
    published: Receipt, made: Receipt, stands: bool
) -> None:
    lost = Lost(5, (), {}, (published,), None)
    assert lost.same_decision(made) == (published if stands else None)


def of(request_id: str, *receipts: Receipt) -> list[Receipt]:
    return [one.model_copy(update={"request_id": request_id}) for one in receipts]


@pytest.mark.parametrize(
    ("published", "waited"),
    [
        ([], False),
        ([receipt("APPLIED", 6)], False),
        ([receipt("DEFERRED", 5, **WAITS)], True),
        ([receipt("DEFERRED", 5, **WAITS), receipt("APPLIED", 6)], True),
        # the state has the version: the model was registered again since
        ([receipt("DEFERRED", 4, **WAITS), receipt("APPLIED", 5)], False),
        # a rebuild that is lost made its version, or another one did
        ([*of("s", receipt("DEFERRED", 5), receipt("APPLIED", 6)), receipt("APPLIED", 6)], True),
        ([*of("s", receipt("DEFERRED", 5), receipt("APPLIED", 7)), receipt("APPLIED", 6)], False),
    ],
)
def test_who_had_to_wait_is_told_by_what_was_published(
    published: list[Receipt], waited: bool
) -> None:
    lost = Lost(5, (), {}, tuple(published), None)
    assert lost.had_to_wait("r", receipt("APPLIED", 6).source) == waited
