"""Versions that no trusted key signed: kept apart until one that is signed follows them.

A version names the digest of the one before it, so a signature vouches for all before it. So
versions from before signing began are shown, but versions that anybody else appends are not.
"""

from __future__ import annotations

import json
import sqlite3

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Version
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.server.index import records
from lethe.consumers.subscriber.history import read_version
from lethe.engine.errors import BrokenChain


def keep(connection: sqlite3.Connection, record: Record) -> int:
    """Keep an unsigned version; return how many it adds: the next one may be there already."""
    try:
        version = read_version(record, (record.key or b"").decode())
    except (ValueError, BrokenChain):
        return 0
    connection.execute(
        "INSERT OR IGNORE INTO unsigned VALUES (?, ?, ?, ?)",
        (version.model_id, version.version, version.digest, record.value),
    )
    row = connection.execute(
        "SELECT value FROM versions WHERE model_id = ? AND version = ?",
        (version.model_id, version.version + 1),
    ).fetchone()
    return 0 if row is None else _add_before(connection, version.model_id, row[0])


def release(connection: sqlite3.Connection, record: Record) -> int:
    """Add the unsigned versions that a signed one follows; return how many."""
    return _add_before(connection, (record.key or b"").decode(), record.value or b"")


def waiting(connection: sqlite3.Connection) -> int:
    """Return how many versions nobody vouches for."""
    return int(connection.execute("SELECT count(*) FROM unsigned").fetchone()[0])


def _add_before(connection: sqlite3.Connection, model_id: str, value: bytes) -> int:
    """Add the version that a value names as the one before it, and so on; return how many."""
    added = 0
    while True:
        after = Version.model_validate(json.loads(value))
        named = (model_id, after.version - 1, after.prev_digest)
        row = connection.execute(
            "SELECT value FROM unsigned WHERE (model_id, version, digest) = (?, ?, ?)", named
        ).fetchone()
        if row is None:
            return added
        value = row[0]
        connection.execute(
            "DELETE FROM unsigned WHERE (model_id, version, digest) = (?, ?, ?)", named
        )
        record = Record(Partition(topics.VERSIONS, "", 0), 0, model_id.encode(), value)
        added += records.add(connection, record)
