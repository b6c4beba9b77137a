"""The OpenAPI document: whole, true to JSON Schema, and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from lethe.consumers.server.app import openapi_document


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def references(value: Any) -> Iterator[str]:
    """Yield every reference in a document."""
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from references(one)


def test_it_is_openapi_3_1_with_every_route(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert {f"{method} {path}" for path, item in document["paths"].items() for method in item} == {
        "post /v1/models/{model_id}/deletions",
        "get /v1/models/{model_id}/deletions/{request_id}",
        "post /v1/erasures",
        "get /v1/erasures/{erasure_id}",
        "get /v1/erasures/{erasure_id}/evidence",
        "post /v1/erasures/{erasure_id}/evidence",
        "get /v1/models",
        "get /v1/models/{model_id}",
        "get /v1/models/{model_id}/versions",
        "get /v1/models/{model_id}/parameters",
        "get /opendsr/v1/discovery",
        "get /opendsr/v1/certificate",
        "post /opendsr/v1/requests",
        "get /opendsr/v1/requests/{subject_request_id}",
        "delete /opendsr/v1/requests/{subject_request_id}",
    }


def test_every_reference_leads_somewhere_in_it(document: dict[str, Any]) -> None:
    found = set(references(document))
    assert found
    for reference in found:
        place: Any = document
        assert reference.startswith("#/"), reference
        for part in reference[2:].split("/"):
            place = place[part]


def test_its_schemas_are_json_schema(document: dict[str, Any]) -> None:
    bodies = [
        media["schema"]
        for item in document["paths"].values()
        for operation in item.values()
        for media in operation.get("requestBody", {}).get("content", {}).values()
    ]
    assert len(bodies) == 4
    for schema in (*document["components"]["schemas"].values(), *bodies):
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_operation_needs_a_key_and_says_what_an_error_is(document: dict[str, Any]) -> None:
    assert document["security"] == [{"key": []}]
    for item in document["paths"].values():
        for operation in item.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert "422" not in operation["responses"]


def test_a_body_of_the_schema_is_what_the_route_takes(document: dict[str, Any]) -> None:
    """As the event is documented, but for what the path says."""
    route = document["paths"]["/v1/models/{model_id}/deletions"]["post"]
    schema = route["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator(schema)

    assert validator.is_valid({"row_ids": ["u1", 7]})
    assert validator.is_valid({"subject_id": "s", "strict": True, "request_id": "r"})
    empty: dict[str, Any] = {}
    assert not validator.is_valid(empty)
    assert not validator.is_valid({"row_ids": []})
    assert not validator.is_valid({"row_ids": [1.5]})
    assert not validator.is_valid({"row_ids": ["u"], "subject_id": "s"})
