"""A console's index of a long history, as quickly as SQLite takes it."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

from lethe.consumers.contract.events import rfc3339
from lethe.consumers.server.index.schema import IndexFile


def fill(file: IndexFile, count: int, models: int) -> None:
    """Write generated outcomes of ``count`` requests to some models, up to now."""
    now = datetime.now(UTC)
    with closing(file.open_for_writing()) as connection:
        connection.execute("BEGIN")
        sql = (
            "INSERT INTO requests (model_id, request_id, op, rank, status, code, at, rows_deleted,"
            " version, topic, partition, position)"
            " VALUES (?, ?, 'delete', 3, ?, ?, ?, 1, ?, 't', 0, ?)"
        )
        codes = {"REJECTED": "UNKnowN_ROWS", "DEFERRED": "GENERATION_FULL"}
        for i in range(count):
            status = ("APPLIED", "APPLIED", "APPLIED", "REJECTED", "DEFERRED")[i % 5]
            at = rfc3339(now - timedelta(seconds=count - i))
            row = (f"model-{i % models:04d}", f"request-{i:06d}", status, codes.get(status))
            connection.execute(sql, (*row, at, i, i))
        for i in range(models):
            for number in range(3):
                name = f"model-{i:04d}"
                connection.execute(
                    "INSERT INTO versions VALUES (?, ?, 0, 'd', 'linear', 'pru', 'ACTIVE', ?, 9, 1,"
                    " 'estimate', 0.001, 0.002, 0.01, 0, 0, 1, 1, NULL, NULL, NULL, '{}')",
                    (name, number, rfc3339(now)),
                )
            connection.execute("INSERT INTO models VALUES (?, 2, 0, ?)", (name, i / models))
            connection.execute(
                "INSERT INTO store_facts VALUES (?, 'ACTIVE', 0, NULL, NULL, NULL, NULL)", (name,)
            )
        connection.execute("COMMIT")
