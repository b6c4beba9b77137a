"""Statistics that are taken in passes over blocks: those of the table, up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import (
    Columns,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
    passthrough,
)
from lethe.engine.preprocess.input.table import Table, read_table
from lethe.engine.preprocess.transformation.base import BaseTransformation, fit_base
from lethe.engine.preprocess.transformation.blocks import OfGiven
from lethe.engine.preprocess.transformation.in_passes import fit_base_in_passes
from lethe.engine.preprocess.transformation.layout import lay_out
from lethe.engine.preprocess.transformation.order import Filled, kept_quantiles
from lethe.engine.preprocess.transformation.order_in_passes import windows_in_passes

T = TypeVar("T")

COLUMNS: Columns = {
    "x": Numeric(),
    "plain": Numeric(standardise=False),
    "as it is": passthrough(),
    "town": OneHot(),
    "left out": OneHot(drop="first"),
    "scaled": OneHot(drop="first", standardise=True),
    "grade": Ordinal(standardise=True),
    "post": TargetEncode(standardise=True),
    "job": TargetEncode(smooth=3.0),
    "fee": Numeric("median", "robust"),
    "use": Numeric("mean", (0.0, 1.0)),
    "few": Numeric("most_frequent", "max-abs"),
    "known": Numeric(scaler_first=True),
    "known order": Numeric("median", (0.0, 1.0), scaler_first=True),
}


@dataclass(frozen=True)
class Blocks:
    """A table in blocks of some rows."""

    table: Table
    y: Array
    rows: int

    def __len__(self) -> int:
        return len(self.table)

    @property
    def outputs(self) -> int:
        return 1

    def each(self, kernel: OfGiven[T]) -> Iterator[T]:
        for start in range(0, len(self), self.rows):
            part = slice(start, start + self.rows)
            y = self.y[part, None]
            yield kernel(self.table.take(part), y, np.ones(len(y)))

    def here(self, kernel: OfGiven[T]) -> Iterator[T]:
        return self.each(kernel)


def drawn(n: int = 200, x: Any = None) -> tuple[Table, Array]:
    rng = np.random.default_rng(0)
    x = 3.0 * rng.standard_normal(n) + 50.0 if x is None else x
    plain = rng.standard_normal(n)
    plain[rng.random(n) < 0.2] = np.nan
    text = {
        name: [f"c{i}" for i in rng.integers(0, size, n)]
        for name, size in (
            ("town", 4),
            ("left out", 4),
            ("scaled", 3),
            ("grade", 5),
            ("post", 9),
            ("job", 7),
        )
    }
    given: dict[str, Any] = {"x": x, "plain": plain, "as it is": rng.standard_normal(n), **text}
    y = rng.standard_normal(n) + 7.0
    fee, use = rng.exponential(size=n) ** 2, 1e4 + rng.standard_normal(n)
    few = rng.integers(0, 5, n).astype(float)
    for values in (fee, use, few):
        values[rng.random(n) < 0.2] = np.nan
    given |= {"fee": fee, "use": use, "few": few, "known": x, "known order": use + fee}
    return read_table(COLUMNS, given), y


def bases(
    table: Table, y: Array, rows: int, *, centred: bool = True
) -> tuple[BaseTransformation, BaseTransformation]:
    layout = lay_out(COLUMNS, table)
    blocks = Blocks(table, y, rows)
    found = fit_base_in_passes(layout, table.vocabularies, blocks, centred=centred)
    return found, fit_base(COLUMNS, table, y, centred=centred, layout=layout)


def check(found: BaseTransformation, expected: BaseTransformation) -> None:
    assert np.array_equal(found.constant, expected.constant)
    for name in ("centre", "scale", "value", "target_mean"):
        ours, theirs = (np.asarray(getattr(base, name)) for base in (found, expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 200])
def test_statistics_in_blocks_are_those_of_the_table(rows: int, centred: bool) -> None:
    check(*bases(*drawn(), rows, centred=centred))


def test_windows_of_many_rows_are_about_their_quantiles() -> None:
    """Of blocks that are sorted: none of them has the values of the others."""
    table, y = drawn(30_000, np.sort(np.random.default_rng(1).standard_normal(30_000)))
    columns = {
        **COLUMNS,
        "x": Numeric("median", "robust"),
        "plain": Numeric("median", (0, 1)),
        "known order": Numeric("median", "robust", scaler_first=True),
    }
    layout = lay_out(columns, table)
    found = windows_in_passes(layout, Blocks(table, y, 1000))
    for part in layout.numeric:
        column = table.numbers[:, part.source]
        known = column[~np.isnan(column)]
        kept = kept_quantiles(part.column) if part.feature in found else ()
        for quantile, window in zip(kept, found.get(part.feature, []), strict=True):
            assert len(window) == len(known)
            assert len(window.values) < 2000
            if part.column.impute in ("mean", "median"):
                fill = getattr(np, part.column.impute)(known)
                missing = 0 if part.column.scaler_first else len(column) - len(known)
                filled = np.append(known, np.full(missing, fill))
                at = window.quantile(quantile, Filled(float(fill), missing))
                assert at == pytest.approx(np.quantile(filled, quantile), rel=1e-15)


HOSTILE = {
    "far from 0": 1e9 + np.arange(200) % 7,
    "constant": np.full(200, 0.1),
    "constant where it is known": np.where(np.arange(200) % 3, 1e300, np.nan),
    "one that differs": np.where(np.arange(200) == 199, 2.0, 1.0),
    "without a value": np.full(200, np.nan),
    "one value": np.where(np.arange(200) == 77, 4.0, np.nan),
    "neighbouring floats": np.where(np.arange(200) % 2, 1.0, np.nextafter(1.0, 2.0)),
    "tiny": 1e-150 * np.arange(200),
    "large": 1e150 * np.arange(200),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_columns_that_are_hard_are_taken_alike(what: str) -> None:
    check(*bases(*drawn(x=HOSTILE[what]), 9))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (1e200 * np.arange(200), "'x' is too large to compute with: its variance is not a finite"),
        (1e-170 * np.arange(200), "'x' is too small to compute with: its variance underflows"),
    ],
)
def test_what_cannot_be_computed_with_is_refused_alike(x: Array, message: str) -> None:
    table, y = drawn(x=x)
    layout = lay_out(COLUMNS, table)
    with pytest.raises(InvalidData, match=message):
        fit_base(COLUMNS, table, y, centred=True, layout=layout)
    with pytest.raises(InvalidData, match=message):
        fit_base_in_passes(layout, table.vocabularies, Blocks(table, y, 9), centred=True)


def test_a_target_that_encodes_nothing_is_refused() -> None:
    table, y = drawn()
    with pytest.raises(InvalidData, match="the target, which encodes a column, is too large"):
        bases(table, 1e200 * y, 9)
