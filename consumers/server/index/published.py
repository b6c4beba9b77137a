"""The index as the HTTP API reads it: receipts, versions, and a wait for more of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Log
from lethe.consumers.server.index.erasures import erasure_of
from lethe.consumers.server.index.follower import IndexFollower
from lethe.consumers.server.index.schema import IndexFile
from lethe.engine.store.store import ModelStore

_RECEIPT = """
SELECT value FROM receipts WHERE model_id = ? AND request_id = ?
ORDER BY value LIKE '%"code":"REQUEST_ID_CONFLICT"%', completed_at DESC LIMIT 1
"""


class IndexPublished:
    """A file of the index and what fills it; for any thread.

    ``trusted``: whose versions and receipts are in it; None: everybody's.
    """

    def __init__(self, file: IndexFile, follower: IndexFollower) -> None:
        self.file = file
        self.follower = follower
        self.trusted = follower.trusted

    def receipt(self, model_id: str, request_id: str) -> Receipt | None:
        """Return the newest receipt of a request, and one of a conflict if there is no other."""
        with self.file.read() as connection:
            row = connection.execute(_RECEIPT, (model_id, request_id)).fetchone()
        return None if row is None else Receipt.read(row["value"])

    def erasure(self, erasure_id: str) -> SubjectErasureCompleted | None:
        """Return the newest combined receipt of an erasure, final or not."""
        with self.file.read() as connection:
            found = erasure_of(connection, erasure_id)
        return None if found is None else found[1]

    def erasure_place(self, erasure_id: str) -> tuple[int, int] | None:
        """Return where the newest request of an erasure is: partition and offset."""
        with self.file.read() as connection:
            found = erasure_of(connection, erasure_id)
        return None if found is None else (found[0]["partition"], found[0]["position"])

    def versions(self, model_id: str, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return the first versions above number ``after``, ascending: number and JSON value."""
        with self.file.read() as connection:
            rows: Sequence[sqlite3.Row] = connection.execute(
                "SELECT version, value FROM versions WHERE model_id = ? AND version > ?"
                " ORDER BY version LIMIT ?",
                (model_id, after, limit),
            ).fetchall()
        return [(row["version"], row["value"]) for row in rows]

    def newest(self, model_id: str) -> int:
        """Return the number of a model's newest version; -1 if there is none."""
        with self.file.read() as connection:
            row = connection.execute(
                "SELECT version FROM models WHERE model_id = ?", (model_id,)
            ).fetchone()
        return -1 if row is None else int(row["version"])

    def wait(self, seen: int, seconds: float) -> int:
        """Return how often something was added, once that is not ``seen``, or after ``seconds``."""
        return self.follower.wait(seen, seconds).changes


@contextmanager
def followed(
    file: IndexFile, log: Log, store: ModelStore, trusted: TrustedKeys | None
) -> Iterator[IndexPublished]:
    """Follow the topics into a file until the block ends."""
    follower = IndexFollower(file, log, store, trusted)
    with follower.running():
        yield IndexPublished(file, follower)
