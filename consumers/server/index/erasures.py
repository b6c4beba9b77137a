"""Queries about erasures: a page of them, and one with its combined receipt."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted

PAGE = 50


@dataclass(frozen=True, slots=True)
class ErasuresPage:
    """One page of erasures, the newest first; ``first`` is the number of its first, from 0."""

    rows: Sequence[sqlite3.Row]
    total: int
    first: int


def erasures_page(connection: sqlite3.Connection, first: int = 0) -> ErasuresPage:
    """Return a page of erasures."""
    total = connection.execute("SELECT count(*) FROM erasures").fetchone()[0]
    rows = connection.execute(
        "SELECT * FROM erasures ORDER BY at DESC, id DESC LIMIT ? OFFSET ?", (PAGE, first)
    ).fetchall()
    return ErasuresPage(rows, total, first)


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
