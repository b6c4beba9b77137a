"""Row records as rows of a model: in base units, where it has preprocessing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.change import RowsAndDuals
from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import given_table, given_values, raw_columns


@dataclass(frozen=True, slots=True)
class StoredRows:
    """k rows: as the engine has them, and as they were given, if they had preprocessing."""

    moved: RowsAndDuals
    table: Table | None = None

    @property
    def rows(self) -> Rows:
        """The rows as the engine has them."""
        return self.moved.rows

    @property
    def W(self) -> Array:
        """Their base dual rows."""
        return self.moved.W

    @property
    def given(self) -> Array:
        """What records keep of each row: its features, or with preprocessing what was given."""
        return self.rows.X if self.table is None else given_values(self.table)


def read_rows(
    config: ModelConfig, pipeline: LivePipeline | None, records: list[bytes], what: str
) -> StoredRows:
    """Return row records as rows. Cost O(k d).

    Without its ``pipeline``, a model with preprocessing has the features 0: only the table is of
    use.

    Raises
    ------
    CorruptState
        A record is none of the model's.
    """
    if not config.preprocess:
        decoded = codec.unpack_rows(records, config.d, config.m, what, config.blocks)
        rows = Rows(decoded.X, decoded.y, decoded.weight)
        return StoredRows(RowsAndDuals(rows, decoded.W))
    given = len(config.preprocess)
    decoded = codec.unpack_rows(records, config.d, config.m, what, config.blocks, given=given)
    table = given_table(config.preprocess, decoded.X, what)
    if config.exact_sums:
        rows = raw_columns(config).rows(table, decoded.y, decoded.weight)
        return StoredRows(RowsAndDuals(rows, decoded.W), table)
    if pipeline is None:
        rows = Rows(np.zeros((len(records), config.d)), decoded.y, decoded.weight)
        return StoredRows(RowsAndDuals(rows, decoded.W), table)
    rows, entries = pipeline.rows(table, decoded.y, decoded.weight)
    if not np.isfinite(rows.X).all():
        raise CorruptState(f"{what}: a row does not fit the model; run `lethe check`")
    return StoredRows(RowsAndDuals(rows, decoded.W, entries=entries), table)
