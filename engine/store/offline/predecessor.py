"""The model that a --replace replaces, read without trusting its state.

A replacement is the way out of a corrupt model, so nothing that it recreates is read here: thetas,
V, Q, the precomputation and the row records may all be damaged. What must be readable is where the
chain stands, which requests wait, and which rows and subjects the model had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import redis

from lethe.engine.errors import CorruptState, FormatTooNew, FormatTooOld
from lethe.engine.store.cursors import applied_of, queue_applied
from lethe.engine.store.layout.config import parse_config
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.meta import Meta, parse_meta
from lethe.engine.store.layout.reading import integer, parse_ids
from lethe.engine.store.layout.records import SECRET_BYTES
from lethe.engine.store.layout.state import (
    DeferredRequest,
    Head,
    check_stored_format,
    parse_deferred,
    parse_offsets,
)
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import CHUNK, read_list

_FIELDS = ("format", "commit", "digest", "version", "version_digest", "meta", "config")


@dataclass(frozen=True, slots=True)
class Predecessor:
    """What is known of a model, as far as a replacement needs it.

    Attributes
    ----------
    keys, head, version, digest
        Where its chains stand; -1 and empty if it was never registered.
    meta
        The head's meta; None if there is none, or it does not parse.
    offsets, deferred
        Next offsets to process, and requests that wait for a rebuild.
    deletions
        Number of deletions logged.
    ledger, inserted
        Rows that are deleted, or inserted, according to the log but not to the store.
    generations, datasets
        Names of what is live now.
    seal
        Name of the key that its newest commit is sealed with.
    secret
        The secret of its commitments, if it has one.
    applied
        The apply cursor that was read at the same moment: all commits below it are in this.
    expired
        Whether commits that the store never had have expired in the log: deletions may be unknown.
    gap
        Whether the log has a record that is ahead of it, and an operator goes on regardless.
    """

    keys: ModelKeys
    head: Head = field(default_factory=Head)
    version: int = -1
    digest: str = ""
    meta: Meta | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    deferred: Mapping[str, DeferredRequest] = field(default_factory=dict)
    deletions: int = 0
    ledger: frozenset[str] = frozenset()
    inserted: frozenset[str] = frozenset()
    generations: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    seal: str = ""
    secret: bytes | None = field(default=None, repr=False)
    applied: int = 0
    expired: bool = False
    gap: bool = False

    @property
    def registered(self) -> bool:
        """Whether a model is registered."""
        unregistered = self.meta is not None and self.meta.status == "UNREGISTERED"
        return self.head.commit >= 0 and not unregistered

    @property
    def rows_inserted(self) -> int:
        """How many rows were inserted since its rows were registered."""
        return 0 if self.meta is None else self.meta.rows_inserted


@dataclass(frozen=True, slots=True)
class Members:
    """Rows and subjects of data sets: ids in order, subject id to row ids.

    ``rows_inserted`` is how many rows had been inserted before they were read, at least.
    """

    datasets: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    subjects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows_inserted: int = 0

    def are_of(self, before: Predecessor) -> bool:
        """Return whether they are all of a model's rows and subjects."""
        return (self.datasets, self.rows_inserted) == (before.datasets, before.rows_inserted)


def read_predecessor(client: redis.Redis, keys: ModelKeys) -> Predecessor:
    """Read where a model stands in the store. Cost O(1).

    Raises
    ------
    FormatTooNew, FormatTooOld
        The state was written by a newer or by an older Lethe.
    CorruptState
        Not even the chain's place or the waiting requests can be read.
    """
    model_id = keys.model_id
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        pipeline.hmget(keys.head, [*_FIELDS, "secret", "rows", "seal"])
        pipeline.hgetall(keys.offsets)
        pipeline.hgetall(keys.deferred)
        pipeline.hlen(keys.ledger)
        queue_applied(pipeline, keys)
        head, offsets, deferred, ledger, cursors = pipeline.execute()
    applied = applied_of(cursors, model_id)
    stored_format, commit, digest, version, version_digest, stored_meta, config, *others = head
    secret, rows, seal = others
    if commit is None:
        return Predecessor(keys, applied=applied)
    meta = _meta(stored_format, stored_meta, config, model_id)
    try:
        newest = Head(integer(commit, "commit"), text(digest or b""))
        number = integer(version, "version")
        positions = parse_offsets(offsets, "offsets")
        waiting = {text(k): parse_deferred(v, text(k), model_id) for k, v in deferred.items()}
    except CorruptState as error:
        raise CorruptState(
            f"model {model_id!r}: where its chain stands, or which requests wait, cannot be read, "
            f"so it cannot be replaced; restore the store from a backup ({_line(error)})"
        ) from None
    generations = (text(rows),) if rows else ()
    datasets = () if meta is None or not meta.dataset_key else (meta.dataset_key,)
    return Predecessor(
        keys,
        newest,
        number,
        text(version_digest or b""),
        meta,
        positions,
        waiting,
        int(ledger) if meta is None else meta.deletions_logged,
        frozenset(),
        frozenset(),
        generations,
        datasets,
        "" if seal is None else text(seal),
        secret if secret is not None and len(secret) == SECRET_BYTES else None,
        applied,
    )


def read_members(client: redis.Redis, before: Predecessor) -> Members:
    """Read which rows the live data sets hold, and whose they are. Cost O(n) ids.

    Raises
    ------
    CorruptState
        A subject's rows cannot be read.
    """
    ids: dict[str, None] = {}
    subjects: dict[str, tuple[str, ...]] = {}
    for name in before.datasets:
        where = before.keys.dataset(name)
        for chunk in read_list(client, where.ids):
            ids |= dict.fromkeys(chunk)
        with reachable(client):
            for subject, rows in client.hscan_iter(where.subjects, count=CHUNK):
                subjects[text(subject)] = _rows(where.subjects, text(subject), rows)
    return Members(before.datasets, tuple(ids), subjects, before.rows_inserted)


def _meta(
    stored_format: bytes | None, stored: bytes | None, config: bytes | None, model_id: str
) -> Meta | None:
    try:
        check_stored_format(stored_format, model_id)
        return parse_meta(stored, parse_config(config, model_id))
    except (FormatTooNew, FormatTooOld):
        raise
    except CorruptState:
        return None


def _rows(key: str, subject: str, stored: bytes) -> tuple[str, ...]:
    try:
        return parse_ids(stored, "rows")
    except CorruptState:
        raise CorruptState(
            f"the rows of subject {subject!r} in {key} cannot be read; restore that field, or "
            "remove it and delete the subject's rows by their ids"
        ) from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
