"""Row records as rows of a model: in base units, where it has preprocessing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.live import LivePipeline, TransformedRows
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import given_table, given_values


@dataclass(frozen=True, slots=True)
class StoredRows:
    """k rows: as the engine has them, and their dual rows.

    ``transformed`` and ``table`` (the rows as they were given) are there with preprocessing only.
    """

    rows: Rows
    W: Array
    transformed: TransformedRows | None = None
    table: Table | None = None

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
        return StoredRows(Rows(decoded.X, decoded.y, decoded.weight), decoded.W)
    given = len(config.preprocess)
    decoded = codec.unpack_rows(records, config.d, config.m, what, config.blocks, given=given)
    table = given_table(config.preprocess, decoded.X, what)
    if pipeline is None:
        nothing = np.zeros((len(records), config.d))
        return StoredRows(Rows(nothing, decoded.y, decoded.weight), decoded.W, None, table)
    transformed = pipeline.rows(table, decoded.y, decoded.weight)
    if not np.isfinite(transformed.rows.X).all():
        raise CorruptState(f"{what}: a row is none of the model's; run `lethe check`")
    return StoredRows(transformed.rows, decoded.W, transformed, table)
