"""What the store keeps of preprocessing comes back as it was; anything else is CORRUPT_STATE."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.deletion.change import RowMoves, RowsAndDuals
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.answer import Prepared, prepare
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, TargetEncode
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table, read_table
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.preprocess.transformation.sums import Sums
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.pipeline_sums import packed_since, packed_sums, unpack_sums
from lethe.engine.store.layout.preprocessing import (
    columns_of,
    given_table,
    given_values,
    layout_of,
    pack_base,
    recorded,
    settings_of,
    unpack_base,
)
from tests.support import pipelines

COLUMNS: Columns = {**pipelines.EVERY_KIND, "fee": Numeric("median", (0.0, 1.0))}


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
    found = unpack_sums(stored, first.base, first.generation.objective.d, 1, "m", kind=kind)
    assert packed_sums(found) == packed_sums(sums)
    assert packed_since(sums) == {}


def changed_twice(first: Prepared) -> list[Sums]:
    """Return sums after rows went, and after a row came and two went."""
    pipeline = LivePipeline(first.base, (), first.answer, intercept=True)

    def rows(which: slice) -> RowsAndDuals:
        entries = first.entries[which]
        return RowsAndDuals(first.rows.take(which), first.dual_rows[which], entries=entries)

    found: list[Sums] = []
    for moved in (
        RowMoves(leaving=rows(slice(0, 3))),
        RowMoves(arriving=rows(slice(0, 1)), leaving=rows(slice(5, 7))),
    ):
        found.append(pipeline.sums_after(first.generation, moved))
        pipeline = pipeline.with_sums(found[-1])
    return found


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
def test_sums_come_back_with_the_rows_since(kind: Kind) -> None:
    _, _, first = made(kind)
    d = first.generation.objective.d
    one, two = changed_twice(first)
    assert packed_since(one).keys() == {"since:0"}
    assert packed_since(two, one).keys() == {"since:1", "since:2"}
    fields = packed_sums(first.answer.sums) | packed_since(one) | packed_since(two, one)
    stored = {name.encode(): value for name, value in fields.items()}
    found = unpack_sums(stored, first.base, d, 1, "m", kind=kind)
    assert packed_since(found) == packed_since(two)
    assert found.rows == 80 - 3 + 1 - 2
    for name in ("counts", "present"):
        np.testing.assert_array_equal(getattr(found, name), getattr(two, name))
    for name in ("square_size", "response_size", "error_size", "longest", "reach", "balanced"):
        assert getattr(found, name) == pytest.approx(getattr(two, name), rel=1e-14)
    for name in ("first", "second", "target", "all_target", "responses", "weighted", "errors"):
        mine, other = getattr(found, name).high, getattr(two, name).high
        np.testing.assert_allclose(mine, other, rtol=1e-15, atol=1e-15, err_msg=name)
    np.testing.assert_allclose(found.crossed.at(), two.crossed.at(), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(found.paired.at(), two.paired.at(), rtol=1e-14)
    for ours, theirs in zip(found.windows, two.windows, strict=True):
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.counts, theirs.counts)


def test_damaged_rows_since_are_corrupt() -> None:
    records, _, first = made()
    layout, d = layout_of(records), first.generation.objective.d
    _, two = changed_twice(first)
    fields = packed_sums(first.answer.sums) | packed_since(two)
    stored = {name.encode(): value for name, value in fields.items()}
    name = b"since:1"
    numbers = np.frombuffer(stored[name], dtype="<f8")
    damaged = [stored[name][:-8], b"", stored[name][:8]]
    for at, value in ((0, 0.0), (0, 2.0), (1, np.nan), (4, 0.5), (4, -2.0), (4, layout.entries)):
        wrong = numbers.copy()
        wrong[at] = value
        damaged.append(wrong.tobytes())
    for data in damaged:
        with pytest.raises(CorruptState):
            unpack_sums(stored | {name: data}, first.base, d, 1, "m", kind=Kind.LINEAR)
    del stored[name]  # one between two others
    with pytest.raises(CorruptState):
        unpack_sums(stored, first.base, d, 1, "m", kind=Kind.LINEAR)


def test_more_rows_gone_since_than_there_were_are_corrupt() -> None:
    _, _, first = made()
    d = first.generation.objective.d
    everything = slice(0, 80)
    leaving = RowsAndDuals(first.rows, first.dual_rows, entries=first.entries[everything])
    pipeline = LivePipeline(first.base, (), first.answer, intercept=True)
    gone = pipeline.sums_after(first.generation, RowMoves(leaving=leaving))
    fields = packed_sums(first.answer.sums) | packed_since(gone)
    stored = {name.encode(): value for name, value in fields.items()}
    with pytest.raises(CorruptState, match="are those of no rows"):
        unpack_sums(stored, first.base, d, 1, "m", kind=Kind.LINEAR)


def test_damaged_values_are_corrupt() -> None:
    records, table, first = made()
    layout, d = layout_of(records), first.generation.objective.d
    stored = {name.encode(): value for name, value in packed_sums(first.answer.sums).items()}
    for name in (b"all", b"0", b"window:0"):
        with pytest.raises(CorruptState):
            unpack_sums(
                {**stored, name: stored[name][:-8]}, first.base, d, 1, "m", kind=Kind.LINEAR
            )
        with pytest.raises(CorruptState):
            unpack_sums(
                {k: v for k, v in stored.items() if k != name},
                first.base,
                d,
                1,
                "m",
                kind=Kind.LINEAR,
            )
    window = np.frombuffer(stored[b"window:1"], dtype="<f8")
    counts = (len(window) - 2) // 2
    for at, value in ((0, -1.0), (1, 0.5), (2, 0.0), (2 + counts, window[-1]), (-1, np.nan)):
        wrong = window.copy()
        wrong[at] = value
        with pytest.raises(CorruptState):
            unpack_sums(
                stored | {b"window:1": wrong.tobytes()}, first.base, d, 1, "m", kind=Kind.LINEAR
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
    _, _, first = made(kind)
    d = first.generation.objective.d
    stored = {name.encode(): data for name, data in packed_sums(first.answer.sums).items()}
    numbers = np.frombuffer(stored[b"all"], dtype="<f8").copy()
    numbers[at] = value
    with pytest.raises(CorruptState, match="its sums: are those of no rows"):
        unpack_sums(stored | {b"all": numbers.tobytes()}, first.base, d, 1, "m", kind=kind)


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


def test_sums_of_many_classes_that_would_be_too_large_are_refused() -> None:
    columns: Columns = {f"x{i}": Numeric() for i in range(150)}
    table = read_table(columns, {name: [1.0, None] for name in columns})
    records, _ = recorded(columns, table)
    few = ModelConfig(
        model_id="m", kind=Kind.LOGISTIC, method="exact", ridge=1.0, fit_intercept=True,
        feature_names=tuple(layout_of(records).names), target_names=("y",),
        class_names=tuple("abc"), error_budget=0.01, preprocess=records,
    )  # fmt: skip
    assert settings_of(few).kind is Kind.LOGISTIC
    many = few.model_copy(update={"class_names": tuple(f"c{i:03}" for i in range(100))})
    with pytest.raises(InvalidData, match="150 features and 100 classes are more than a model can"):
        settings_of(many)
