"""Follows the topics and the store, and writes what they say into the index.

Positions are written in the transaction of the records below them, so a kill at any moment loses
nothing and doubles nothing; and whatever is read twice adds nothing (`records`). One process
follows for a data directory; the others serve what it writes, and one of them takes over when it
ends.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed, signed_type
from lethe.consumers.log.base import Log, Partition, PartitionReset, Reader, Record
from lethe.consumers.server.index import records, unsigned
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.server.index.store_facts import StoreFacts, facts_of_models
from lethe.consumers.service.telemetry.logs import log_defect, logger
from lethe.engine.errors import LetheError
from lethe.engine.store.membership import models_that_lack_rows
from lethe.engine.store.store import ModelStore

DEFAULT_RETENTION = timedelta(days=90)
"""How long outcomes are shown where the log does not say how long it keeps receipts."""

_RECORDS = 500
_POLL_SECONDS = 0.2
_READ_SECONDS = 1.0
_PARTITIONS_SECONDS = 5.0  # between looks for new topics and partitions
_STORE_SECONDS = 3.0
_LOST_SECONDS = 60.0  # lost rows are counted: eight counts a model
_PRUNE_SECONDS = 600.0
_RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the index is: ``changes`` rises with everything that was added to it.

    ``behind`` counts the records that are known to be in the log and not in the index; ``trouble``
    says what keeps it from following.
    """

    changes: int = 0
    behind: int = 0
    caught_up: bool = False
    trouble: str | None = None
    ignored: int = 0


class IndexFollower:
    """Follows in a thread of its own (`running`); ``store`` may be shared with other threads."""

    def __init__(
        self, file: IndexFile, log: Log, store: ModelStore, trusted: TrustedKeys | None
    ) -> None:
        self._file = file
        self._log = log
        self._store = store
        self.trusted = trusted
        self._logger = logger("index")
        self._changed = threading.Condition()
        self._progress = Progress()
        self._stop = threading.Event()
        self._seen: object = None

    @property
    def progress(self) -> Progress:
        """How far the index is now."""
        with self._changed:
            return self._progress

    def wait(self, seen: int, timeout: float) -> Progress:
        """Return the progress once its ``changes`` differ from ``seen``, or after ``timeout``."""
        with self._changed:
            self._changed.wait_for(lambda: self._progress.changes != seen, timeout)
            return self._progress

    @contextmanager
    def running(self) -> Iterator[None]:
        """Follow until the block ends."""
        thread = threading.Thread(target=self._run, name="index", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._alone() as alone:
                    if alone:
                        self._follow()
                    else:
                        self._watch()
            except (LetheError, OSError, sqlite3.DatabaseError) as error:
                self._note(trouble=str(error))
                if isinstance(error, sqlite3.DatabaseError) and not _is_locked(error):
                    self._logger.warning("index is made again", action="index", reason=str(error))
                    with suppress(OSError, sqlite3.Error):
                        self._file.make_again(self.trusted).close()
                else:
                    self._logger.warning("index waits", action="index", reason=str(error))
            except Exception as error:  # the thread must go on, and pages say that it does not
                self._note(trouble=f"a defect ({type(error).__name__}); the server's log names it")
                log_defect(self._logger, "index", error)
            self._stop.wait(_RETRY_SECONDS)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Yield whether no other process follows for this file."""
        lock = self._file.path.with_suffix(".lock")
        lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    def _watch(self) -> None:
        """Note whether another process has written since the last look."""
        stamp = self._file.stamp()
        added = stamp != self._seen
        self._seen = stamp
        self._note(changes=self._progress.changes + added, caught_up=True, trouble=None)

    def _follow(self) -> None:
        with (
            closing(self._file.open_for_writing(self.trusted)) as connection,
            closing(self._log.reader()) as reader,
        ):
            feed = Feed(connection, reader, self.trusted, _retention(self._log))
            facts = _StoreWatch(connection, self._store)
            while not self._stop.is_set():
                added = feed.advance() + facts.advance()
                self._note(
                    changes=self._progress.changes + (added > 0),
                    behind=feed.behind,
                    caught_up=self._progress.caught_up or feed.behind == 0,
                    trouble=None,
                    ignored=feed.ignored,
                )
                if not added:
                    self._stop.wait(_POLL_SECONDS)

    def _note(self, **changes: object) -> None:
        with self._changed:
            before, self._progress = self._progress, replace(self._progress, **changes)  # type: ignore[arg-type]
            if before != self._progress:
                self._changed.notify_all()


class Feed:
    """Reads the topics step by step into one connection.

    Parameters
    ----------
    connection
        To a file that nobody else writes.
    reader
        Used by this feed alone.
    trusted
        Records of signed topics that none of these keys signed are left out, except versions that
        a signed one follows: the signature covers the digests of those before it.
    retention
        Outcomes that are older are removed.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        reader: Reader,
        trusted: TrustedKeys | None = None,
        retention: timedelta = DEFAULT_RETENTION,
    ) -> None:
        self.behind = 0
        self._ignored = 0
        self._connection = connection
        self._reader = reader
        self._trusted = trusted
        self._retention = retention
        self._next: dict[Partition, int] = {}
        self._looked = self._pruned = float("-inf")

    @property
    def ignored(self) -> int:
        """How many records were left out: unreadable, or nobody vouches for them."""
        return self._ignored + unsigned.waiting(self._connection)

    def advance(self) -> int:
        """Add what the log holds beyond the positions, one batch a partition; return how much.

        Raises
        ------
        LogUnavailable
            The log cannot be reached.
        """
        now = time.monotonic()
        if now - self._looked > _PARTITIONS_SECONDS:
            self._look()
            self._looked = now
        try:
            ends = self._reader.ends(self._next)
        except PartitionReset:
            self._looked = float("-inf")
            return 0
        added = 0
        for partition, end in ends.items():
            if self._next[partition] < end:
                added += self._read(partition)
        self.behind = sum(max(0, end - self._next[one]) for one, end in ends.items())
        if now - self._pruned > _PRUNE_SECONDS:
            added += self._prune()
            self._pruned = now
        return added

    def _look(self) -> None:
        """Find the partitions, and where to go on in each."""
        found = [one for topic in records.followed() for one in self._reader.partitions(topic)]
        known = {
            (topic, index): (topic_id, offset)
            for topic, index, topic_id, offset in self._connection.execute(
                "SELECT topic, partition, topic_id, next FROM positions"
            )
        }
        for partition in found:
            if partition in self._next:
                continue
            topic_id, offset = known.get((partition.topic, partition.index), ("", 0))
            bounds = self._reader.bounds(partition)
            if topic_id != partition.topic_id or not offset <= bounds.end:
                offset = 0  # another topic of the same name, or one that lost its end
            self._next[partition] = max(offset, bounds.begin)
        self._next = {one: offset for one, offset in self._next.items() if one in set(found)}

    def _read(self, partition: Partition) -> int:
        try:
            batch, after = self._reader.read(
                partition, self._next[partition], _READ_SECONDS, _RECORDS
            )
        except PartitionReset as reset:
            self._next[partition] = 0 if reset.bounds is None else reset.bounds.begin
            return 0
        with _transaction(self._connection):
            added = sum(self._add(record) for record in batch)
            self._connection.execute(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)",
                (partition.topic, partition.index, partition.topic_id, after),
            )
        self._next[partition] = after
        return added

    def _add(self, record: Record) -> int:
        topic, believed = record.partition.topic, is_believed(record, self._trusted)
        if not believed and topic == topics.VERSIONS:
            return unsigned.keep(self._connection, record)
        if believed and records.add(self._connection, record):
            signed = topic == topics.VERSIONS and self._trusted is not None
            return 1 + (unsigned.release(self._connection, record) if signed else 0)
        self._ignored += signed_type(topic) is not None
        return 0

    def _prune(self) -> int:
        """Remove the outcomes that the log may have removed, too."""
        oldest = rfc3339(datetime.now(UTC) - self._retention)
        with _transaction(self._connection):
            gone = self._connection.execute("DELETE FROM requests WHERE at < ?", (oldest,)).rowcount
            # What is not answered stays: it is later than anything else.
            self._connection.execute(
                "DELETE FROM erasures WHERE at < ? AND status NOT IN ('WAITING', 'PENDING')",
                (oldest,),
            )
            self._connection.execute("DELETE FROM sent WHERE at < ?", (oldest,))
            self._connection.execute("DELETE FROM receipts WHERE completed_at < ?", (oldest,))
        return gone


class _StoreWatch:
    """Writes what the store says of the models, whenever it has changed."""

    def __init__(self, connection: sqlite3.Connection, store: ModelStore) -> None:
        self._connection = connection
        self._store = store
        self._known: dict[str, StoreFacts] | None = None
        self._lost: frozenset[str] = frozenset()
        self._next = self._next_lost = float("-inf")

    def advance(self) -> int:
        """Look, if it is time; return how many models have changed."""
        now = time.monotonic()
        if now < self._next:
            return 0
        if now >= self._next_lost:
            self._lost = models_that_lack_rows(self._store.client)
            self._next_lost = now + _LOST_SECONDS
        facts = facts_of_models(self._store.client, self._lost)
        self._next = time.monotonic() + _STORE_SECONDS
        known = self._known or {}
        changed = [name for name in facts if facts[name] != known.get(name)]
        left = known.keys() - facts.keys()  # the store is one of before their registration
        if changed or left or self._known is None:
            with _transaction(self._connection):
                if self._known is None:
                    self._connection.execute("DELETE FROM store_facts")
                self._connection.executemany(
                    "DELETE FROM store_facts WHERE model_id = ?", [(name,) for name in left]
                )
                self._connection.executemany(
                    "INSERT OR REPLACE INTO store_facts VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [(name, *astuple(facts[name])) for name in changed],
                )
        self._known = facts
        return len(changed) + len(left)


def _is_locked(error: sqlite3.DatabaseError) -> bool:
    """Return whether somebody else writes to the file, which is whole."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _retention(log: Log) -> timedelta:
    """Return how long the log keeps receipts, if it says so."""
    milliseconds = log.topic_settings(topics.RECEIPTS).get("retention.ms", "")
    if not milliseconds.isdigit():  # another log, or -1: for ever
        return DEFAULT_RETENTION
    return min(timedelta(milliseconds=int(milliseconds)), timedelta(days=36_500))
