"""Records of change data capture: those that Debezium wrote once, and more in the same form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.consumers.cdc.mapping import Mapping as TableMapping
from lethe.consumers.log.base import Message, Partition, Record

RECORDED = Path(__file__).resolve().parents[1] / "unit" / "cdc" / "recorded"
CONNECTOR = "shop"
CUSTOMERS: dict[str, Any] = {
    "topic": "shop.public.customers",
    "table": "public.customers",
    "models": ["churn"],
    "key": {"id": "integer"},
}


def recorded(form: str) -> list[Record]:
    """Return what the connector wrote in one form (`scripts/record_changes.py`)."""
    lines = (RECORDED / f"{form}.jsonl").read_text(encoding="utf-8").splitlines()
    return [_record(json.loads(line)) for line in lines]


def _record(stored: Mapping[str, Any]) -> Record:
    key, value = stored["key"], stored["value"]
    return Record(
        Partition(stored["topic"], "topic-id", 0),
        stored["offset"],
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        tuple((name, content.encode()) for name, content in stored["headers"].items()),
    )


def mapping_of(*tables: Mapping[str, Any], connector: str = CONNECTOR) -> TableMapping:
    """Return a mapping of tables, each given by what differs from `CUSTOMERS`."""
    return TableMapping.model_validate(
        {"connector": connector, "tables": [{**CUSTOMERS, **table} for table in tables or ({},)]}
    )


def envelope(
    op: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    lsn: int | None = 1000,
    sequence: str = "1",
    **source: Any,
) -> dict[str, Any]:
    """Return an envelope as the connector writes it without schema."""
    return {
        "before": before,
        "after": after,
        "source": {
            "version": "3.7.0.Final",
            "connector": "postgresql",
            "name": CONNECTOR,
            "snapshot": "false",
            "db": "lethe",
            "sequence": f'[null,"{sequence}"]',
            "schema": "public",
            "table": "customers",
            "txId": 736,
            "lsn": lsn,
            **source,
        },
        "transaction": None,
        "op": op,
    }


def message(
    value: Any, key: Any = None, topic: str = CUSTOMERS["topic"], **headers: Any
) -> Message:
    """Return a record to send; ``headers`` are ``newkey`` and ``oldkey``."""
    return Message(
        topic,
        b"" if key is None else json.dumps(key).encode(),
        None if value is None else json.dumps(value).encode(),
        tuple((f"__debezium.{name}", json.dumps(one).encode()) for name, one in headers.items()),
    )


def record(value: Any, key: Any = None, **headers: Any) -> Record:
    """Return a record as it is read; bytes are taken as they are."""
    sent = message(None if isinstance(value, bytes) else value, key, **headers)
    content = value if isinstance(value, bytes) else sent.value
    return Record(Partition(sent.topic, "topic-id", 0), 7, sent.key or None, content, sent.headers)
