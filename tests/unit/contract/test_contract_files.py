"""docs/contract: up to date, and true of what the workers read and write."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from lethe.consumers.contract import events
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.validate import Invalid, Valid, validate
from lethe.consumers.log.base import Partition, Record
from tests.support.published import releases
from tests.support.servers import ROOT

CONTRACT = ROOT / "docs" / "contract"
HERE = Partition("lethe.deletions", "id", 0)


def schema(event_type: str) -> jsonschema.Draft202012Validator:
    """Return the validator of an event."""
    document = json.loads((CONTRACT / f"{event_type}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def test_what_is_published_fits_its_schema() -> None:
    for release in releases(3, "m"):
        schema(events.MODEL_VERSION).validate(json.loads(release.version.value()))
        schema(events.MODEL_PARAMETERS).validate(json.loads(release.parameters.value()))


@pytest.mark.parametrize("status", ["APPLIED", "ALREADY_APPLIED", "REJECTED", "DEFERRED"])
def test_receipts_fit_their_schema(status: str) -> None:
    source = {"topic": "lethe.deletions", "partition": 0, "offset": 7}
    fields = {"request_id": "r", "model_id": "m", "status": status, "source": source}
    receipt = Receipt.model_validate({**fields, "completed_at": "2026-01-02T03:04:05Z"})
    written = json.loads(receipt.value())
    schema(events.DELETION_RECEIPT).validate(written)
    del written["source"]
    assert not schema(events.DELETION_RECEIPT).is_valid(written)


REQUESTS: list[tuple[dict[str, Any], bool]] = [
    ({"row_ids": ["a", "b"]}, True),
    ({"row_ids": [1, "2"], "strict": True, "reason": {"any": "thing"}}, True),
    ({"subject_id": "s", "row_ids": None}, True),
    ({"subject_id": 7}, True),
    ({}, False),
    ({"row_ids": []}, False),
    ({"row_ids": ["a"], "subject_id": "s"}, False),
    ({"row_ids": "a"}, False),
    ({"row_ids": [2.5]}, False),
    ({"row_ids": ["x" * 129]}, False),
    ({"row_ids": [""]}, False),
    ({"row_ids": ["a"], "strict": "yes"}, False),
    ({"row_ids": [str(i) for i in range(10_001)]}, False),
]


@pytest.mark.parametrize(("fields", "accepted"), REQUESTS)
def test_the_schema_of_a_request_says_what_the_worker_accepts(
    fields: dict[str, Any], accepted: bool
) -> None:
    request = {"request_id": "r", "model_id": "m", **fields}
    validated = validate(Record(HERE, 0, b"m", json.dumps(request).encode(), ()))
    assert isinstance(validated, Valid if accepted else Invalid)
    assert schema(events.DELETION_REQUESTED).is_valid(request) is accepted
