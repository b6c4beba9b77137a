"""All live rows of a version, to be read as often as is asked: in blocks where they are in files.

A version has the rows of its root but for those that it, or a version since the files were written,
deleted or changed; the ledger names that version with each row, and changed rows are held in
memory, so what happens while somebody reads changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array, Rows, RowsInBlocks, in_memory
from lethe.engine.preprocess.input.table import Table
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import StoredRows, read_rows
from lethe.engine.store.offline.snapshot import Snapshot, take_snapshot
from lethe.engine.store.offline.touched import rows_touched_now
from lethe.engine.store.row_files import as_model_has, given_in
from lethe.engine.store.store import ModelStore

if TYPE_CHECKING:
    from lethe.engine.rowstore.bucket import Bucket
    from lethe.engine.rowstore.buckets import Buckets

T = TypeVar("T")

_TRIES = 5


class Given(NamedTuple):
    """Some rows as they were given, with their targets (k x m) and weights."""

    table: Table
    y: Array
    weight: Array


@dataclass(frozen=True, slots=True)
class LiveRows:
    """A model's state and its live rows; ``snapshot`` has all of them, if they are in the store."""

    state: ModelState
    rows: RowsInBlocks
    snapshot: Snapshot | None = None

    def given(self) -> Iterator[Given]:
        """Yield the rows of a model with preprocessing as they were given, the same each time."""
        if isinstance(self.rows, _InFiles):
            yield from self.rows.given()
        elif self.snapshot is not None and self.snapshot.table is not None:
            rows = in_memory(self.rows)
            yield Given(self.snapshot.table, rows.y, rows.weight)


def read_live_rows(store: ModelStore, model_id: str, read: Callable[[LiveRows], T]) -> T:
    """Return what ``read`` makes of the live rows of a version.

    Where a refresh writes the files anew and removes these, ``read`` begins again with the newest
    version.

    Raises
    ------
    UnknownModel
        The model is not registered.
    CorruptState
        Rows that should be live are not there.

    Notes
    -----
    Of rows in the store it holds all, and else those that were changed since the files were
    written, the ids of those deleted, and a few blocks.
    """
    tries = 0
    while True:
        tries += 1
        state = store.load_model(model_id)
        try:
            buckets = store.row_files.of(state.meta)
            if buckets is not None:
                in_files = _InFiles.of(store, state, buckets)
                return read(LiveRows(in_files.state, in_files))
        except CorruptState:
            if tries == _TRIES or store.load_model(model_id).head == state.head:
                raise
            continue
        snapshot = take_snapshot(store, model_id)
        return read(LiveRows(snapshot.state, snapshot.rows, snapshot))


def _itself(rows: Rows) -> Rows:
    return rows


@dataclass(frozen=True, slots=True)
class _InFiles:
    """The rows of a version that are in files, and those that the store has beside them."""

    state: ModelState
    buckets: Buckets
    deleted: frozenset[str]
    beside: Mapping[str, bytes]

    @classmethod
    def of(cls, store: ModelStore, before: ModelState, buckets: Buckets) -> _InFiles:
        """Return those of the newest version; raises `CorruptState` if others are live by now."""
        now = rows_touched_now(store, before)
        if now is None:
            raise CorruptState(f"model {before.model_id!r}: its files were written anew")
        state, beside = now
        files = state.meta.row_files
        written = -1 if files is None else files.version
        deleted = store.deleted_after(state.keys, written, until=state.version)
        return cls(state, buckets, frozenset(deleted), beside.changed)

    def __len__(self) -> int:
        return self.state.meta.rows_live

    @property
    def outputs(self) -> int:
        return self.state.meta.config.m

    def blocks(self) -> Iterator[Rows]:
        return self._each(_itself, here=True)

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        return self._each(kernel)

    def given(self) -> Iterator[Given]:
        if self.beside:
            beside = self._beside()
            if beside.table is not None:
                yield Given(beside.table, beside.rows.y, beside.rows.weight)
        for bucket in self._buckets():
            table = given_in(self.state.meta.config, bucket)
            yield Given(table, bucket.rows.y, bucket.rows.weight)

    def _each(self, kernel: Callable[[Rows], T], *, here: bool = False) -> Iterator[T]:
        config, former = self.state.meta.config, self.deleted.union(self.beside)
        if self.beside:
            yield kernel(self._beside().rows)
        if config.preprocess:
            for bucket in self._buckets():
                yield kernel(as_model_has(config, bucket))
            return
        found = len(self.beside)
        for rows, result in self.buckets.each(
            kernel, intercept=config.fit_intercept, without_rows=former, here=here
        ):
            found += rows
            yield result
        self._check(found)

    def _beside(self) -> StoredRows:
        config = self.state.meta.config
        return read_rows(config, None, [*self.beside.values()], f"model {config.model_id!r}, rows")

    def _buckets(self) -> Iterator[Bucket]:
        found = len(self.beside)
        for bucket in self.buckets.scan(self.deleted.union(self.beside)):
            found += len(bucket)
            yield bucket
        self._check(found)

    def _check(self, found: int) -> None:
        if found != len(self):
            raise CorruptState(
                f"model {self.state.model_id!r}: files have {found} of its live rows and "
                f"{len(self)} should be there; run `lethe check`, then register it again"
            )
