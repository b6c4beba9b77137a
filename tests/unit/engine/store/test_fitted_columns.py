"""The columns that a version publishes: written without objects, as their objects would be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.answer import prepare
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, Ordinal, TargetEncode
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.store.layout.columns import FixedColumns, PublishedColumns
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.fitted_columns import Learnt, fitted_columns
from lethe.engine.store.layout.preprocessing import layout_of, recorded, settings_of

COLUMNS: Columns = {
    "age": Numeric(),
    "calls": Numeric(impute=None),
    "grade": Ordinal(standardise=True),
    "post": TargetEncode(standardise=True),
    "rank": Ordinal(),
    "town": OneHot(unknown="ignore"),
    "yard": OneHot(),
}
ROWS = {
    "age": [1.0, np.nan, 3.0, 4.0, 5.0, 7.0],
    "calls": [0.5, 2.0, 1.0, 4.0, 3.0, 2.5],
    "grade": ["a", "b", "a", "c", "b", "c"],
    "post": ["x", "y", "x", "y", "z", "z"],
    "rank": [True, False, True, True, False, False],
    "town": ["A", None, "B", "A", "B", "A"],
    "yard": [1, 2, 2, 1, 1, 2],
}


def fitted() -> tuple[FixedColumns, LivePipeline]:
    """Return columns of every kind, and the pipeline of a linear model of six rows."""
    records, table = recorded(COLUMNS, read_table(COLUMNS, ROWS))
    config = ModelConfig(
        model_id="m",
        kind=Kind.LINEAR,
        method="exact",
        ridge=1.0,
        fit_intercept=True,
        feature_names=layout_of(records).names,
        target_names=("y",),
        error_budget=0.01,
        preprocess=records,
    )
    y = np.array([[1.0], [2.5], [0.5], [2.0], [1.5], [3.0]])
    first = prepare(settings_of(config), table, y, np.ones(6), 0)
    pipeline = LivePipeline(first.base, table.vocabularies, first.answer, intercept=True)
    return config.fixed_columns, pipeline


def with_statistics(pipeline: LivePipeline, centre: float, mean: float) -> LivePipeline:
    """Return a pipeline in which every feature has this centre, and this mean in its units."""
    base, live = pipeline.base, pipeline.answer.live
    means = np.full_like(live.mean, mean)
    return replace(
        pipeline,
        base=replace(base, centre=np.full_like(base.centre, centre)),
        answer=replace(pipeline.answer, live=replace(live, mean=means, imputed=means)),
    )


def fitted_by_rows() -> tuple[FixedColumns, Learnt]:
    columns, pipeline = fitted()
    return columns, Learnt.of_pipeline(pipeline)


def assert_written_as_objects(written: PublishedColumns) -> None:
    read = PublishedColumns.of(written.columns)
    assert written.packed == read.packed
    assert written.fixed == read.fixed
    assert written.numbers == read.numbers


def test_bytes_and_digest_are_those_of_the_columns_as_objects() -> None:
    assert_written_as_objects(fitted_columns(*fitted_by_rows()))


def test_a_mean_of_minus_zero_has_the_digest_that_readers_find() -> None:
    """JSON leaves it out, as the default: readers have 0.0, which is another number."""
    columns, pipeline = fitted()
    assert_written_as_objects(
        fitted_columns(columns, Learnt.of_pipeline(with_statistics(pipeline, -0.0, -0.0)))
    )


def test_a_statistic_that_is_not_finite_is_never_published() -> None:
    columns, pipeline = fitted()
    with pytest.raises(InvalidData, match="--replace"):
        fitted_columns(columns, Learnt.of_pipeline(with_statistics(pipeline, 0.0, np.inf)))
