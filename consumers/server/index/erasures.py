"""Queries about erasures: a page of them, and one with its combined receipt."""

from __future__ import annotations

import sqlite3

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.server.index.requests import PAGE, NumberedPage


def erasures_page(connection: sqlite3.Connection, first: int = 0) -> NumberedPage:
    """Return a page of erasures, the newest first."""
    total = connection.execute("SELECT count(*) FROM erasures").fetchone()[0]
    rows = connection.execute(
        "SELECT * FROM erasures ORDER BY at DESC, id DESC LIMIT ? OFFSET ?", (PAGE, first)
    ).fetchall()
    return NumberedPage(rows, total, first)


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
