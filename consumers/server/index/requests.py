"""Queries about requests: a page of them with filters, and one with its receipts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lethe.consumers.server.index.schema import mark_of

PAGE = 50
"""Requests of one page: about 30 KB of HTML."""

COUNTED = 10_000
"""Counting stops here: "10,000 and more" says as much to a person, and costs the same always."""

Visible = frozenset[str] | None
"""The models that somebody may see; None: all."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which requests to show; ``before`` and ``after`` are places between pages.

    Attributes
    ----------
    model_id, request_id, status, code
        Exact values; a request id also by its first characters.
    version
        Only what was applied in a version of this number.
    since, until
        RFC 3339 times in UTC, or the beginning of one: ``2026-11-24``.
    """

    model_id: str = ""
    request_id: str = ""
    status: str = ""
    code: str = ""
    version: int | None = None
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page, the newest first; ``older`` and ``newer`` lead to its neighbours, if there are any.

    ``total`` counts all that match, up to `COUNTED`.
    """

    rows: Sequence[sqlite3.Row]
    total: int
    older: str | None
    newer: str | None


@dataclass(frozen=True, slots=True)
class NumberedPage:
    """One page of a list; ``first`` is the number of its first row, from 0."""

    rows: Sequence[sqlite3.Row]
    total: int
    first: int


def page_of(
    connection: sqlite3.Connection,
    filters: Filters,
    visible: Visible = None,
    *,
    before: str = "",
    after: str = "",
) -> Page:
    """Return a page of requests; ``before`` or ``after`` is where a neighbouring page ended."""
    where, values = _conditions(filters, visible)
    total = _total(connection, where, values)
    place, upwards = _place(after or before), bool(after)
    if place is not None:
        where += f" AND (at, id) {'>' if upwards else '<'} (?, ?)"
        values = [*values, *place]
    order = "ASC" if upwards else "DESC"
    rows = connection.execute(
        f"SELECT * FROM requests WHERE {where} ORDER BY at {order}, id {order} LIMIT {PAGE + 1}",  # noqa: S608
        values,
    ).fetchall()
    more, rows = len(rows) > PAGE, rows[:PAGE]
    if upwards:
        rows.reverse()
    older = more or upwards if rows else False
    newer = more if upwards else place is not None
    return Page(
        rows,
        total,
        _named(rows[-1]) if older else None,
        _named(rows[0]) if newer and rows else None,
    )


def requests_of_subject(
    connection: sqlite3.Connection, subject_id: str, visible: Visible = None, first: int = 0
) -> NumberedPage:
    """Return a page of the requests that name a subject, the newest first."""
    where, values = _conditions(Filters(), visible)
    where, values = f"{where} AND mark = ?", [*values, mark_of(connection, subject_id)]
    counting = f"SELECT count(*) FROM requests WHERE {where}"  # noqa: S608 - no value is in it
    rows = connection.execute(
        f"SELECT * FROM requests WHERE {where} ORDER BY at DESC, id DESC LIMIT {PAGE} OFFSET ?",  # noqa: S608
        [*values, first],
    ).fetchall()
    return NumberedPage(rows, connection.execute(counting, values).fetchone()[0], first)


def _conditions(filters: Filters, visible: Visible) -> tuple[str, list[Any]]:
    parts: list[str] = ["1"]
    values: list[Any] = []
    exact = {"model_id": filters.model_id, "status": filters.status, "code": filters.code}
    for column, value in exact.items():
        if value:
            parts.append(f"{column} = ?")
            values.append(value)
    if filters.request_id:
        parts.append("request_id >= ? AND request_id < ?")
        values += [filters.request_id, filters.request_id + "\U0010ffff"]
    if filters.version is not None:
        parts.append("version = ? AND status = 'APPLIED'")
        values.append(filters.version)
    if filters.since:
        parts.append("at >= ?")
        values.append(filters.since)
    if filters.until:
        parts.append("at < ?")
        values.append(filters.until + "\U0010ffff")
    if visible is not None:
        parts.append(f"model_id IN ({', '.join('?' * len(visible))})")
        values += sorted(visible)
    return " AND ".join(parts), values


def _total(connection: sqlite3.Connection, where: str, values: Sequence[Any]) -> int:
    """Return how many requests match, up to one more than `COUNTED`."""
    matching = f"SELECT 1 FROM requests WHERE {where} LIMIT {COUNTED + 1}"  # noqa: S608
    row = connection.execute(f"SELECT count(*) FROM ({matching})", values).fetchone()  # noqa: S608
    return int(row[0])


def _place(named: str) -> tuple[str, int] | None:
    """Return the place between two pages that a link names."""
    at, _, number = named.rpartition("~")
    return (at, int(number)) if at and number.isdecimal() and len(number) < 16 else None


def _named(row: sqlite3.Row) -> str:
    return f"{row['at']}~{row['id']}"


@dataclass(frozen=True, slots=True)
class RequestHistory:
    """One request, when it was sent, and its receipts, as the topics have them, in order."""

    request: sqlite3.Row
    sent: Sequence[sqlite3.Row]
    receipts: Sequence[tuple[sqlite3.Row, dict[str, Any]]]


def request_history(
    connection: sqlite3.Connection, model_id: str, request_id: str
) -> RequestHistory | None:
    """Return what the index knows of a request; None if it knows nothing."""
    named = (model_id, request_id)
    request = connection.execute(
        "SELECT * FROM requests WHERE model_id = ? AND request_id = ?", named
    ).fetchone()
    if request is None:
        return None
    sent = connection.execute(
        "SELECT * FROM sent WHERE model_id = ? AND request_id = ? ORDER BY at, position LIMIT 20",
        named,
    ).fetchall()
    receipts = connection.execute(
        "SELECT * FROM receipts WHERE model_id = ? AND request_id = ?"
        " ORDER BY completed_at, place LIMIT 20",
        named,
    ).fetchall()
    return RequestHistory(request, sent, [(row, json.loads(row["value"])) for row in receipts])


def counts_by_status(connection: sqlite3.Connection, visible: Visible = None) -> dict[str, int]:
    """Return how many requests have each status."""
    where, values = _conditions(Filters(), visible)
    rows = connection.execute(
        f"SELECT status, count(*) FROM requests WHERE {where} GROUP BY status",  # noqa: S608
        values,
    )
    return dict(rows.fetchall())


def codes(connection: sqlite3.Connection) -> list[str]:
    """Return the codes that requests have, for a list to choose from."""
    found: list[str] = []
    last = ""
    # One step of the index a code, where DISTINCT would read all of it.
    while row := connection.execute(
        "SELECT code FROM requests WHERE code > ? ORDER BY code LIMIT 1", (last,)
    ).fetchone():
        last = row[0]
        found.append(last)
    return found


def dead_letters(connection: sqlite3.Connection, visible: Visible) -> Sequence[sqlite3.Row]:
    """Return what lately became a dead letter: place, time, code and detail, the newest first.

    Who may not see every model sees those that could be read to name one of theirs.
    """
    models = sorted(visible or ())
    where = "1" if visible is None else f"model_id IN ({', '.join('?' * len(models))})"
    return connection.execute(
        f"SELECT * FROM sent WHERE code IS NOT NULL AND {where}"  # noqa: S608 - no value is in it
        f" ORDER BY at DESC LIMIT {PAGE}",
        models,
    ).fetchall()


def waiting(connection: sqlite3.Connection, visible: Visible, status: str) -> Page:
    """Return the oldest page of requests that wait for an answer, or for a rebuild."""
    where, values = _conditions(Filters(status=status), visible)
    total = _total(connection, where, values)
    rows = connection.execute(
        f"SELECT * FROM requests WHERE {where} ORDER BY at, id LIMIT {PAGE}",  # noqa: S608
        values,
    ).fetchall()
    return Page(rows, total, None, None)
