"""A staged generation catches up with what became of rows while it was made.

Rows that were deleted are left out, with the generation's own records of them: the live ones are
erased by then. Of rows that were inserted or corrected the live records are there. A row that the
generation has already with the same values is passed over, so that it does not matter if more rows
are named than changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from lethe.engine.deletion.change import RowMoves
from lethe.engine.deletion.generation import Stream
from lethe.engine.deletion.insertion import base_dual_rows
from lethe.engine.error.certified import after_deletion
from lethe.engine.fit.factor import Factor
from lethe.engine.preprocess.live import change_model
from lethe.engine.store.factors import duals_of
from lethe.engine.store.generation import read_factor
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.stored_rows import StoredRows, read_rows
from lethe.engine.store.offline.staging import StagedGeneration
from lethe.engine.store.row_files import Duals
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
    moved
        What arrived, and what left.
    in_store
        How many more records the generation has afterwards.
    """

    staged: StagedGeneration
    before: Stream
    deleted: tuple[str, ...] = ()
    records: Mapping[str, bytes] = field(default_factory=dict)
    added: int = 0
    moved: RowMoves = field(default_factory=RowMoves)
    in_store: int = 0

    @property
    def same(self) -> bool:
        """Whether it had exactly the rows that are live."""
        return not self.deleted and not self.records

    def rows(self, before: int) -> int:
        """Return the number of its rows; ``before``: as it was staged."""
        return before + self.added - len(self.deleted)

    def class_counts(self, before: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the numbers of rows by class; ``before``: as it was staged."""
        return self.moved.class_counts(before)


@np.errstate(over="ignore", invalid="ignore")  # detected in the results: no warning
def catch_up(
    store: ModelStore,
    staged: StagedGeneration,
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
        Where its records and factor are; the generation; the model's meta, with the files that the
        generation has rows in.
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
    named = [*deleted, *changed]
    own = store.row_records(staged.keys, named)
    others = [row for row in named if row not in own]
    had = {**own, **store.row_files.records(meta, others, partial(_duals, store, staged, meta))}
    width, m = meta.config.row_width, meta.config.m
    new = {
        row: record
        for row, record in changed.items()
        if row not in had
        or codec.values_of(had[row], width, m) != codec.values_of(record, width, m)
    }
    gone = tuple(row for row in deleted if row in had)
    old = (*gone, *(row for row in new if row in had))
    if not (new or old):
        return CaughtUp(staged, staged.stream)
    moved, sentinels = RowMoves(), staged.sentinels.without(frozenset(old))
    factor: Factor | None = None
    if (new or (staged.pipeline and not again)) and not meta.config.exact_sums:
        factor = read_factor(store.client, staged.keys, staged.generation)
    records: dict[str, bytes] = {}
    if new:
        stored = _decoded(staged, meta, new)
        arriving = stored.moved
        if factor is not None and meta.config.blocks:
            W, dual_error = base_dual_rows(staged.generation, factor, arriving.rows.X)
            arriving = arriving._replace(W=W, dual_error=dual_error)
        moved = moved._replace(arriving=arriving)
        rows, W = arriving.rows, arriving.W
        sentinels = sentinels.with_rows(tuple(new), rows, W)
        records = {
            row: codec.pack_row(
                stored.given[i],
                rows.y[i],
                float(rows.weight[i]),
                W[i],
                codec.incarnation_of(record),
            )
            for i, (row, record) in enumerate(new.items())
        }
    if old:
        moved = moved._replace(leaving=_decoded(staged, meta, {row: had[row] for row in old}).moved)
    generation, before = staged.generation, staged.stream
    stream, pipeline = change_model(
        generation, before, staged.pipeline, moved, meta.config.method, None if again else factor
    )
    ledger = staged.ledger
    if ledger is not None and moved.leaving is not None:
        ledger = after_deletion(ledger, generation, before, stream, moved.leaving.rows)
    after = replace(staged, stream=stream, pipeline=pipeline, sentinels=sentinels, ledger=ledger)
    return CaughtUp(
        after,
        before,
        gone,
        records,
        len(new) - (len(old) - len(gone)),
        moved,
        len(records.keys() - own.keys()) - len(own.keys() & set(gone)),
    )


def _duals(store: ModelStore, staged: StagedGeneration, meta: Meta) -> Duals:
    factor = read_factor(store.client, staged.keys, staged.generation)
    return duals_of(meta.config, staged.generation, factor, staged.pipeline)


def _decoded(staged: StagedGeneration, meta: Meta, records: Mapping[str, bytes]) -> StoredRows:
    what = f"model {meta.config.model_id!r}, staged rows"
    return read_rows(meta.config, staged.pipeline, [*records.values()], what)
