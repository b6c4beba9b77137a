"""What a model's stored configuration and its waiting requests refuse."""

from __future__ import annotations

import json

import pytest

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.state import parse_deferred

PLACE = {"topic": "lethe.deletions", "partition": 3, "offset": 12}


def deferred(source: dict[str, object], request_id: str = "r1") -> bytes:
    fields = {"request_id": request_id, "body": "00", "row_ids": ["u1"], "rows_unknown": 0}
    return json.dumps({**fields, "code": "ILL_CONDITIONED", "source": source}).encode()


def test_a_waiting_request_is_read_with_its_place() -> None:
    assert parse_deferred(deferred({**PLACE}), "r1", "m").source == PLACE


@pytest.mark.parametrize(
    "source",
    [
        {"topic": "lethe.deletions", "partition": 3},
        {**PLACE, "offset": "12"},
        {**PLACE, "topic": 7},
        {},
    ],
)
def test_a_waiting_request_of_no_record_is_corrupt(source: dict[str, object]) -> None:
    """Its final receipt could not say which record it answers."""
    with pytest.raises(CorruptState, match="deferred request 'r1'"):
        parse_deferred(deferred(source), "r1", "m")


def test_a_waiting_request_under_the_id_of_another_is_corrupt() -> None:
    with pytest.raises(CorruptState, match="is request 'r2'"):
        parse_deferred(deferred({**PLACE}, "r2"), "r1", "m")
