"""What one record of a topic adds to the index.

Topics repeat records, and the index reads several topics, each at its own pace: so what a record
adds must not depend on when it is read, and adding it twice must change nothing. Of the outcomes of
one request, the one with the highest rank is shown.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from lethe.consumers.contract import cloudevents, codes, topics
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted, SubjectErasureRequested
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import HEADER
from lethe.consumers.deletions.dead_letters import read_letter
from lethe.consumers.deletions.validate import Invalid, Valid, validate
from lethe.consumers.log.base import Record
from lethe.consumers.server.index.schema import mark_of
from lethe.consumers.subscriber.history import read_version
from lethe.engine.errors import BrokenChain

WAITING = "WAITING"
"""Sent, and not answered yet."""

DEAD_LETTER = "DEAD_LETTER"
"""Not answered, because nobody on the list of keys signed it: it went to dead letters."""

_SENT, _CONFLICT, _NOT_FINAL, _FINAL = range(4)


def add(connection: sqlite3.Connection, record: Record) -> bool:
    """Add a record; False if there is nothing in it that the index can read."""
    adding = _adding().get(record.partition.topic)
    if adding is None:
        return False
    try:
        return adding(connection, record)
    except (ValueError, OverflowError, RecursionError, BrokenChain):
        return False  # `lethe audit` reports such records


def _add_request(connection: sqlite3.Connection, record: Record) -> bool:
    item = validate(record)
    if isinstance(item, Valid):
        request = item.request
        rows = None if request.row_ids is None else len(request.row_ids)
        named = (request.model_id, request.request_id, rows, request.subject_id)
        op = getattr(request, "op", "delete")
    elif isinstance(item, Invalid) and item.model_id and item.request_id:
        named, op = (item.model_id, item.request_id, None, None), "delete"
    else:
        return False
    model_id, request_id, rows, subject_id = named
    place = _add_sent(connection, record, (model_id, request_id), rows, subject_id)
    connection.execute(
        _UPSERT_SENT, (model_id, request_id, op, _SENT, WAITING, _moment(record), *place)
    )
    _note_dead_letter(connection, place)
    _note_subject(connection, model_id, request_id)
    return True


def _add_sent(
    connection: sqlite3.Connection,
    record: Record,
    identity: tuple[str, str],
    rows: int | None,
    subject_id: str | None,
) -> tuple[str, int, int]:
    """Note that a request was sent, and return where; an erasure has no model."""
    place = (record.partition.topic, record.partition.index, record.offset)
    mark = None if subject_id is None else mark_of(connection, subject_id)
    connection.execute(
        "INSERT INTO sent VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, ?)"
        " ON CONFLICT (topic, partition, position) DO UPDATE SET model_id = excluded.model_id,"
        " request_id = excluded.request_id, at = excluded.at, rows = excluded.rows,"
        " by_subject = excluded.by_subject, mark = excluded.mark",
        (*place, *identity, _moment(record), rows, subject_id is not None, mark),
    )
    return place


def _note_subject(connection: sqlite3.Connection, model_id: str, request_id: str) -> None:
    """Note which subject a request names, by the record whose outcome is shown.

    Another record of the same id may name another person; it is answered with a conflict.
    """
    connection.execute(
        "UPDATE requests SET mark = sent.mark FROM sent WHERE sent.mark IS NOT NULL"
        " AND (sent.topic, sent.partition, sent.position)"
        " = (requests.topic, requests.partition, requests.position)"
        " AND requests.model_id = ? AND requests.request_id = ?",
        (model_id, request_id),
    )


# A request that was answered UNKNOWN_MODEL or went to dead letters waits again if it is sent again.
_UPSERT_SENT = f"""
INSERT INTO requests (model_id, request_id, op, rank, status, at, topic, partition, position)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (model_id, request_id) DO UPDATE SET
  rank = excluded.rank, status = excluded.status, code = NULL, detail = NULL, at = excluded.at,
  rows_deleted = 0, rows_inserted = 0, rows_corrected = 0, rows_unknown = 0, version = NULL,
  topic = excluded.topic, partition = excluded.partition, position = excluded.position
WHERE (rank = {_SENT} OR code IS 'UNKNOWN_MODEL')
  AND (topic <> excluded.topic OR partition <> excluded.partition OR position < excluded.position)
"""  # noqa: S608 - no value of a record is in it


def _add_receipt(connection: sqlite3.Connection, record: Record) -> bool:
    value = record.value or b""
    receipt = Receipt.read(value)
    source, completed_at = receipt.source, rfc3339(receipt.completed_at)
    digest = hashlib.sha256(value).digest()
    place = f"{record.partition.topic}/{record.partition.index} at offset {record.offset}"
    connection.execute(
        "INSERT OR IGNORE INTO receipts VALUES (?, ?, ?, ?, ?, ?)",
        (receipt.model_id, receipt.request_id, digest, completed_at, place, value),
    )
    connection.execute(
        _UPSERT_RECEIPT,
        {
            **{name: getattr(receipt, name) for name in _COPIED},
            "rank": _rank(receipt),
            "at": completed_at,
            "topic": source.topic,
            "partition": source.partition,
            "position": source.offset,
        },
    )
    _note_subject(connection, receipt.model_id, receipt.request_id)
    return True


_COPIED = (
    "model_id", "request_id", "op", "status", "code", "detail", "rows_deleted", "rows_inserted",
    "rows_corrected", "rows_unknown", "version",
)  # fmt: skip
_UPSERT_RECEIPT = """
INSERT INTO requests (model_id, request_id, op, rank, status, code, detail, at, rows_deleted,
                      rows_inserted, rows_corrected, rows_unknown, version, topic, partition,
                      position)
VALUES (:model_id, :request_id, :op, :rank, :status, :code, :detail, :at, :rows_deleted,
        :rows_inserted, :rows_corrected, :rows_unknown, :version, :topic, :partition, :position)
ON CONFLICT (model_id, request_id) DO UPDATE SET
  op = excluded.op, rank = excluded.rank, status = excluded.status, code = excluded.code,
  detail = excluded.detail, at = excluded.at, rows_deleted = excluded.rows_deleted,
  rows_inserted = excluded.rows_inserted, rows_corrected = excluded.rows_corrected,
  rows_unknown = excluded.rows_unknown, version = excluded.version, topic = excluded.topic,
  partition = excluded.partition, position = excluded.position
WHERE (excluded.rank > rank OR (excluded.rank = rank AND excluded.at >= at))
  AND NOT (excluded.code IS 'UNKNOWN_MODEL' AND topic = excluded.topic
           AND partition = excluded.partition AND position > excluded.position)
  """


def _rank(receipt: Receipt) -> int:
    """Return how much an outcome says of its request; a conflict is about another body."""
    if receipt.code == REQUEST_ID_CONFLICT:
        return _CONFLICT
    # A request for an unknown model is not remembered: it can be sent again.
    pending = not receipt.final or receipt.code == codes.UNKNOWN_MODEL
    return _NOT_FINAL if pending else _FINAL


def _add_dead_letter(connection: sqlite3.Connection, record: Record) -> bool:
    letter = read_letter(record)
    if letter.source is None:
        return False
    place = (letter.source.topic, letter.source.partition, letter.source.offset)
    connection.execute(
        "INSERT INTO sent VALUES (?, ?, ?, '', '', ?, NULL, NULL, ?, ?, NULL)"
        " ON CONFLICT (topic, partition, position) DO UPDATE SET code = excluded.code,"
        " detail = excluded.detail",
        (*place, _moment(record), letter.code, letter.detail),
    )
    _note_dead_letter(connection, place)
    _note_dead_erasure(connection, place)
    return True


def _note_dead_letter(connection: sqlite3.Connection, place: tuple[str, int, int]) -> None:
    """Show a request that has no answer as a dead letter if the record at its place became one."""
    connection.execute(
        "UPDATE requests SET status = ?, code = sent.code, detail = sent.detail FROM sent"
        " WHERE (requests.model_id, requests.request_id) = (sent.model_id, sent.request_id)"
        " AND (requests.topic, requests.partition, requests.position)"
        " = (sent.topic, sent.partition, sent.position)"
        " AND (sent.topic, sent.partition, sent.position) = (?, ?, ?)"
        " AND sent.code IS NOT NULL AND requests.rank = ?",
        (DEAD_LETTER, *place, _SENT),
    )


def _add_erasure(connection: sqlite3.Connection, record: Record) -> bool:
    incoming = cloudevents.parse(record)
    if not isinstance(incoming.data, dict):
        return False
    event = SubjectErasureRequested.model_validate(incoming.data_with_id("erasure_id"))
    name, sent_at = event.erasure_id, _moment(record)
    place = _add_sent(connection, record, ("", name), None, event.subject_id)
    connection.execute(
        "INSERT INTO erasures (erasure_id, op, rank, status, at, partition, position, namespace,"
        " asked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (erasure_id) DO UPDATE SET at = excluded.at,"
        " status = excluded.status, code = NULL, detail = NULL, partition = excluded.partition,"
        " position = excluded.position, namespace = excluded.namespace"
        " WHERE rank = excluded.rank AND position < excluded.position",
        (name, event.op, _SENT, WAITING, sent_at, *place[1:],
         event.namespace, sent_at),
    )  # fmt: skip
    connection.execute(
        "UPDATE erasures SET asked_at = min(asked_at, ?), asked = 1 WHERE erasure_id = ?",
        (_asked_at(event, sent_at), name),
    )
    _note_dead_erasure(connection, place)
    _note_person(connection, name)
    return True


def _asked_at(event: SubjectErasureRequested, sent_at: str) -> str:
    """Return when an erasure was requested: when it says so itself, if that is before it was sent.

    A person who asked by letter has been waiting since then.
    """
    try:
        said = datetime.fromisoformat(event.requested_at)
        said = said.replace(tzinfo=said.tzinfo or UTC)
        return min(sent_at, rfc3339(said.astimezone(UTC)))
    except (TypeError, ValueError, OverflowError):
        return sent_at


def _note_dead_erasure(connection: sqlite3.Connection, place: tuple[str, int, int]) -> None:
    named = connection.execute(
        "UPDATE erasures SET status = ?, code = sent.code, detail = sent.detail FROM sent"
        " WHERE (erasures.partition, erasures.position) = (sent.partition, sent.position)"
        " AND (sent.topic, sent.partition, sent.position) = (?, ?, ?) AND sent.topic = ?"
        " AND sent.code IS NOT NULL AND sent.request_id = erasures.erasure_id"
        " AND erasures.rank = ? RETURNING erasure_id",
        (DEAD_LETTER, *place, topics.ERASURES, _SENT),
    ).fetchall()
    for (erasure_id,) in named:
        _note_person(connection, erasure_id)


def _note_person(connection: sqlite3.Connection, erasure_id: str) -> None:
    """Note whose erasure it is, and by which later one of the same person it is answered.

    An erasure that could not be completed is answered by one that was completed later.
    """
    connection.execute(
        "UPDATE erasures SET mark = sent.mark FROM sent WHERE sent.mark IS NOT NULL"
        " AND (sent.topic, sent.partition, sent.position)"
        " = (?, erasures.partition, erasures.position) AND erasures.erasure_id = ?",
        (topics.ERASURES, erasure_id),
    )
    connection.execute(
        "UPDATE erasures SET answered_by = done.erasure_id FROM erasures AS done"
        " WHERE done.erasure_id = ? AND done.status = 'COMPLETE' AND done.op = 'erase'"
        " AND erasures.mark = done.mark AND erasures.open = 1 AND erasures.at <= done.at"
        " AND erasures.status NOT IN ('WAITING', 'PENDING')"
        " AND erasures.namespace IS done.namespace",
        (erasure_id,),
    )
    connection.execute(
        "UPDATE erasures SET answered_by = (SELECT done.erasure_id FROM erasures AS done"
        " WHERE done.mark = erasures.mark AND done.open = 0 AND done.at >= erasures.at"
        " AND done.status = 'COMPLETE' AND done.op = 'erase'"
        " AND done.namespace IS erasures.namespace ORDER BY done.at LIMIT 1)"
        " WHERE erasure_id = ? AND op = 'erase' AND status IN ('INCOMPLETE', 'DEAD_LETTER')",
        (erasure_id,),
    )


def _add_erasure_receipt(connection: sqlite3.Connection, record: Record) -> bool:
    value = record.value or b""
    receipt = SubjectErasureCompleted.read(value)
    conflict = receipt.code == REQUEST_ID_CONFLICT
    rank = _CONFLICT if conflict else _FINAL if receipt.final else _NOT_FINAL
    at = _moment(record) if receipt.completed_at is None else rfc3339(receipt.completed_at)
    connection.execute(
        "INSERT INTO erasures (erasure_id, op, rank, status, code, detail, at, models, awaited,"
        " unknown, rows_deleted, value, receipt_position, partition, position, namespace,"
        " commitment, asked_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (erasure_id) DO UPDATE SET op = excluded.op, rank = excluded.rank,"
        " status = excluded.status, code = excluded.code, detail = excluded.detail,"
        " at = excluded.at, models = excluded.models, awaited = excluded.awaited,"
        " unknown = excluded.unknown, rows_deleted = excluded.rows_deleted,"
        " value = excluded.value,"
        " receipt_position = excluded.receipt_position, partition = excluded.partition,"
        " position = excluded.position, namespace = excluded.namespace,"
        " commitment = excluded.commitment, signature = NULL WHERE excluded.rank > rank"
        # Of several final receipts the first counts (docs/erasures.md), of others the newest.
        " OR (excluded.rank = rank"
        " AND (rank = ?) = (excluded.receipt_position < receipt_position))",
        (receipt.erasure_id, receipt.op, rank, receipt.status, receipt.code, receipt.detail, at,
         len(receipt.models), len(receipt.awaited), receipt.unknown, receipt.rows_deleted, value,
         record.offset, receipt.source.partition, receipt.source.offset, receipt.namespace,
         receipt.subject_commitment, at, _FINAL),
    )  # fmt: skip
    connection.execute(  # where the request is not known: it was asked for before that
        "UPDATE erasures SET asked_at = min(asked_at, ?) WHERE erasure_id = ?",
        (at, receipt.erasure_id),
    )
    signatures = [text.decode("latin-1") for name, text in record.headers if name == HEADER]
    connection.execute(
        "UPDATE erasures SET signature = ? WHERE erasure_id = ? AND value = ?"
        " AND signature IS NULL",
        (next(iter(signatures), None), receipt.erasure_id, value),
    )
    _note_person(connection, receipt.erasure_id)
    return True


def _add_version(connection: sqlite3.Connection, record: Record) -> bool:
    version = read_version(record, (record.key or b"").decode())
    error, refresh = version.error, version.refresh
    share = None if error.relative is None or not error.budget else error.relative / error.budget
    connection.execute(
        f"INSERT OR IGNORE INTO versions VALUES ({', '.join('?' * 22)})",  # noqa: S608 - constants
        (version.model_id, version.version, version.generation, version.digest, version.kind,
         version.method, version.status, rfc3339(version.created_at), version.rows_live,
         version.rows_deleted, error.kind, error.relative, error.bound, error.budget, error.over,
         version.completed, len(version.request_ids), version.commit,
         None if refresh is None else refresh.size.value,
         None if refresh is None else refresh.reason,
         None if refresh is None else refresh.seconds, record.value),
    )  # fmt: skip
    connection.execute(
        "INSERT INTO models VALUES (?, ?, ?, ?) ON CONFLICT (model_id) DO UPDATE SET"
        " version = excluded.version, over_budget = excluded.over_budget,"
        " error_share = excluded.error_share WHERE excluded.version > version",
        (version.model_id, version.version, error.over, share),
    )
    return True


def _moment(record: Record) -> str:
    """Return when the log took a record."""
    return rfc3339(record.logged_at)


def _adding() -> Mapping[str, Callable[[sqlite3.Connection, Record], bool]]:
    return {
        topics.DELETIONS: _add_request,
        topics.ROW_CHANGES: _add_request,
        topics.RECEIPTS: _add_receipt,
        topics.VERSIONS: _add_version,
        topics.ERASURES: _add_erasure,
        topics.ERASURE_RECEIPTS: _add_erasure_receipt,
        topics.DEAD_LETTERS: _add_dead_letter,
    }


def followed() -> tuple[str, ...]:
    """Return the topics that the index is made from."""
    return tuple(_adding())
