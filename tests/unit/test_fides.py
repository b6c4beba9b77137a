"""The connector for fides has the form of its connectors, and sends what the contract accepts.

The form was rewritten from fides' own models (`SaaSConfig` and what it holds); no fides has read
the files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lethe.consumers.contract.erasure_events import SubjectErasureRequested

FIDES = Path(__file__).resolve().parents[2] / "deploy" / "fides"
CONFIG: dict[str, Any] = yaml.safe_load((FIDES / "config.yml").read_text())["saas_config"]
DATASET: list[dict[str, Any]] = yaml.safe_load((FIDES / "dataset.yml").read_text())["dataset"]

Schema = dict[str, Any]


def _object(required: Schema, **optional: Schema) -> Schema:
    return {
        "type": "object",
        "required": sorted(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


_TEXT: Schema = {"type": "string", "minLength": 1}
_NAMED_VALUES: Schema = {"type": "array", "items": _object({"name": _TEXT, "value": _TEXT})}
_ACTIONS = ("read", "update", "delete")
_SOURCES = ("identity", "references", "connector_param")
_PARAMETER: Schema = {
    **_object({"name": _TEXT}, **dict.fromkeys(_SOURCES, _TEXT), unpack={"type": "boolean"}),
    "oneOf": [{"required": [source]} for source in _SOURCES],
}
_REQUEST = _object(
    {"method": {"enum": ["GET", "POST", "PUT", "PATCH", "DELETE"]}, "path": _TEXT},
    headers=_NAMED_VALUES,
    query_params=_NAMED_VALUES,
    body=_TEXT,
    param_values={"type": "array", "items": _PARAMETER},
    data_path=_TEXT,
    ignore_errors={"type": "boolean"},
    skip_missing_param_values={"type": "boolean"},
)
_BEARER = _object({"strategy": {"const": "bearer"}, "configuration": _object({"token": _TEXT})})
CONNECTOR = _object(
    {
        "fides_key": {"const": "<instance_fides_key>"},
        "name": _TEXT,
        "type": {"type": "string", "pattern": "^[a-z_]+$"},
        "description": _TEXT,
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "connector_params": {
            "type": "array",
            "items": _object(
                {"name": _TEXT},
                label=_TEXT,
                description=_TEXT,
                default_value=_TEXT,
                sensitive={"type": "boolean"},
            ),
        },
        "client_config": _object(
            {"protocol": {"enum": ["http", "https"]}, "host": _TEXT, "authentication": _BEARER}
        ),
        "test_request": _REQUEST,
        "endpoints": {
            "type": "array",
            "minItems": 1,
            "items": _object(
                {
                    "name": _TEXT,
                    "requests": _object({}, read=_REQUEST, update=_REQUEST, delete=_REQUEST),
                }
            ),
        },
    }
)


def test_the_connector_has_the_form_of_fides_connectors() -> None:
    jsonschema.validate(CONFIG, CONNECTOR)
    [dataset] = DATASET
    assert dataset["fides_key"] == CONFIG["fides_key"]
    assert dataset["collections"] == []


@pytest.mark.parametrize(
    "change",
    [{"endpoint": []}, {"version": "1"}, {"test_request": {"method": "GET"}}],
    ids=["unknown field", "version", "no path"],
)
def test_another_form_is_noticed(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**CONFIG, **change}, CONNECTOR)


def test_every_placeholder_has_a_value() -> None:
    """fides raises an error when it finds none."""
    own = {parameter["name"] for parameter in CONFIG["connector_params"]}
    client = set(re.findall("<([^<>]+)>", json.dumps(CONFIG["client_config"])))
    assert client == own
    [endpoint] = CONFIG["endpoints"]
    request = endpoint["requests"]["delete"]
    values = {value["name"] for value in request["param_values"]} | {"privacy_request_id"}
    assert set(re.findall("<([^<>]+)>", request["body"] + request["path"])) == values


def test_it_sends_an_erasure_that_is_the_same_when_it_is_sent_again() -> None:
    [endpoint] = CONFIG["endpoints"]
    request = endpoint["requests"]["delete"]
    body = request["body"]
    for name, value in {"privacy_request_id": "pri_1", "subject": "anna"}.items():
        body = body.replace(f"<{name}>", value)
    event = SubjectErasureRequested.model_validate_json(body)
    assert (event.erasure_id, event.subject_id) == ("pri_1", "anna")
    assert (request["method"], request["path"]) == ("POST", "/v1/erasures")
