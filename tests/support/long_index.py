"""A console's index of a long history, as quickly as SQLite takes it."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.server.index.schema import IndexFile, mark_of
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE, subject_commitments


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


def fill_erasures(
    file: IndexFile, count: int, subject_id: str, seals: SealKeys | None = None
) -> None:
    """Write generated erasures of one person, up to now: most are complete, a tenth is open.

    With ``seals``, only receipts were read, and the first erasure alone is the person's.
    """
    now = datetime.now(UTC)
    with closing(file.open_for_writing()) as connection:
        mark = None if seals else mark_of(connection, subject_id)
        connection.execute("BEGIN")
        for i in range(count):
            status = ("INCOMPLETE", *["COMPLETE"] * 9)[i % 10]
            at, name = rfc3339(now - timedelta(seconds=60 * (count - i))), f"erasure-{i:06d}"
            commitment = None
            if seals:
                person = "somebody else" if i else subject_id
                commitment, *_ = subject_commitments(
                    seals, name, DEFAULT_NAMESPACE, person, "erase"
                )
            connection.execute(
                "INSERT INTO erasures (erasure_id, op, rank, status, at, asked_at, models,"
                " rows_deleted, partition, position, mark, commitment)"
                " VALUES (?, 'erase', 3, ?, ?, ?, 2, 6, 0, ?, ?, ?)",
                (name, status, at, at, i, mark, commitment),
            )
            connection.execute(
                "INSERT INTO requests (model_id, request_id, op, rank, status, at, rows_deleted,"
                " version, topic, partition, position, mark)"
                " VALUES ('m', ?, 'delete', 3, 'APPLIED', ?, 3, 1, 'e', 0, ?, ?)",
                (f"of-erasure-{i:06d}", at, i, mark),
            )
        connection.execute("COMMIT")
