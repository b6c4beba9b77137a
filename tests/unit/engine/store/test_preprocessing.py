"""What the store keeps of preprocessing comes back as it was; anything else is CORRUPT_STATE."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.answer import Prepared, contribution, prepare
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, TargetEncode
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table, read_table
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.preprocessing import (
    columns_of,
    given_table,
    given_values,
    layout_of,
    pack_base,
    packed_sums,
    recorded,
    unpack_base,
    unpack_sums,
)
from tests.support import pipelines

COLUMNS = pipelines.EVERY_KIND


def made(kind: Kind = Kind.LINEAR) -> tuple[tuple[ColumnRecord, ...], Table, Prepared]:
    """Return the columns of a model, its table, and its first generation."""
    rng = np.random.default_rng(3)
    rows = pipelines.draw_rows(COLUMNS, 80, rng)
    records, table = recorded(COLUMNS, read_table(COLUMNS, rows))
    settings = Settings(COLUMNS, kind, 1.0, intercept=True, penalise_intercept=False)
    y = pipelines.draw_target(COLUMNS, rows, rng)[:, None]
    if kind is Kind.LOGISTIC:
        y = (y > np.median(y)).astype(np.float64)
    return records, table, prepare(settings, table, y, np.ones(80), 0, layout=layout_of(records))


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
def test_columns_rows_base_and_sums_come_back(kind: Kind) -> None:
    records, table, first = made(kind)
    assert columns_of(records) == COLUMNS
    layout = layout_of(records)
    back = given_table(records, given_values(table), "rows")
    np.testing.assert_array_equal(back.numbers, table.numbers)
    np.testing.assert_array_equal(back.codes, table.codes)
    base = unpack_base(pack_base(first.base), layout, "m")
    for name in ("centre", "scale", "constant", "value", "target_mean"):
        np.testing.assert_array_equal(getattr(base, name), getattr(first.base, name))
    sums = first.answer.sums
    stored = {name.encode(): value for name, value in packed_sums(sums).items()}
    found = unpack_sums(stored, layout, first.generation.objective.d, 1, "m", kind=kind)
    assert packed_sums(sums, sums).keys() == {"all"}
    assert packed_sums(found) == packed_sums(sums)


def test_only_the_entries_that_a_row_has_are_written() -> None:
    _, _, first = made()
    sums = first.answer.sums
    own = first.entries[:1]
    leaving = contribution(first.generation, first.base, first.rows.take(slice(0, 1)), own)
    after = sums.changed(first.base.layout, leaving, -1)
    written = packed_sums(after, sums).keys() - {"all"}
    assert written == {str(entry) for entry in own[own >= 0]}


def test_damaged_values_are_corrupt() -> None:
    records, table, first = made()
    layout, d = layout_of(records), first.generation.objective.d
    stored = {name.encode(): value for name, value in packed_sums(first.answer.sums).items()}
    for name in (b"all", b"0"):
        with pytest.raises(CorruptState):
            unpack_sums({**stored, name: stored[name][:-8]}, layout, d, 1, "m", kind=Kind.LINEAR)
        with pytest.raises(CorruptState):
            unpack_sums(
                {k: v for k, v in stored.items() if k != name}, layout, d, 1, "m", kind=Kind.LINEAR
            )
    with pytest.raises(CorruptState):
        unpack_base(pack_base(first.base)[:-8], layout, "m")
    values = given_values(table)
    for column, value in ((0, np.inf), (2, np.nan), (-1, 99.0), (-1, 0.5), (-1, np.nan)):
        wrong = values.copy()
        wrong[0, column] = value
        with pytest.raises(CorruptState):
            given_table(records, wrong, "rows")


@pytest.mark.parametrize(
    ("kind", "at", "value"),
    [
        (Kind.LINEAR, 0, 0.0),  # rows
        (Kind.LINEAR, 1, -1.0),  # square_size
        (Kind.LINEAR, 7, -1.0),  # the first count
        (Kind.LOGISTIC, 6, 0.0),  # balanced
    ],
)
def test_sums_that_no_rows_have_are_corrupt(kind: Kind, at: int, value: float) -> None:
    records, _, first = made(kind)
    layout, d = layout_of(records), first.generation.objective.d
    stored = {name.encode(): data for name, data in packed_sums(first.answer.sums).items()}
    numbers = np.frombuffer(stored[b"all"], dtype="<f8").copy()
    numbers[at] = value
    with pytest.raises(CorruptState, match="its sums: are those of no rows"):
        unpack_sums(stored | {b"all": numbers.tobytes()}, layout, d, 1, "m", kind=kind)


def test_a_base_transformation_that_divides_by_nothing_is_corrupt() -> None:
    records, _, first = made()
    layout = layout_of(records)
    numbers = np.frombuffer(pack_base(first.base), dtype="<f8").copy()
    for scale in (0.0, -1.0):
        numbers[layout.features] = scale
        with pytest.raises(CorruptState, match="divides by 0"):
            unpack_base(numbers.tobytes(), layout, "m")


def test_categories_that_json_cannot_carry_are_refused() -> None:
    for value in (0.5, 2**60):
        table = read_table({"a": OneHot()}, {"a": [value, value, 1]})
        with pytest.raises(InvalidData, match="categories are text"):
            recorded({"a": OneHot()}, table)


def test_sums_that_would_be_too_large_are_refused() -> None:
    n = 1_900
    columns: Columns = {"a": TargetEncode(), "b": OneHot(), "x": Numeric()}
    names = [f"c{i}" for i in range(n)]
    table = read_table(columns, {"a": names, "b": names, "x": [1.0] * n})
    with pytest.raises(InvalidData, match="more than a model can keep sums of"):
        recorded(columns, table)
