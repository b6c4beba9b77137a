"""Reads what a run left behind: topics, the stores' state, and the bytes of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import redis
from numpy.typing import NDArray

from lethe.consumers.commits.packed_receipt import unpack
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log, Reader
from lethe.engine.store.layout.keys import SHARDS, ModelKeys
from lethe.engine.store.server.connection import text
from lethe.engine.store.store import ModelStore
from tests.proof.chaos.history import Final, History, Json, Record
from tests.proof.chaos.store_cluster import Store
from tests.proof.live_rows import Row

READ = (
    topics.DELETIONS,
    topics.ROW_CHANGES,
    topics.COMMITS,
    topics.RECEIPTS,
    topics.VERSIONS,
    topics.MODELS,
    topics.DEAD_LETTERS,
    topics.REFRESH_JOBS,
    topics.ERASURES,
    topics.ERASURE_RECEIPTS,
    topics.SUPPRESSIONS,
)
ROW_FILES = "rows"
_FILE_CHUNK = 64 << 20


def read_topics(log: Log, history: History) -> None:
    """Read every record of every topic, behind those of before it was made again."""
    with closing(log.reader()) as reader:
        for topic in READ:
            lives = [one for one in history.former if one and one[0].source[0] == topic]
            history.topics[topic] = [
                *(
                    replace(record, life=number - len(lives))
                    for number, records in enumerate(lives)
                    for record in records
                ),
                *read_topic(reader, topic),
            ]
            for partition in reader.partitions(topic):
                history.places[str(partition)] = (topic, partition.index)


def read_topic(reader: Reader, topic: str) -> list[Record]:
    """Read every record of a topic."""
    found = []
    for partition in reader.partitions(topic):
        bounds = reader.bounds(partition)
        offset = bounds.begin
        while offset < bounds.end:
            records, offset = reader.read(partition, offset, 5.0, 2000)
            for one in records:
                source = (topic, partition.index, one.offset)
                value = one.value or b""
                headers, time = dict(one.headers), one.timestamp_ms
                found.append(Record(source, one.key or b"", value, _object(value), headers, time))
    return found


def _object(value: bytes) -> Json | None:
    try:
        data = json.loads(value)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def read_final(store: ModelStore, raw: redis.Redis, model: str) -> Final:
    """Return what the store holds of a model."""
    state = store.load_model(model)
    keys: ModelKeys = state.keys
    live = state.generation_keys
    stored: Any = raw.hgetall(keys.requests)
    receipts = {}
    for name, kept in stored.items():
        known = unpack(kept, model, text(name))
        receipts[text(name)] = ("F" if known.final else "P", known.receipt.value().decode())
    ledger: Any = raw.hgetall(keys.ledger)
    dataset = keys.dataset(state.meta.dataset_key)
    disclosed: Any = raw.hgetall(dataset.disclosed)
    rows = frozenset(text(row) for shard in range(SHARDS) for row in raw.hkeys(live.rows(shard)))
    beside = state.meta.rows_in_store - len(rows)
    rows |= {row for one in store.row_files.every(state.meta) for row in one.ids} - {
        text(row) for row in ledger
    }
    generations = {
        text(key).split(":gen:")[1].split(":")[0]
        for key in raw.scan_iter(match=f"{keys.head.removesuffix('head')}gen:*", count=1000)
        if raw.ttl(key) == -1
    }
    leftovers = {
        "requests that wait": int(str(raw.hlen(keys.deferred))),
        "old generations that stay": len(generations - {live.name}),
        "cursors of its own": model in store.cursors.read(keys.partition).behind,
        "live rows without a record": state.meta.rows_live - len(rows) or beside,
    }
    return Final(
        commit=state.head.commit,
        commit_digest=state.head.digest,
        version=state.version,
        digest=state.digest,
        offsets=state.offsets,
        ledger={text(row): int(version) for row, version in ledger.items()},
        deletions_from=state.deletions_from,
        deletions=[text(row) for row in raw.lrange(keys.deletions, 0, -1)],
        receipts=receipts,
        rows=rows,
        leftovers={name: int(count) for name, count in leftovers.items()},
        published=state.stream.published,
        theta_exact=state.stream.theta_exact,
        disclosed={text(row): entries for row, entries in disclosed.items()},
    )


def remove_orphans(store: ModelStore, model: str) -> None:
    """Remove what refreshes that came to nothing have written, as housekeeping does in time."""
    files = store.row_files.of(store.load_model(model).meta)
    if files is not None:
        files.remove_orphans(-1.0)


# -- bytes of rows --------------------------------------------------------------------------------


class Search:
    """Looks for the bytes of rows' features anywhere in values and files.

    Values from before a correction count as deleted. In ``lethe.row-changes`` values are decimal
    text, which this does not find: they may lie there (docs/erased-data.md).

    A row's feature is a float64 of 52 random bits, so that one that is found was copied.
    """

    def __init__(self, history: History) -> None:
        needles: dict[str, list[NDArray[np.float64]]] = {"live": [], "deleted": []}
        for rows in history.rows.values():
            needles["live"] += [_numbers(row) for row in rows.live.values()]
            needles["deleted"] += [_numbers(life.row) for life in rows.past]
        self._needles = {
            kind: np.sort(_likely(np.concatenate(parts).view("<u8")))
            for kind, parts in needles.items()
        }

    def count(self, blobs: Iterator[bytes]) -> dict[str, int]:
        """Return how many numbers of live and of deleted rows are found, at any alignment."""
        found = dict.fromkeys(self._needles, 0)
        for blob in blobs:
            for shift in range(8):
                size = (len(blob) - shift) // 8
                if size <= 0:
                    break
                words = _likely(np.frombuffer(blob, "<u8", size, shift))
                for kind, needles in self._needles.items():
                    if len(needles):
                        at = np.minimum(np.searchsorted(needles, words), len(needles) - 1)
                        found[kind] += int((needles[at] == words).sum())
        return found


def _numbers(row: Row) -> NDArray[np.float64]:
    """Return the numbers of a row: of a table's columns, those that are no text and not missing."""
    return np.array([value for value in row.x if isinstance(value, float)])


def _likely(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the words that can be a feature: numbers of absolute value 2^-15 to 2^4."""
    exponent = (words >> np.uint64(52)) & np.uint64(0x7FF)
    return words[(exponent >= 1008) & (exponent < 1027)]


def values_of(raw: redis.Redis, *, staged: bool) -> Iterator[bytes]:
    """Yield every value, together with its fields: of keys that expire (staged), or that stay."""
    for key in raw.scan_iter(count=1000):
        if (int(str(raw.ttl(key))) >= 0) is not staged:
            continue
        kind = text(raw.type(key))
        found: Any
        match kind:
            case "string":
                found = [raw.get(key)]
            case "hash":
                found = [part for pair in raw.hgetall(key).items() for part in pair]
            case "list":
                found = raw.lrange(key, 0, -1)
            case "set":
                found = raw.smembers(key)
            case "zset":
                found = raw.zrange(key, 0, -1)
            case "stream":
                entries: Any = raw.xrange(key)
                found = [part for _, entry in entries for part in entry.values()]
            case _:
                raise ValueError(f"{text(key)} is a {kind}")
        yield b"\0".join(part for part in found if part)


def files_of(directories: Sequence[Path]) -> Iterator[bytes]:
    """Yield the files below some directories, in pieces that overlap."""
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            if not path.is_file():
                continue
            with path.open("rb") as handle:
                rest = b""
                while piece := handle.read(_FILE_CHUNK):
                    yield rest + piece
                    rest = piece[-7:]


def count_remains(history: History, store: Store, raw: redis.Redis, directory: Path) -> None:
    """Look for bytes of deleted rows in memory and files.

    What a refresh that was lost or killed had staged expires within six hours (docs/state.md);
    it is counted apart, and then made to expire.
    """
    search = Search(history)
    history.remains["memory of the store"] = search.count(values_of(raw, staged=False))
    history.staged = search.count(values_of(raw, staged=True))["deleted"]
    for key in raw.scan_iter(count=1000):
        if raw.ttl(key) >= 0:
            raw.unlink(key)
    for name, data in store.rewritten().items():
        history.remains[f"files of the {name}"] = search.count(files_of([data]))
    kept = [directory / "kafka" / "log", directory / "diaries", directory / "logs"]
    history.remains["files of rows"] = search.count(files_of([directory / ROW_FILES]))
    history.remains["kafka"] = search.count(files_of(kept))
