"""One change of a row becomes requests, a refusal, or nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from lethe.consumers.cdc.change import CapturedChange, Row, UnreadableChange, parse_change
from lethe.consumers.cdc.mapping import ColumnType, Mapping as TableMapping, Table
from lethe.consumers.cdc.naming import UNAVAILABLE, Unnamed, id_of, request_id_of
from lethe.consumers.contract.events import ChangedRow, DeletionRequest, RowsChanged
from lethe.consumers.log.base import PACKED_BATCH, Record

INVALID_CHANGE = "INVALID_CHANGE"
FOREIGN_CHANGE = "FOREIGN_CHANGE"
SUBJECT_CHANGED = "SUBJECT_CHANGED"
TABLE_TRUNCATED = "TABLE_TRUNCATED"

MAX_DETAIL = 300
"""Characters of a reason, which lies in a header of the dead letter."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_REASON = "change data capture"
_ZEROS: Mapping[ColumnType, tuple[object, ...]] = {
    "integer": (0,),
    "decimal": (0, "0"),
    "text": (),  # an invented text is empty, which names nobody anyway
}

Outcome = Literal[
    "deletion",
    "correction",
    "move",
    "tombstone",
    "created",
    "snapshot",
    "message",
    "ignored",
    "refused",
]

_INCREMENTAL = "incremental"
_FIRST = "first"

_WITHOUT_EFFECT: Mapping[str, Outcome] = {"c": "created", "r": "snapshot", "m": "message"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a correction of a model's row needs: its features and targets, in order."""

    features: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Insertion:
    """A row under its new id. It is sent only if the model still has ``former``, its old id.

    A row that was erased at a person's request must not come back because its key changed.
    """

    former: str
    request: RowsChanged


@dataclass(frozen=True, slots=True)
class Translated:
    """What a record asks for.

    Attributes
    ----------
    outcome
        In a word, for metrics.
    insertions
        Rows to insert, sent first.
    corrections, deletions
        Requests, sent after them.
    snapshot
        Whether it is of a snapshot that was taken as a whole, and not beside the stream.
    first
        Whether it is the first record of one.
    code, detail
        Why the record goes to the dead letters, if it does. Without values of the row.
    """

    outcome: Outcome
    insertions: tuple[Insertion, ...] = ()
    corrections: tuple[RowsChanged, ...] = ()
    deletions: tuple[DeletionRequest, ...] = ()
    snapshot: bool = False
    first: bool = False
    code: str | None = None
    detail: str = ""


def translate(record: Record, mapping: TableMapping, shapes: Mapping[str, Shape]) -> Translated:
    """Return what a record asks for.

    Parameters
    ----------
    record
        A record of one of the mapping's topics.
    mapping
        The whole mapping.
    shapes
        The shapes of the models whose rows are corrected, by model.
    """
    if any(name == PACKED_BATCH for name, _ in record.headers):
        return _refused(
            INVALID_CHANGE,
            "a batch of changes is compressed, and was not read: send them with "
            "producer.override.compression.type=none, and run `lethe reconcile`",
        )
    tables = mapping.by_topic[record.partition.topic]
    flattened = any(table.format == "flattened" for table in tables.values())
    try:
        change = parse_change(record, flattened=flattened)
        if change is None:
            return _tombstone(tables)
        foreign = change.origin.connector != mapping.connector
        table = None if foreign else tables.get(change.origin.table)
    except UnreadableChange as error:
        return _refused(INVALID_CHANGE, str(error))
    if table is None:
        return _refused(
            FOREIGN_CHANGE,
            f"connector {change.origin.connector!r}, table {change.origin.table!r}: the mapping "
            "names another connector, or not this table of the topic",
        )
    try:
        return _of_table(change, table, shapes)
    except Unnamed as error:
        return _refused(INVALID_CHANGE, f"table {table.table}: {error}")


def _refused(code: str, detail: str) -> Translated:
    return Translated("refused", code=code, detail=detail[:MAX_DETAIL])


def _tombstone(tables: Mapping[str, Table]) -> Translated:
    """Return what follows a deletion so that compaction forgets the row: nothing to do.

    In a flattened topic it can be the only trace of a deletion.
    """
    if any(one.format == "flattened" and one.tombstones == "refuse" for one in tables.values()):
        return _refused(
            INVALID_CHANGE,
            "a tombstone without a change: set delete.tombstone.handling.mode=rewrite, or with "
            'rewrite-with-tombstone write tombstones = "ignore" in the mapping',
        )
    return Translated("tombstone")


def _of_table(change: CapturedChange, table: Table, shapes: Mapping[str, Shape]) -> Translated:
    match change.op:
        case "d":
            return _deleted(change, table)
        case "u":
            return _updated(change, table, shapes)
        case "c" if change.old_key and table.key_changes == "correct":
            return _created_under_new_key(change, table, shapes)
        case "t":
            models = ", ".join(table.models)
            return _refused(
                TABLE_TRUNCATED,
                f"table {table.table} was truncated, and no record names its rows: export the "
                f"table and run `lethe reconcile MODEL --data FILE` for {models}",
            )
    marker = change.origin.snapshot
    whole = change.op == "r" and marker != _INCREMENTAL
    return Translated(_WITHOUT_EFFECT[change.op], snapshot=whole, first=marker == _FIRST)


# -- deletions ------------------------------------------------------------------------------------


def _deleted(change: CapturedChange, table: Table) -> Translated:
    if change.new_key and table.key_changes == "correct":
        return Translated("ignored")  # the creation that follows does both
    # A row that moves to another key is no reason to forget its subject.
    what = "row" if change.new_key else table.deletes
    columns = table.subject if what == "subject" and table.subject else table.key
    name = _former_name(change, table, columns)
    return Translated("deletion", deletions=_deletions(change, table, what, name))


def _deletions(
    change: CapturedChange, table: Table, what: Literal["row", "subject"], name: str
) -> tuple[DeletionRequest, ...]:
    """Return for each model the deletion of a row, or of all rows of a subject."""
    return tuple(
        DeletionRequest(
            request_id=request_id_of(change.origin, model_id, what, name),
            model_id=model_id,
            row_ids=(name,) if what == "row" else None,
            subject_id=name if what == "subject" else None,
            reason=_REASON,
        )
        for model_id in table.models
    )


def _former_name(change: CapturedChange, table: Table, columns: Mapping[str, ColumnType]) -> str:
    """Return the id that columns of the old row make; its primary key is the record's.

    Raises
    ------
    Unnamed
        A column is outside the primary key, and its old value was not sent: Debezium then invents
        one, an empty text, a zero, or the column's default.
    """
    key = change.key
    outside = [name for name in columns if name not in key]
    if not outside:
        return id_of(columns, key, change.encoded)
    full = f"ALTER TABLE {table.table} REPLICA IDENTITY FULL"
    if table.replica_identity != "full" or change.before is None:
        raise Unnamed(f"the old value of column {outside[0]!r} was not sent: {full}")
    if any(change.before.get(name) in _ZEROS[columns[name]] for name in outside):
        raise Unnamed(
            f"column {outside[0]!r} is zero, the value that Debezium invents when none was sent: "
            f"{full}"
        )
    return id_of(columns, {**change.before, **key}, change.encoded)


# -- corrections ----------------------------------------------------------------------------------


def _updated(change: CapturedChange, table: Table, shapes: Mapping[str, Shape]) -> Translated:
    """Return the correction of an updated row; or the deletion of one that has another id now."""
    after = {**(change.after or {}), **change.key}
    if not table.key.keys() <= change.key.keys():
        former = _former_name(change, table, table.key)
        if former != id_of(table.key, after, change.encoded):
            if table.key_changes == "correct":
                return _moved(change, table, former, shapes)
            deletions = _deletions(change, table, "row", former)
            return Translated("deletion", deletions=deletions)
    corrections: tuple[RowsChanged, ...] = ()
    if table.updates == "correct" and _concerns(change, table, shapes):
        corrections = tuple(_changed(change, "correct", table, shapes))
    if _has_another_subject(change, table):
        refused = _refused(
            SUBJECT_CHANGED,
            f"table {table.table}: the subject of a row changed, but the models keep the subject "
            "that they know: delete the row from them, or register them again with --replace",
        )
        return replace(refused, corrections=corrections)
    return Translated("correction" if corrections else "ignored", corrections=corrections)


def _created_under_new_key(
    change: CapturedChange, table: Table, shapes: Mapping[str, Shape]
) -> Translated:
    """Return what moves a row whose primary key changed; the record names its old key."""
    former = change.former
    if former is None:
        raise Unnamed(
            "the row's primary key changed, and the header that holds the old key is not JSON: "
            "the row was not erased under its old id; run `lethe reconcile`"
        )
    if not table.key.keys() <= former.keys():
        raise Unnamed(
            "the primary key of a row changed, but its id is made from other columns, and no "
            "record says whether those changed as well; run `lethe reconcile`"
        )
    return _moved(change, table, id_of(table.key, former, change.encoded), shapes)


def _moved(
    change: CapturedChange, table: Table, former: str, shapes: Mapping[str, Shape]
) -> Translated:
    """Return the deletion of a row under its old id, and its insertion under the new one.

    What cannot be inserted is refused, and erased all the same.
    """
    deletions = _deletions(change, table, "row", former)
    try:
        inserted = _changed(change, "insert", table, shapes)
        insertions = tuple(Insertion(former, request) for request in inserted)
    except Unnamed as error:
        detail = f"table {table.table}: {error}"
        return replace(_refused(INVALID_CHANGE, detail), deletions=deletions)
    return Translated("move", insertions=insertions, deletions=deletions)


def _has_another_subject(change: CapturedChange, table: Table) -> bool:
    """Return whether an updated row is another subject's now, as far as its old row tells."""
    before, after = change.before, change.after or {}
    if table.subject is None or table.replica_identity != "full" or before is None:
        return False
    return any(after.get(name) not in (before.get(name), UNAVAILABLE) for name in table.subject)


def _concerns(change: CapturedChange, table: Table, shapes: Mapping[str, Shape]) -> bool:
    """Return whether a model uses a column that changed; True if the old row was not sent."""
    before, after = change.before, change.after or {}
    if before is None or table.replica_identity != "full":
        return True
    names: set[str] = set()
    for model_id in table.models:
        shape = shapes[model_id]
        names |= {table.features.get(name, name) for name in (*shape.features, *shape.targets)}
    return any(before.get(name) != after.get(name) for name in names)


def _changed(
    change: CapturedChange,
    op: Literal["insert", "correct"],
    table: Table,
    shapes: Mapping[str, Shape],
) -> Iterator[RowsChanged]:
    """Yield for each model the row as it is now."""
    after = {**(change.after or {}), **change.key}
    name = id_of(table.key, after, change.encoded)
    subject = None
    if table.subject is not None and op == "insert":  # a corrected row keeps its own
        subject = id_of(table.subject, after, change.encoded)
    for model_id in table.models:
        shape = shapes[model_id]
        targets = [_number(after, table, target, change) for target in shape.targets]
        row = ChangedRow(
            id=name,
            values={name: _number(after, table, name, change) for name in shape.features},
            target=targets[0] if len(targets) == 1 else tuple(targets),
            subject=subject,
        )
        yield RowsChanged(
            request_id=request_id_of(change.origin, model_id, op, name),
            model_id=model_id,
            op=op,
            rows=(row,),
        )


def _number(row: Row, table: Table, name: str, change: CapturedChange) -> float:
    """Return the value of a feature or target; decimals are text, and true and false 1 and 0."""
    column = table.features.get(name, name)
    value = row.get(column)
    if isinstance(value, int | float) or (
        isinstance(value, str) and column not in change.encoded and _NUMBER.fullmatch(value)
    ):
        with suppress(OverflowError):  # a whole number of 400 digits
            number = float(value)
            if isfinite(number):
                return number
    raise Unnamed(
        f"column {column!r} is not a finite number; if it is numeric in the database, set "
        "decimal.handling.mode to string or double"
    )
