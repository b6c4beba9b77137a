"""Queries about models: all of them with their errors, one model's versions, and what is halted."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from lethe.consumers.server.index.requests import PAGE, NumberedPage, Visible

VERSIONS = 100
"""Versions of one page of a timeline, and points of its chart."""

_MODELS = """
SELECT v.*, m.error_share, f.status AS stored_status, f.deferred, f.pending_reason,
       f.pending_since, f.trouble, f.trouble_detail
FROM models m
JOIN versions v ON v.model_id = m.model_id AND v.version = m.version
LEFT JOIN store_facts f ON f.model_id = m.model_id
"""


def models_page(
    connection: sqlite3.Connection,
    visible: Visible = None,
    *,
    begins: str = "",
    by_error: bool = False,
    first: int = 0,
) -> NumberedPage:
    """Return models in the order of their names, or those over or near their budgets first."""
    where, values = _seen("m.model_id", visible)
    if begins:
        where += " AND m.model_id >= ? AND m.model_id < ?"
        values += [begins, begins + "\U0010ffff"]
    total = connection.execute(
        f"SELECT count(*) FROM models m WHERE {where}",  # noqa: S608 - no value is in it
        values,
    ).fetchone()[0]
    order = "m.over_budget DESC, m.error_share DESC, m.model_id" if by_error else "m.model_id"
    rows = connection.execute(
        f"{_MODELS} WHERE {where} ORDER BY {order} LIMIT {PAGE} OFFSET ?", [*values, first]
    ).fetchall()
    return NumberedPage(rows, total, first)


def model_of(connection: sqlite3.Connection, model_id: str) -> sqlite3.Row | None:
    """Return a model's newest version, with what the store says of the model."""
    row: sqlite3.Row | None = connection.execute(
        f"{_MODELS} WHERE m.model_id = ?", (model_id,)
    ).fetchone()
    return row


def versions_of(
    connection: sqlite3.Connection, model_id: str, below: int | None = None
) -> Sequence[sqlite3.Row]:
    """Return a model's newest versions, the newest first; ``below``: those of lower numbers."""
    limit = 1 << 53 if below is None else below
    return connection.execute(
        "SELECT * FROM versions WHERE model_id = ? AND version < ? ORDER BY version DESC LIMIT ?",
        (model_id, limit, VERSIONS),
    ).fetchall()


def troubles(connection: sqlite3.Connection, visible: Visible = None) -> Sequence[sqlite3.Row]:
    """Return the models that a person must look at, or that wait for a refresh."""
    where, values = _seen("model_id", visible)
    return connection.execute(
        f"SELECT * FROM store_facts WHERE {where}"  # noqa: S608 - no value is in it
        " AND (trouble IS NOT NULL OR pending_reason IS NOT NULL OR deferred > 0)"
        f" ORDER BY trouble IS NULL, model_id LIMIT {PAGE}",
        values,
    ).fetchall()


def visible_models(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all models, and of those that requests name."""
    # One step of the index a model, where DISTINCT would read all requests.
    rows = connection.execute(
        "WITH RECURSIVE named (model_id) AS (SELECT min(model_id) FROM requests UNION ALL SELECT"
        " (SELECT min(model_id) FROM requests WHERE model_id > named.model_id) FROM named"
        " WHERE named.model_id IS NOT NULL)"
        " SELECT model_id FROM named WHERE model_id IS NOT NULL UNION SELECT model_id FROM models"
    )
    return [row[0] for row in rows]


def model_ids(connection: sqlite3.Connection, visible: Visible = None) -> list[str]:
    """Return the first models by name, for a list to choose from."""
    where, values = _seen("model_id", visible)
    rows = connection.execute(
        f"SELECT model_id FROM models WHERE {where} ORDER BY model_id LIMIT 200",  # noqa: S608
        values,
    )
    return [row[0] for row in rows]


def _seen(column: str, visible: Visible) -> tuple[str, list[str | int]]:
    if visible is None:
        return "1", []
    return f"{column} IN ({', '.join('?' * len(visible))})", sorted(visible)
