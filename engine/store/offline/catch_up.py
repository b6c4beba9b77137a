"""A staged generation catches up with what became of rows while it was made.

Rows that were deleted are left out, with the generation's own records of them: the live ones are
erased by then. Of rows that were inserted or corrected the live records are there. A row that the
generation has already with the same values is passed over, so that it does not matter if more rows
are named than changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lethe.engine.deletion.insertion import base_dual_rows, insert
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Stream, delete
from lethe.engine.error.certified import after_deletion
from lethe.engine.fit.classes import class_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.preprocess.live import LivePipeline, RowsMoved
from lethe.engine.store.generation import read_factor
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.stored_rows import StoredRows, read_rows
from lethe.engine.store.offline.staging import Staged
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A staged generation that was brought up to date.

    Attributes
    ----------
    staged, before
        The generation, and its stream as it was staged.
    deleted
        The deleted rows that it had.
    records
        By id, the records to write: of rows that it lacked, or had with other values.
    added
        How many rows it lacked.
    classes
        By how much the number of rows of each class has changed.
    """

    staged: Staged
    before: Stream
    deleted: tuple[str, ...] = ()
    records: Mapping[str, bytes] = field(default_factory=dict)
    added: int = 0
    classes: tuple[int, ...] = ()

    @property
    def same(self) -> bool:
        """Whether it had exactly the rows that are live."""
        return not self.deleted and not self.records

    def rows(self, before: int) -> int:
        """Return the number of its rows; ``before``: as it was staged."""
        return before + self.added - len(self.deleted)

    def class_counts(self, before: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the numbers of rows by class; ``before``: as it was staged."""
        if before is None or self.same:
            return before
        return tuple(count + more for count, more in zip(before, self.classes, strict=True))


@np.errstate(over="ignore", invalid="ignore")  # detected in the results: no warning
def catch_up(
    store: ModelStore,
    staged: Staged,
    meta: Meta,
    deleted: Sequence[str],
    changed: Mapping[str, bytes] | None = None,
    *,
    again: bool = False,
) -> CaughtUp:
    """Bring a staged generation up to date.

    Parameters
    ----------
    store, staged, meta
        Where its records and factor are; the generation; the model's meta.
    deleted
        Ids of rows that were deleted since its rows were read.
    changed
        By id, the live records of rows that were inserted or corrected since.
    again
        Whether it was done before, and the thetas are those of afterwards: only V, Q, sums and
        records are made again.

    Raises
    ------
    IllConditioned
        A guard refused; the generation cannot be used.

    Notes
    -----
    Cost O(k d^2) for k rows that changed, and that of a deletion of each other row.
    """
    changed = changed or {}
    had = store.row_records(staged.keys, [*deleted, *changed])
    width, m = meta.config.row_width, meta.config.m
    new = {
        row: record
        for row, record in changed.items()
        if row not in had
        or codec.values_of(had[row], width, m) != codec.values_of(record, width, m)
    }
    gone = tuple(row for row in deleted if row in had)
    old = (*gone, *(row for row in new if row in had))
    caught_up, moved = CaughtUp(staged, staged.stream, gone), RowsMoved()
    factor: Factor | None = None
    needed = new or (old and staged.pipeline is not None and not again)
    if needed and not meta.config.exact_sums:
        factor = read_factor(store.client, staged.keys, staged.generation)
    if new:
        rows = _decoded(staged, meta, new)
        W, dual_error = rows.W, 0.0
        if factor is not None:
            W, dual_error = base_dual_rows(staged.generation, factor, rows.rows.X)
        caught_up = _with_rows(caught_up, meta, new, rows, W, dual_error)
        if rows.transformed is not None:
            arriving = rows.transformed._replace(W=W, dual_error=dual_error)
            moved = moved._replace(arriving=arriving)
    if old:
        records = {row: had[row] for row in old}
        rows = _decoded(staged, meta, records)
        caught_up = _without_rows(caught_up, meta, records, rows)
        moved = moved._replace(leaving=rows.transformed)
    if staged.pipeline is not None and not caught_up.same:
        after = _followed(caught_up.staged, staged.pipeline, meta, moved, None if again else factor)
        caught_up = replace(caught_up, staged=after)
    return replace(caught_up, added=len(new) - (len(old) - len(gone)))


def _with_rows(
    before: CaughtUp,
    meta: Meta,
    records: Mapping[str, bytes],
    decoded: StoredRows,
    W: Array,
    dual_error: float,
) -> CaughtUp:
    """Insert rows, by the values of their live records: new ones only lower leverages."""
    staged, rows, given = before.staged, decoded.rows, decoded.given
    method = method_named(meta.config.method)
    stream = insert(staged.generation, staged.stream, rows, W, method, dual_error).stream
    sentinels = staged.sentinels.with_rows(tuple(records), rows, W)
    return replace(
        before,
        staged=replace(staged, stream=stream, sentinels=sentinels),
        records={
            row: codec.pack_row(
                given[i], rows.y[i], float(rows.weight[i]), W[i], codec.incarnation_of(record)
            )
            for i, (row, record) in enumerate(records.items())
        },
        classes=_counts(meta, rows, before.classes, 1),
    )


def _without_rows(
    before: CaughtUp, meta: Meta, records: Mapping[str, bytes], decoded: StoredRows
) -> CaughtUp:
    staged, rows = before.staged, decoded.rows
    method = method_named(meta.config.method)
    stream = delete(staged.generation, staged.stream, rows, decoded.W, method).stream
    ledger = staged.ledger
    if ledger is not None:
        ledger = after_deletion(ledger, staged.generation, staged.stream, stream, rows)
    sentinels = staged.sentinels.without(frozenset(records))
    return replace(
        before,
        staged=replace(staged, stream=stream, sentinels=sentinels, ledger=ledger),
        classes=_counts(meta, rows, before.classes, -1),
    )


def _followed(
    staged: Staged, pipeline: LivePipeline, meta: Meta, moved: RowsMoved, factor: Factor | None
) -> Staged:
    """Return a generation whose statistics have followed its rows; without a factor the sums."""
    if factor is None:
        sums = pipeline.sums_after(staged.generation, moved)
        return replace(staged, pipeline=pipeline.with_sums(sums))
    stream, pipeline = pipeline.after(
        staged.generation, staged.stream, factor, moved, meta.config.method
    )
    return replace(staged, stream=stream, pipeline=pipeline)


def _decoded(staged: Staged, meta: Meta, records: Mapping[str, bytes]) -> StoredRows:
    what = f"model {meta.config.model_id!r}, staged rows"
    return read_rows(meta.config, staged.pipeline, [*records.values()], what)


def _counts(meta: Meta, rows: Rows, before: tuple[int, ...], sign: int) -> tuple[int, ...]:
    if meta.config.kind is not Kind.LOGISTIC:
        return ()
    counts = class_counts(rows.y)
    return tuple(
        old + sign * more for old, more in zip(before or (0,) * len(counts), counts, strict=True)
    )
