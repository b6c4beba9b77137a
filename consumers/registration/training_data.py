"""Training rows, as read from a file, and without those that must not come back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lethe.consumers.registration.coding import Coding
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, with_intercept
from lethe.engine.preprocess.input.table import Table
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.preprocessing import columns_of, layout_of, recorded


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Training rows, as read from a file.

    Attributes
    ----------
    ids
        Row ids, distinct, 1 to 128 characters.
    X, y
        n x p features without intercept, n x m targets; float64.
    feature_names, target_names
        Names of the columns.
    subjects
        Subject id to row ids; empty without a subject column.
    class_names
        Names of a logistic model's classes, unless these are 0 and 1
        (`engine.fit.classes.encoded`).
    preprocess, table
        Of a model with preprocessing, its columns, and the rows as they were given; X then has no
        columns.
    frozen_transformer
        SHA-256 of the transformer that made the features, if one did.
    coding
        Of a block of a table with preprocessing, what made X of its columns.
    design
        X and a last column of ones, n x (p + 1), of which X is then a view; or None.
    """

    ids: tuple[str, ...]
    X: Array
    y: Array
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    subjects: Mapping[str, Sequence[str]]
    class_names: tuple[str, ...] = ()
    preprocess: tuple[ColumnRecord, ...] = ()
    table: Table | None = None
    frozen_transformer: str | None = None
    design: Array | None = None
    coding: Coding | None = None

    def with_intercept(self) -> Array:
        """Return X with a column of ones, n x (p + 1): a copy only if there is none yet."""
        return with_intercept(self.X) if self.design is None else self.design

    def owners(self) -> list[str | None]:
        """Return the subject of each row, None of those that have none."""
        owner = {row: subject for subject, rows in self.subjects.items() for row in rows}
        return [owner.get(row) for row in self.ids]

    def without(self, row_ids: frozenset[str]) -> TrainingData:
        """Return the rows but for these, which were deleted: they never come back.

        Raises
        ------
        InvalidData
            None would be left.
        """
        if not row_ids:
            return self
        keep = np.array([row not in row_ids for row in self.ids], dtype=np.bool_)
        if not keep.any():
            raise InvalidData(
                "every row of the file was deleted from this model before, or belongs to a subject "
                "that was erased; there is nothing to fit"
            )
        ids = tuple(row for row in self.ids if row not in row_ids)
        design = None if self.design is None else self.design[keep]
        X = self.X[keep] if design is None else design[:, :-1]
        left = replace(self, ids=ids, X=X, y=self.y[keep], design=design)
        if self.table is None:
            return left
        # A category that only those rows have is not named any more.
        columns, table = recorded(columns_of(self.preprocess), self.table.take(keep))
        names = layout_of(columns).names
        return replace(left, feature_names=names, preprocess=columns, table=table)

    def without_subjects(self, erased: Collection[str]) -> TrainingData:
        """Return the rows but for those of erased subjects, who are not named any more.

        Raises
        ------
        InvalidData
            None would be left.
        """
        if not erased:
            return self
        rows = frozenset(row for subject in erased for row in self.subjects.get(subject, ()))
        others = {name: rows for name, rows in self.subjects.items() if name not in erased}
        return replace(self.without(rows), subjects=others)
