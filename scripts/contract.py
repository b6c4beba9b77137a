"""Write the contract for machines: JSON Schemas of the events, AsyncAPI and OpenAPI documents.

    python scripts/contract.py [--check]

They are made from the models of `lethe.consumers.contract.events`, from the settings of the topics
and from the routes of `lethe serve`, so that they cannot differ from what these do. They lie in
docs/contract/. With ``--check`` nothing is written: the exit code is 1 if a file is not up to date.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from lethe.consumers.contract import erasure_events, events, topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.log.base import TopicSpec
from lethe.consumers.server.app import openapi_document

OUT = Path(__file__).resolve().parent.parent / "docs" / "contract"
ASYNCAPI = "asyncapi.json"
OPENAPI = "openapi.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/components/schemas/{model}"
_INFO = {
    "title": "Lethe",
    "version": "1",
    "description": "Deletion requests in; receipts, versions and parameters of models out. The "
    "record key is the model id. docs/events.md explains each event.",
    "license": {"name": "Apache-2.0"},
}


@dataclass(frozen=True, slots=True)
class Described:
    """An event: its model, its topic, and whether Lethe reads it from others or writes it."""

    event_type: str
    model: type[BaseModel]
    topic: str
    action: Literal["receive", "send"]
    summary: str

    @property
    def name(self) -> str:
        """Name of the message, which is that of its model."""
        return self.model.__name__

    @property
    def mode(self) -> Literal["validation", "serialization"]:
        """Whether the schema is of what is accepted, or of what is written."""
        return "validation" if self.action == "receive" else "serialization"


EVENTS = (
    Described(
        events.DELETION_REQUESTED, events.DeletionRequest, topics.DELETIONS, "receive",
        "Delete rows of a model, named one by one or by their subject.",
    ),
    Described(
        events.ROWS_CHANGED, events.RowsChanged, topics.ROW_CHANGES, "receive",
        "Insert rows into a model, or correct live rows: all of them or none.",
    ),
    Described(
        events.DELETION_RECEIPT, Receipt, topics.RECEIPTS, "send",
        "The outcome of one request; final unless it is DEFERRED.",
    ),
    Described(
        events.MODEL_VERSION, events.Version, topics.VERSIONS, "send",
        "One version of a model, linked to the version before it.",
    ),
    Described(
        events.MODEL_PARAMETERS, events.Parameters, topics.MODELS, "send",
        "The newest parameters of a model, or where to find them.",
    ),
    Described(
        events.REFRESH_REQUESTED, events.RefreshRequested, topics.REFRESH_JOBS, "send",
        "A job for the refresh worker.",
    ),
    Described(
        erasure_events.SUBJECT_ERASURE_REQUESTED, erasure_events.SubjectErasureRequested,
        topics.ERASURES, "receive",
        "Erase a subject from every model that has subjects of its namespace, and keep it out.",
    ),
    Described(
        erasure_events.SUBJECT_ERASURE_COMPLETED, erasure_events.SubjectErasureCompleted,
        topics.ERASURE_RECEIPTS, "send",
        "What an erasure did in every model; final unless it is PENDING.",
    ),
)  # fmt: skip
"""What other programs write or read. Not here: lethe.commits, lethe.suppressions and completed
refreshes, which are Lethe's own, and dead letters, which hold other people's bytes."""


class _WithoutTitles(GenerateJsonSchema):
    """A field's title would be its name once more."""

    def field_title_should_be_set(self, _schema: Any) -> bool:
        """Return False, whatever the field."""
        return False


def schema_of(event: Described) -> dict[str, Any]:
    """Return the JSON Schema of one event, with everything that it refers to."""
    schema = event.model.model_json_schema(mode=event.mode, schema_generator=_WithoutTitles)
    return {"$schema": DIALECT, "$id": f"urn:lethe:{event.event_type}", **schema}


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3 document of all topics and events."""
    _, definitions = models_json_schema(
        [(event.model, event.mode) for event in EVENTS],
        ref_template=_REFERENCE,
        schema_generator=_WithoutTitles,
    )
    specs = {spec.name: spec for spec in topics.specs()}
    return {
        "asyncapi": "3.0.0",
        "id": "urn:lethe",
        "info": _INFO,
        "defaultContentType": "application/json",
        "channels": {_channel(event.topic): _channel_of(event, specs) for event in EVENTS},
        "operations": {_operation(event): _operation_of(event) for event in EVENTS},
        "components": {
            "messages": {event.name: _message(event) for event in EVENTS},
            "schemas": definitions["$defs"],
        },
    }


def files() -> dict[str, str]:
    """Return the content of every file by its name."""
    documents = {f"{event.event_type}.schema.json": schema_of(event) for event in EVENTS}
    documents[ASYNCAPI] = asyncapi()
    documents[OPENAPI] = openapi_document()
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in documents.items()
    }


# -- the parts of the document ---------------------------------------------------------------------


def _channel(topic: str) -> str:
    return topic.removeprefix("lethe.")


def _channel_of(event: Described, specs: dict[str, TopicSpec]) -> dict[str, Any]:
    spec = specs[event.topic]
    configuration: dict[str, Any] = {
        "cleanup.policy": ["compact" if spec.compacted else "delete"],
        "max.message.bytes": spec.max_message_bytes,
    }
    if spec.retention_ms is not None:
        configuration["retention.ms"] = spec.retention_ms
    return {
        "address": event.topic,
        "messages": {event.name: {"$ref": f"#/components/messages/{event.name}"}},
        "bindings": {
            "kafka": {"partitions": spec.partitions, "topicConfiguration": configuration},
        },
    }


def _operation(event: Described) -> str:
    return f"{event.action}{event.name}"


def _operation_of(event: Described) -> dict[str, Any]:
    channel = f"#/channels/{_channel(event.topic)}"
    return {
        "action": event.action,
        "channel": {"$ref": channel},
        "summary": event.summary,
        "messages": [{"$ref": f"{channel}/messages/{event.name}"}],
    }


def _message(event: Described) -> dict[str, Any]:
    return {
        "name": event.event_type,
        "title": event.summary.rstrip("."),
        "contentType": "application/json",
        "headers": _headers(event),
        "payload": {"$ref": _REFERENCE.format(model=event.name)},
        "bindings": {"kafka": {"key": {"type": "string", "description": "The model id."}}},
    }


def _headers(event: Described) -> dict[str, Any]:
    """Return the headers of CloudEvents in binary mode, which Lethe always writes."""
    text = {"type": "string"}
    required = ["ce_specversion", "ce_id", "ce_source", "ce_type"]
    optional = ["ce_subject", "ce_time", "content-type", "lethe-signature"]
    return {
        "type": "object",
        "properties": {
            **dict.fromkeys(required + optional, text),
            "ce_specversion": {"const": "1.0"},
            "ce_type": {"const": event.event_type},
        },
        "required": [] if event.action == "receive" else required,
    }


def main() -> int:
    """Write the files, or compare them with what is there."""
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(f"usage: {Path(__file__).name} [--check]", file=sys.stderr)
        return 2
    wanted = files()
    present = {path.name: path.read_text(encoding="utf-8") for path in OUT.glob("*.json")}
    if check:
        stale = sorted(name for name in wanted | present if wanted.get(name) != present.get(name))
        for name in stale:
            print(f"docs/contract/{name} is not up to date: run make contract", file=sys.stderr)
        return bool(stale)
    OUT.mkdir(exist_ok=True)
    for name in present.keys() - wanted.keys():
        (OUT / name).unlink()
    for name, content in wanted.items():
        (OUT / name).write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
