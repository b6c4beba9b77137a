"""The model that a --replace takes the place of, read without trusting what it replaces.

A replacement is the way out of a corrupt model, so nothing is read here that it makes anew:
thetas, V, Q, the precomputation and the row records may all be damaged. What must be readable is
where the chain stands, which requests wait, and which rows and subjects there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import redis

from engine.errors import CorruptState, FormatTooNew
from engine.store.commit import Expected
from engine.store.connection import reachable, text
from engine.store.head import SECRET_BYTES, Meta, check_format, parse_meta
from engine.store.keys import PREFIX, ModelKeys
from engine.store.reading import integer, names
from engine.store.state import Deferred, parse_deferred, parse_offsets
from engine.store.store import CHUNK


@dataclass(frozen=True, slots=True)
class Predecessor:
    """What is stored under a model's keys, as far as a replacement needs it.

    Attributes
    ----------
    keys
        Where.
    expected
        What a commit must find; the version is -1 where no model is registered.
    offsets
        Next offset to decide, by partition.
    deferred
        Requests that wait for a rebuild.
    deletions
        Length of the list of deletions.
    meta
        The head's meta; None where there is none, or it does not parse.
    generations, datasets
        Names of what is live now.
    secret
        The secret of its commitments, if it has one.
    """

    keys: ModelKeys
    expected: Expected
    offsets: Mapping[str, int]
    deferred: Mapping[str, Deferred]
    deletions: int
    meta: Meta | None
    generations: tuple[str, ...]
    datasets: tuple[str, ...]
    secret: bytes | None = field(default=None, repr=False)

    @property
    def version(self) -> int:
        """The newest version, -1 where no model is registered."""
        return self.expected.version

    @property
    def registered(self) -> bool:
        """Whether a model is registered."""
        return self.version >= 0


@dataclass(frozen=True, slots=True)
class Members:
    """Rows and subjects of data sets: ids in order, subject id to row ids."""

    datasets: tuple[str, ...]
    ids: tuple[str, ...]
    subjects: Mapping[str, tuple[str, ...]]


def read_predecessor(client: redis.Redis, keys: ModelKeys, model_id: str) -> Predecessor:
    """Read where a model stands. Cost O(1), and one scan of the store if its head is damaged.

    Raises
    ------
    FormatTooNew
        The state was written by a newer Lethe.
    CorruptState
        Not even the chain's place or the waiting requests can be read.
    """
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        pipeline.hmget(keys.head, ["format", "commit_seq", "version", "digest", "meta", "secret"])
        pipeline.hgetall(keys.offsets)
        pipeline.hgetall(keys.deferred)
        pipeline.llen(keys.deletions)
        pipeline.llen(keys.receipt_log)
        head, offsets, deferred, deletions, receipts = pipeline.execute()
    stored_format, commit_seq, version, digest, stored_meta, secret = head
    meta = _meta(stored_format, stored_meta, model_id)
    try:
        expected = Expected(
            integer(commit_seq or b"0", "commit_seq"),
            -1 if version is None else integer(version, "version"),
            "" if digest is None else text(digest),
            None,
            deletions,
            receipts,
        )
        positions = parse_offsets(offsets, "offsets")
        waiting = {text(k): parse_deferred(v, text(k), model_id) for k, v in deferred.items()}
    except CorruptState as error:
        raise CorruptState(
            f"model {model_id!r}: where its chain stands, or which requests wait, cannot be read, "
            f"so it cannot be replaced; restore the store from a backup ({_line(error)})"
        ) from None
    generations: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    if meta is not None:
        generations, datasets = (meta.generation_key,), (meta.dataset_key,)
    elif expected.version >= 0:
        generations, datasets = _live(client, keys, "gen"), _live(client, keys, "data")
    return Predecessor(
        keys, expected, positions, waiting, deletions, meta, generations, datasets, _secret(secret)
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
        ids |= dict.fromkeys(_ids(client, where.ids))
        with reachable(client):
            for subject, rows in client.hscan_iter(where.subjects, count=CHUNK):
                subjects[text(subject)] = _rows(where.subjects, text(subject), rows)
    return Members(before.datasets, tuple(ids), subjects)


def _secret(stored: bytes | None) -> bytes | None:
    return stored if stored is not None and len(stored) == SECRET_BYTES else None


def _meta(stored_format: bytes | None, stored: bytes | None, model_id: str) -> Meta | None:
    try:
        check_format(stored_format, model_id)
        return None if stored is None else parse_meta(stored, model_id)
    except FormatTooNew:
        raise
    except CorruptState:
        return None


def _live(client: redis.Redis, keys: ModelKeys, kind: str) -> tuple[str, ...]:
    """Return the names of the generations or data sets that do not expire."""
    prefix = f"{PREFIX}:{{{keys.tag}}}:{kind}:"
    with reachable(client):
        found = [text(key) for key in client.scan_iter(match=f"{prefix}*", count=CHUNK)]
        lasting = [key for key in found if client.ttl(key) == -1]
    return tuple(sorted({key[len(prefix) :].partition(":")[0] for key in lasting}))


def _ids(client: redis.Redis, key: str) -> Iterator[str]:
    start = 0
    while True:
        with reachable(client):
            chunk = client.lrange(key, start, start + CHUNK - 1)
        if not chunk:
            return
        yield from (text(row) for row in chunk)
        start += len(chunk)


def _rows(key: str, subject: str, stored: bytes) -> tuple[str, ...]:
    try:
        return names(stored, "rows")
    except CorruptState:
        raise CorruptState(
            f"the rows of subject {subject!r} in {key} cannot be read; restore that field, or "
            "remove it and delete the subject's rows by their ids"
        ) from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
