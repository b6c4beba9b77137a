"""The index file: its tables, and how it is opened, dropped and made again.

Nothing in it is needed elsewhere: the topics hold all of it. So a file of another format or a
damaged one is deleted, and the follower reads the topics again. It holds request ids, counts and
outcomes, and neither a row id nor a subject: in place of a subject it has a mark, by which requests
are found for a person who is named (`mark_of`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from lethe.consumers.contract.signatures import TrustedKeys

FORMAT = 4
"""Raised whenever a table changes; a file of another format is made again."""

FILE = "console.sqlite"

_BUSY_MS = 5_000  # a writer commits several times a second
_SUFFIXES = ("", "-wal", "-shm")

_TABLES = """
CREATE TABLE secret (value BLOB NOT NULL);

CREATE TABLE positions (
  topic TEXT NOT NULL, partition INTEGER NOT NULL, topic_id TEXT NOT NULL, next INTEGER NOT NULL,
  PRIMARY KEY (topic, partition)
) WITHOUT ROWID;

CREATE TABLE requests (
  id INTEGER PRIMARY KEY,
  model_id TEXT NOT NULL, request_id TEXT NOT NULL,
  op TEXT NOT NULL, rank INTEGER NOT NULL, status TEXT NOT NULL, code TEXT, detail TEXT,
  at TEXT NOT NULL,
  rows_deleted INTEGER NOT NULL DEFAULT 0, rows_inserted INTEGER NOT NULL DEFAULT 0,
  rows_corrected INTEGER NOT NULL DEFAULT 0, rows_unknown INTEGER NOT NULL DEFAULT 0,
  version INTEGER, topic TEXT NOT NULL, partition INTEGER NOT NULL, position INTEGER NOT NULL,
  mark BLOB, UNIQUE (model_id, request_id)
);
CREATE INDEX requests_by_time ON requests (at, id);
CREATE INDEX requests_of_model ON requests (model_id, at, id);
CREATE INDEX requests_by_status ON requests (status, at, id);
CREATE INDEX requests_by_code ON requests (code, at, id) WHERE code IS NOT NULL;
CREATE INDEX requests_by_request ON requests (request_id);
CREATE INDEX requests_of_version ON requests (model_id, version) WHERE version IS NOT NULL;
CREATE INDEX requests_of_subject ON requests (mark, at, id) WHERE mark IS NOT NULL;

CREATE TABLE sent (
  topic TEXT NOT NULL, partition INTEGER NOT NULL, position INTEGER NOT NULL,
  model_id TEXT NOT NULL, request_id TEXT NOT NULL, at TEXT NOT NULL, rows INTEGER,
  by_subject INTEGER, code TEXT, detail TEXT, mark BLOB,
  PRIMARY KEY (topic, partition, position)
) WITHOUT ROWID;
CREATE INDEX sent_of_request ON sent (model_id, request_id);
CREATE INDEX sent_by_time ON sent (at);
CREATE INDEX sent_refused ON sent (at) WHERE code IS NOT NULL;

CREATE TABLE receipts (
  model_id TEXT NOT NULL, request_id TEXT NOT NULL, digest BLOB NOT NULL,
  completed_at TEXT NOT NULL, place TEXT NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (model_id, request_id, digest)
);
CREATE INDEX receipts_by_time ON receipts (completed_at);

CREATE TABLE erasures (
  id INTEGER PRIMARY KEY, erasure_id TEXT NOT NULL UNIQUE,
  op TEXT NOT NULL, rank INTEGER NOT NULL, status TEXT NOT NULL, code TEXT, detail TEXT,
  at TEXT NOT NULL, models INTEGER NOT NULL DEFAULT 0, awaited INTEGER NOT NULL DEFAULT 0,
  unknown INTEGER NOT NULL DEFAULT 0,
  rows_deleted INTEGER NOT NULL DEFAULT 0, value BLOB, receipt_position INTEGER,
  partition INTEGER NOT NULL, position INTEGER NOT NULL,
  namespace TEXT, asked_at TEXT NOT NULL, asked INTEGER NOT NULL DEFAULT 0, mark BLOB,
  commitment TEXT, signature TEXT, answered_by TEXT,
  open INTEGER NOT NULL GENERATED ALWAYS AS (
    op = 'erase' AND (status IN ('WAITING', 'PENDING')
      OR status IN ('INCOMPLETE', 'DEAD_LETTER') AND answered_by IS NULL)
  ) VIRTUAL
);
CREATE INDEX erasures_by_due ON erasures (open, asked_at, id);
CREATE INDEX erasures_by_time ON erasures (open, at, id);
CREATE INDEX erasures_by_status ON erasures (status, open, at, id);
CREATE INDEX erasures_of_subject ON erasures (mark, open, at, id) WHERE mark IS NOT NULL;
CREATE INDEX erasures_without_mark ON erasures (id) WHERE mark IS NULL;

CREATE TABLE versions (
  model_id TEXT NOT NULL, version INTEGER NOT NULL, generation INTEGER NOT NULL,
  digest TEXT NOT NULL, kind TEXT NOT NULL, method TEXT NOT NULL, status TEXT NOT NULL,
  created_at TEXT NOT NULL, rows_live INTEGER NOT NULL, rows_deleted INTEGER NOT NULL,
  error_kind TEXT NOT NULL, error REAL, bound REAL, budget REAL NOT NULL,
  over_budget INTEGER NOT NULL, completed INTEGER NOT NULL, requests INTEGER NOT NULL,
  version_commit INTEGER NOT NULL,
  refresh TEXT, refresh_reason TEXT, refresh_seconds REAL, value BLOB NOT NULL,
  PRIMARY KEY (model_id, version)
);

CREATE TABLE unsigned (
  model_id TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (model_id, version, digest)
);

CREATE TABLE models (
  model_id TEXT PRIMARY KEY, version INTEGER NOT NULL, over_budget INTEGER NOT NULL,
  error_share REAL
) WITHOUT ROWID;
CREATE INDEX models_by_share ON models (over_budget, error_share);

CREATE TABLE store_facts (
  model_id TEXT PRIMARY KEY, status TEXT NOT NULL, deferred INTEGER NOT NULL,
  pending_reason TEXT, pending_since TEXT, trouble TEXT, trouble_detail TEXT
) WITHOUT ROWID;
"""


class IndexFile:
    """The file of one data directory. Each `read` and each writer has a connection of its own."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / FILE

    def open_for_writing(self, trusted: TrustedKeys | None = None) -> sqlite3.Connection:
        """Return a connection to a file of this format; any other is deleted first.

        So is one that was filled when other keys were trusted.
        """
        try:
            connection = self._connect()
            if _usable(connection) and _filled_under(connection) == _number_of(trusted):
                return connection
            connection.close()
        except sqlite3.DatabaseError:
            pass
        return self.make_again(trusted)

    def make_again(self, trusted: TrustedKeys | None = None) -> sqlite3.Connection:
        """Delete the file, and return a connection to an empty one."""
        for suffix in _SUFFIXES:
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        connection = self._connect()
        connection.execute("PRAGMA journal_mode = WAL")
        # At once: a reader finds a file of this format, or none.
        connection.executescript(
            f"BEGIN; {_new()} PRAGMA application_id = {_number_of(trusted)};"
            f" PRAGMA user_version = {FORMAT}; COMMIT"
        )
        return connection

    def _connect(self) -> sqlite3.Connection:
        # Only the owner may read it, also where the umask says otherwise.
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute("PRAGMA synchronous = NORMAL")  # what a crash loses is read again
        return connection

    def stamp(self) -> tuple[int, ...]:
        """Return what changes with every transaction of any process."""
        files = (self.path.with_name(self.path.name + suffix) for suffix in _SUFFIXES[:2])
        return tuple(file.stat().st_mtime_ns for file in files if file.exists())

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that only reads, and sees one moment.

        A file that is missing or damaged reads as an empty index: its follower makes it again.
        """
        connection = self._open_for_reading()
        if connection is None:
            connection = sqlite3.connect(":memory:", isolation_level=None)
            connection.executescript(_new())
        with closing(connection):
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute("BEGIN")
            yield connection

    def _open_for_reading(self) -> sqlite3.Connection | None:
        address = f"{self.path.absolute().as_uri()}?mode=ro"
        with suppress(sqlite3.DatabaseError), ExitStack() as stack:
            connection = sqlite3.connect(address, uri=True, isolation_level=None)
            stack.callback(connection.close)
            if _has_format(connection):
                stack.pop_all()
                return connection
        return None


def mark_of(connection: sqlite3.Connection, subject_id: str) -> bytes:
    """Return what stands for a subject in a file: HMAC-SHA256 under a secret of this file.

    It is the same in every namespace. Whoever has the file but not the subject learns which
    requests concern the same person, but not who that is.
    """
    [secret] = connection.execute("SELECT value FROM secret").fetchone()
    return hmac.digest(secret, subject_id.encode(), "sha256")


def _new() -> str:
    """Return what makes the tables of a new file, with a new secret."""
    return f"{_TABLES} INSERT INTO secret VALUES (x'{secrets.token_hex(32)}');"  # noqa: S608


def _usable(connection: sqlite3.Connection) -> bool:
    """Return whether a file has this format and is not damaged. Cost: one pass over the file."""
    if not _has_format(connection):
        return False
    return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")


def _has_format(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT)


def _filled_under(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def _number_of(trusted: TrustedKeys | None) -> int:
    """Return what tells a set of trusted keys from others; 0 without keys."""
    if trusted is None:
        return 0
    digest = hashlib.sha256("".join(sorted(trusted.keys)).encode()).digest()
    return 1 + int.from_bytes(digest[:4]) % 0x7FFF_FFFF  # SQLite keeps 31 bits and a sign
