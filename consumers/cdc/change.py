"""A record of Debezium becomes one change of a row, whatever form it was written in.

It reads JSON envelopes with and without schema, CloudEvents, and records flattened by
``ExtractNewRecordState``. Messages never hold a value of a row: they reach logs and dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lethe.consumers.log.base import Record
from lethe.engine.store.layout.reading import parse_json

MAX_RECORD_BYTES = 8 << 20
"""Largest key or value of a record. Only the columns of a mapping need to be in the stream
(``column.include.list``): they take a thousandth of it."""

MAX_SCHEMA_DEPTH = 16
"""Deepest nesting of a schema: an envelope has three levels, and types nest a few more."""

Op = Literal["c", "u", "d", "r", "t", "m"]
"""Created, updated, deleted, read by a snapshot, truncated; a message that is no row's."""

Row = Mapping[str, Any]

_CONNECTORS = ("postgresql",)
_DECIMALS = ("org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal")
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_CLOUD_EVENT = "iodebezium"
_SOURCE = ("connector", "name", "db", "schema", "table", "lsn", "txId")
_ADD_FIELDS = f"add.fields=op,{','.join(_SOURCE)}"


class UnreadableChange(ValueError):
    """A record that is no change of a row; the message says why, without values of rows."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in the database a change was made.

    ``lsn`` and ``transaction`` are the same each time that the connector sends the change; its
    ``sequence`` is not, and so is left out. ``snapshot`` tells the records of a snapshot, and the
    first of them; it is empty if the record does not have it.
    """

    connector: str
    database: str
    table: str
    lsn: str
    transaction: str
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class CapturedChange:
    """One change of one row.

    Attributes
    ----------
    op
        What happened.
    origin
        Where it happened.
    key
        The columns of the record's key; empty if the table has no primary key.
    before, after
        The row before and after it, as far as the stream has them. Unless the table has REPLICA
        IDENTITY FULL, the columns of ``before`` outside the key are invented.
    new_key, old_key
        Whether this is the deletion, or the creation, by which a primary key changed.
    former
        The primary key before it changed, of a creation.
    encoded
        The columns whose schema says that they are base64 of a number.
    """

    op: Op
    origin: Origin
    key: Row
    before: Row | None = None
    after: Row | None = None
    new_key: bool = False
    old_key: bool = False
    former: Row | None = None
    encoded: frozenset[str] = frozenset()


def parse_change(record: Record, *, flattened: bool = False) -> CapturedChange | None:
    """Return the change in a record; None for a tombstone, whose value is missing or null.

    Raises
    ------
    UnreadableChange
        It is none that Debezium's connector for PostgreSQL writes as JSON.
    """
    key, key_encoded = _parse(record.key or None, "key")  # an empty key names nothing
    value, encoded = _parse(record.value, "value")
    if value is None:  # as JsonConverter writes the tombstones of ExtractNewRecordState
        return None
    if not isinstance(value, dict):
        raise UnreadableChange("the value is not a JSON object")
    headers = {name: content for name, content in record.headers if name in (_NEW_KEY, _OLD_KEY)}
    former, _ = _parse(headers.get(_OLD_KEY), f"header {_OLD_KEY}", strict=False)
    op, origin, before, after = _flattened(value) if flattened else _enveloped(value)
    return CapturedChange(
        op,
        origin,
        key if isinstance(key, dict) else {},
        before,
        after,
        new_key=_NEW_KEY in headers,
        old_key=_OLD_KEY in headers,
        former=former if isinstance(former, dict) else None,
        encoded=key_encoded | encoded,
    )


# -- the forms of a value -------------------------------------------------------------------------

_Parts = tuple[Op, Origin, Row | None, Row | None]


def _enveloped(value: dict[str, Any]) -> _Parts:
    if str(value.get("type", "")).startswith("io.debezium.") and "specversion" in value:
        return _cloud_event(value)
    source = value.get("source")
    if not isinstance(source, dict) or "op" not in value:
        raise UnreadableChange(
            "the value is not an envelope of Debezium (op, source, before, after); a record of "
            'ExtractNewRecordState needs format = "flattened" in the mapping'
        )
    op = _op(value["op"])
    return op, _origin(source), _row(value, "before"), _row(value, "after")


def _cloud_event(value: dict[str, Any]) -> _Parts:
    """Return the parts of a structured CloudEvent: the envelope's source is in its attributes."""
    # iodebeziumtxId, the transaction; iodebeziumtxid is of Debezium's own and often empty.
    source = {name: value.get(f"{_CLOUD_EVENT}{name}") for name in (*_SOURCE, "snapshot")}
    data = value.get("data")
    if not isinstance(data, dict):
        raise UnreadableChange("the CloudEvent has no data")
    op = _op(value.get(f"{_CLOUD_EVENT}op"))
    return op, _origin(source), _row(data, "before"), _row(data, "after")


def _flattened(value: dict[str, Any]) -> _Parts:
    """Return the parts of a flattened record; ``add.fields`` has put the source beside the row."""
    row = {name: content for name, content in value.items() if not name.startswith("__")}
    deleted = value.get("__deleted") in ("true", True)  # the text, unless a transform cast it
    if not deleted and "__op" not in value:
        raise UnreadableChange(
            "the record has no __op: ExtractNewRecordState needs "
            f"delete.tombstone.handling.mode=rewrite and {_ADD_FIELDS}"
        )
    op = "d" if deleted else _op(value["__op"])
    origin = _origin({name: value.get(f"__{name}") for name in _SOURCE})
    return (op, origin, row, None) if op == "d" else (op, origin, None, row)


def _op(value: object) -> Op:
    if value not in get_args(Op):
        raise UnreadableChange("its op is none of c, u, d, r, t and m")
    return value  # type: ignore[return-value]  # one of its values


def _origin(source: Mapping[str, Any]) -> Origin:
    """Return where a change was made; all of it is needed to tell a repeat from another change."""
    connector = source.get("connector")
    if connector not in _CONNECTORS:
        raise UnreadableChange(
            "the connector is not PostgreSQL's, or the record does not name it; flattened records "
            f"need {_ADD_FIELDS}"
        )
    named = [source.get(name) for name in ("name", "db", "schema", "table")]
    if not all(isinstance(one, str) and one for one in named):
        raise UnreadableChange("the source lacks name, db, schema or table")
    name, database, schema, table = named
    lsn, transaction = _number(source.get("lsn")), _number(source.get("txId"))
    if lsn is None or transaction is None:
        raise UnreadableChange("the source has no lsn or no txId: repeats could not be told apart")
    place = str(name), str(database), f"{schema}.{table}"
    return Origin(*place, lsn, transaction, str(source.get("snapshot") or ""))


def _number(value: object) -> str | None:
    """Return a whole number as text; CloudEvents write it as text, envelopes as a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.isdigit() and len(value) <= 20 else None


def _row(value: Mapping[str, Any], name: str) -> Row | None:
    row = value.get(name)
    if row is not None and not isinstance(row, dict):
        raise UnreadableChange(f"{name} is not an object")
    return row


# -- JSON, with and without schema ----------------------------------------------------------------


def _parse(content: bytes | None, what: str, *, strict: bool = True) -> tuple[Any, frozenset[str]]:
    """Return parsed JSON without its schema, and the columns that the schema says are base64."""
    if content is None:
        return None, frozenset()
    if len(content) > MAX_RECORD_BYTES:
        raise UnreadableChange(
            f"the {what} has {len(content)} bytes, more than {MAX_RECORD_BYTES}; name the columns "
            "that are needed in column.include.list"
        )
    try:
        return _unwrap(parse_json(content))
    except (ValueError, RecursionError):
        if not strict:
            return None, frozenset()
        raise UnreadableChange(
            f"the {what} is not JSON: the connector needs "
            f"{what}.converter=org.apache.kafka.connect.json.JsonConverter"
        ) from None


def _unwrap(document: Any) -> tuple[Any, frozenset[str]]:
    """Return a document without its schema, and without that of the data of a CloudEvent."""
    if not isinstance(document, dict):
        return document, frozenset()
    if document.keys() == {"schema", "payload"}:
        return document["payload"], frozenset(_encoded(document["schema"]))
    if "specversion" in document:
        data, encoded = _unwrap(document.get("data"))
        return {**document, "data": data}, encoded
    return document, frozenset()


def _encoded(schema: Any, depth: int = 0) -> Iterator[str]:
    """Yield the columns that a schema declares as decimals in bytes."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list) or depth > MAX_SCHEMA_DEPTH:
        return
    for field in fields:
        if isinstance(field, dict) and field.get("name") in _DECIMALS:
            yield str(field.get("field"))
        else:
            yield from _encoded(field, depth + 1)
