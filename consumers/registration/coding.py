"""Rows of a table that comes in blocks, coded before all categories have been met.

For models with preprocessing. Each category has a code as soon as a row has it. Once all rows are
there, it is known which columns the model has (`engine.store.layout.preprocessing.recorded`), and
codes are exchanged for those of their categories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import Column, Numeric, Ordinal
from lethe.engine.preprocess.input.derived import Filled
from lethe.engine.preprocess.input.spelling import categories_of
from lethe.engine.preprocess.input.table import Codes, Table, Vocabulary, read_table
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.preprocessing import given_values, recorded, vocabularies_of

MOST_VALUES = 1_000
"""Different values of a column, as a file has them: ten times the categories of a model with exact
sums, because text may spell a category in several ways."""


@dataclass(frozen=True, slots=True)
class Coded:
    """What is known once all rows are there.

    Attributes
    ----------
    records
        The columns of the model.
    codes
        Of each column of categories, the final code of each that was met: -1 of those that only
        rows have that are left out.
    largest
        Of each of them, the largest magnitude of the first target with each final code; -1 where no
        row has it.
    """

    records: tuple[ColumnRecord, ...]
    codes: tuple[Codes, ...]
    largest: tuple[Array, ...]

    def recoded(self, rows: Rows) -> Rows:
        """Return rows with the final codes."""
        X = rows.X.copy()
        first = X.shape[1] - len(self.codes)
        for place, codes in enumerate(self.codes, first):
            X[:, place] = codes[X[:, place].astype(np.intp)]
        return Rows(X, rows.y, rows.weight)

    def largest_of(self, raw: RawColumns, numbers: Array) -> Array:
        """Return the largest magnitude of each column of raw rows, D of them.

        ``numbers``: of each column of numbers.
        """
        largest, layout = np.ones(raw.width), raw.layout
        for part in layout.numeric:
            largest[raw.own[part.feature]] = numbers[part.source]
        for coded in layout.coded:
            own = self.largest[coded.source]
            largest[raw.entries[coded.entries]] = own >= 0
            if coded.feature in raw.smoothed:
                first = raw.smoothed[coded.feature]
                largest[first : first + len(own)] = np.maximum(own, 0.0)
        return largest


class Coding:
    """Codes the rows of a table that comes in blocks; one thread uses it.

    Parameters
    ----------
    columns
        Of the table, in order.
    as_written
        Whether text stands for what all of its column spells
        (`engine.preprocess.input.spelling`), as in CSV files.

    Attributes
    ----------
    columns
        What is done to each column.
    given
        The columns of the table, and how each is read.
    """

    def __init__(self, columns: Mapping[str, Column], *, as_written: bool) -> None:
        self.columns, self._as_written = columns, as_written
        self.given = {str(name): column for name, column in given_columns(columns).items()}
        self._coded = [n for n, column in columns.items() if not isinstance(column, Numeric)]
        self._numeric = [n for n, column in columns.items() if isinstance(column, Numeric)]
        self._met = tuple(Vocabulary() for _ in self._coded)
        self._filled = np.zeros(len(self._numeric), dtype=np.bool_)
        self._gaps = np.zeros(len(self._numeric), dtype=np.bool_)
        self._largest = [np.empty(0) for _ in self._coded]

    def coded(self, typed: Mapping[str, NDArray[Any]]) -> Array:
        """Return rows as `given_values` of them, by the codes so far, k x r.

        Raises
        ------
        InvalidData
            A value is not of its column's kind, or a column has more than `MOST_VALUES`.
        """
        table = read_table(self.columns, typed, self._met)
        for name, met in zip(self._coded, table.vocabularies, strict=True):
            if len(met.categories) > MOST_VALUES:
                raise InvalidData(
                    f"column {name!r} has more than {MOST_VALUES:,} different values, too many "
                    "for a model whose rows are in files; put rare ones together, or leave it out"
                )
        self._met = table.vocabularies
        self._filled |= ~np.isnan(table.numbers).all(axis=0)
        return given_values(table)

    def keep(self, values: Array, y: Array) -> None:
        """Note what those rows have that are not left out: k x r, and targets k x m."""
        numbers, codes = np.hsplit(values, [len(self._numeric)])
        self._gaps |= np.isnan(numbers).any(axis=0)
        for j, met in enumerate(self._met):
            more = len(met.categories) - len(self._largest[j])
            self._largest[j] = np.append(self._largest[j], np.full(more, -1.0))
            np.maximum.at(self._largest[j], codes[:, j].astype(np.intp), np.abs(y[:, 0]))

    def finished(self) -> Coded:
        """Return what is known by now.

        Raises
        ------
        InvalidData
            A column has no value, or the columns make no model (`recorded`).
        """
        empty = [name for name, some in zip(self._numeric, self._filled, strict=True) if not some]
        if empty:
            raise InvalidData(f"column {empty[0]!r}: no row has a value; leave it out")
        meant = [self._meaning(j) for j in range(len(self._coded))]
        kept = [
            Vocabulary().coded([one for one, at in zip(of, most, strict=True) if at >= 0])[1]
            for of, most in zip(meant, self._largest, strict=True)
        ]
        records, _ = recorded(self.columns, self._shown(kept))
        known = vocabularies_of(records)
        codes = tuple(final.code_of(of) for final, of in zip(known, meant, strict=True))
        largest = []
        for final, of, most in zip(known, codes, self._largest, strict=True):
            own = np.full(len(final.categories), -1.0)
            np.maximum.at(own, of[most >= 0], most[most >= 0])
            largest.append(own)
        return Coded(records, codes, tuple(largest))

    def _meaning(self, j: int) -> list[Any]:
        """Return the category that each value of a column stands for."""
        column, met = self.columns[self._coded[j]], list(self._met[j].categories)
        known = isinstance(column, Ordinal) and column.categories is not None
        if known or not self._as_written:
            return met
        spelled = categories_of([None if one is None else str(one) for one in met])
        filled = column.of.value if isinstance(column.of, Filled) else None  # blank text is missing
        return [filled if one is None else one for one in spelled]

    def _shown(self, kept: list[Vocabulary]) -> Table:
        """Return a table that has every category, and a gap where one is."""
        n = max([1, *(len(known.categories) for known in kept)])
        numbers = np.where(self._gaps, np.nan, 0.0) * np.ones((n, 1))
        codes = np.zeros((n, len(kept)), dtype=np.int32)
        for j, known in enumerate(kept):
            codes[:, j] = np.minimum(np.arange(n), len(known.categories) - 1)
        return Table(numbers, codes, tuple(kept))
