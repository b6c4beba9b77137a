"""What a model's stored configuration and its waiting requests refuse."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.state import parse_deferred


def test_the_service_refuses_the_kind_that_the_library_alone_has() -> None:
    with pytest.raises(ValidationError, match="softmax models are in the library only"):
        ModelConfig(
            model_id="m",
            kind=Kind.SOFTMAX,
            method="exact",
            ridge=1.0,
            fit_intercept=True,
            feature_names=("a",),
            target_names=("y",),
            error_budget=0.01,
        )


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
