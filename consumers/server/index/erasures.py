"""Queries about erasures: a page of them, those of a person, and one with its combined receipt.

An erasure is open until it is complete or rejected, or until a later one of the same person is
complete. Open ones come first, the longest asked for first; then the others, the newest first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.server.index.requests import PAGE, NumberedPage
from lethe.consumers.server.index.schema import mark_of


@dataclass(frozen=True, slots=True)
class ErasureFilters:
    """Which erasures to show.

    Attributes
    ----------
    erasure_id
        The first characters of their ids.
    status
        Exactly this one; or `OPEN`.
    asked_before
        An RFC 3339 time in UTC: only those that were requested before then.
    """

    erasure_id: str = ""
    status: str = ""
    asked_before: str = ""


OPEN = "OPEN"
"""In place of a status: every erasure that somebody still waits for."""


def erasures_page(
    connection: sqlite3.Connection,
    first: int = 0,
    filters: ErasureFilters = ErasureFilters(),
    subject_id: str | None = None,
) -> NumberedPage:
    """Return a page of erasures; ``subject_id``: only those of this subject, in any namespace."""
    where, values = _conditions(filters)
    if subject_id is not None:
        where, values = f"{where} AND mark = ?", [*values, mark_of(connection, subject_id)]
    halves = (
        (f"open = 1 AND {where}", "asked_at, id"),
        (f"open = 0 AND {where}", "at DESC, id DESC"),
    )
    rows: list[sqlite3.Row] = []
    total, skip = 0, first
    for condition, order in halves:
        counted = _count(connection, condition, values)
        total += counted
        if len(rows) < PAGE:
            rows += connection.execute(
                f"SELECT * FROM erasures WHERE {condition} ORDER BY {order} LIMIT ? OFFSET ?",  # noqa: S608
                [*values, PAGE - len(rows), skip],
            ).fetchall()
        skip = max(0, skip - counted)
    return NumberedPage(rows, total, first)


def _conditions(filters: ErasureFilters) -> tuple[str, list[str | bytes]]:
    where, values = "1", list[str | bytes]()
    if filters.erasure_id:
        where += " AND erasure_id >= ? AND erasure_id < ?"
        values += [filters.erasure_id, filters.erasure_id + "\U0010ffff"]
    if filters.status == OPEN:
        where += " AND open = 1"
    elif filters.status:
        where += " AND status = ?"
        values.append(filters.status)
    if filters.asked_before:
        where += " AND asked_at < ?"
        values.append(filters.asked_before)
    return where, values


def _count(connection: sqlite3.Connection, where: str, values: Sequence[str | bytes]) -> int:
    counting = f"SELECT count(*) FROM erasures WHERE {where}"  # noqa: S608 - no value is in it
    return int(connection.execute(counting, values).fetchone()[0])


def late_and_open(connection: sqlite3.Connection, asked_before: str) -> tuple[int, int]:
    """Return how many open erasures were requested before a time, and how many are open."""
    late = "open = 1 AND asked_at < ?"
    return _count(connection, late, [asked_before]), _count(connection, "open = 1", [])


def erasure_of(
    connection: sqlite3.Connection, erasure_id: str
) -> tuple[sqlite3.Row, SubjectErasureCompleted | None] | None:
    """Return an erasure and its newest combined receipt, if there is one."""
    row = connection.execute(
        "SELECT * FROM erasures WHERE erasure_id = ?", (erasure_id,)
    ).fetchone()
    if row is None:
        return None
    return row, None if row["value"] is None else SubjectErasureCompleted.read(row["value"])
