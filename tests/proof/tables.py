"""Models with preprocessing among those of a run: their tables, their requests, and the refit.

The judge's refit is a pipeline in 80 bits (`tests.proof.bounds.pipelines`), which shares nothing
with the engine or with scikit-learn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from random import Random
from typing import Any

import numpy as np

from lethe.consumers.registration.register import TrainingData
from lethe.engine.preprocess.input.columns import (
    Columns,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
    passthrough,
)
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import ModelConfig
from tests.proof.bounds.oracle import Problem, Wide, distance, length, solve, widened
from tests.proof.bounds.pipelines import transformed
from tests.support import pipelines, platform
from tests.support.families import Data
from tests.support.pipeline_in_decimals import minimiser
from tests.support.platform import Platform
from tests.support.prepared import table_data

COLUMNS: Columns = {
    "age": Numeric(),
    "grade": Ordinal(standardise=True),
    "joined": Date(),
    "post": TargetEncode(standardise=True),
    "score": passthrough(),
    "town": OneHot(),
}
"""What is done to each column, by their names in order."""

BY_ORDER: Columns = {
    "age": Numeric("median", "robust"),
    "fee": Numeric("most_frequent", (0.0, 1.0)),
    "joined": Date("median", "max-abs"),
    "post": TargetEncode(standardise=True),
    "town": OneHot(),
}
"""The same for tables of which order statistics are taken, too."""

_ROUNDED = 1e-15
"""Of a length: what the 80-bit refit has lost itself, where a bound is of the last bit."""


@dataclass(frozen=True, slots=True)
class TableData(Data):
    """Rows of a table: X has the values of ``columns`` as requests give them, n x p objects."""

    columns: Columns = field(default_factory=lambda: COLUMNS)

    def rows(self) -> pipelines.Rows:
        """Return the table by column."""
        return dict(zip(self.columns, self.X.T, strict=True))


def draw(
    n: int, rng: np.random.Generator, kind: str = "linear", columns: Columns = COLUMNS
) -> TableData:
    """Return n random rows with gaps, and categories of which some have a row or two."""
    rows = pipelines.draw_rows(columns, n, rng)
    y = pipelines.draw_target(columns, rows, rng)
    if kind == "logistic":
        y = (y + rng.logistic(scale=5.0, size=n) > np.median(y)).astype(np.float64)
    rows["joined"][:] = [None if day is None else day.isoformat() for day in rows["joined"]]
    X = pipelines.matrix(columns, rows)
    return TableData(
        "table", kind, X, y[:, None], np.ones(n), 1.0, True, np.arange(0), columns=columns
    )


def values_like(data: TableData, rng: Random) -> dict[str, Any]:
    """Return a row's values: each from some row of the table, numbers moved.

    One in fifty is far out, and one in fifty has a category that the model has no place for.
    """
    n = len(data.X)
    found: dict[str, Any] = {}
    for name, values in zip(map(str, data.columns), data.X.T, strict=True):
        value = values[rng.randrange(n)]
        found[name] = value * (1 + 0.1 * rng.gauss(0, 1)) if isinstance(value, float) else value
    chance = rng.random()
    if chance < 0.02:
        found["age"] = 1e9
    elif chance < 0.04:
        found["town"] = "Atlantis"
    return found


def training_data(data: Data) -> TrainingData:
    """Return the data of any model as a file would give it."""
    plain = platform.training_data(data)
    if not isinstance(data, TableData):
        return plain
    return table_data(data.columns, plain.ids, data.rows(), data.y, plain.subjects)


def with_columns(config: ModelConfig, data: Data) -> ModelConfig:
    """Return the settings of any model, with its columns if its data are a table."""
    if not isinstance(data, TableData):
        return config
    made = training_data(data)
    return config.model_copy(
        update={
            "feature_names": made.feature_names,
            "target_names": made.target_names,
            "preprocess": made.preprocess,
        }
    )


def refitted(live: TableData, registered: TableData, *, penalised: bool = False) -> Wide:
    """Return the pipeline's parameters on ``live`` rows, d x 1: 0 for categories without a row.

    ``penalised``: the intercept is, because one class is left.
    """
    y = widened(live.y[:, 0])
    features = transformed(live.columns, _as_numbers(live), y)
    X = np.hstack([features, np.ones((len(y), 1), dtype=features.dtype)])
    penalty = widened([*[live.ridge] * features.shape[1], live.ridge if penalised else 0.0])
    weight, logistic = widened(live.weight), live.kind == "logistic"
    answer = solve(Problem(X, y[:, None], weight, penalty, logistic=logistic)).theta
    there = [*_places(live, registered), True]
    theta = np.zeros((len(there), 1), dtype=answer.dtype)
    theta[np.array(there)] = answer
    return theta


def _with_towns(data: TableData, towns: Collection[object]) -> TableData:
    """Return the rows in these towns: a registration may have left out all rows of others."""
    keep = np.array([town in towns for town in data.rows()["town"]])
    return replace(data, X=data.X[keep], y=data.y[keep], weight=data.weight[keep])


def _as_numbers(data: TableData) -> pipelines.Rows:
    """Return the table with dates as days."""
    rows = data.rows()
    dates = [None if day is None else date.fromisoformat(day) for day in rows["joined"]]
    days = [None if day is None else float((day - pipelines.EPOCH).days) for day in dates]
    return {**rows, "joined": np.array(days, dtype=object)}


def _places(live: TableData, registered: TableData) -> list[bool]:
    """Return of each feature of the registered model whether a live row has it."""
    there: list[bool] = []
    for name, column in live.columns.items():
        if isinstance(column, OneHot):
            now = set(live.rows()[name])
            there += [category in now for category in sorted(set(registered.rows()[name]))]
        else:
            there.append(True)
    return there


# -- what is stored and published ---------------------------------------------------------------


def stored_values(record: bytes, config: Mapping[str, Any], what: str) -> tuple[Any, ...]:
    """Return a record's row as requests give it: values by name in order, target, weight."""
    d = len(config["feature_names"]) + 1
    blocks = 1 - config.get("exact_sums", False)
    columns = config["preprocess"]
    found = codec.unpack_rows([record], d, 1, what, blocks, given=len(columns))
    numeric = [c for c in columns if c["step"] in ("numeric", "date")]
    coded = [c for c in columns if c["step"] not in ("numeric", "date")]
    pairs = zip([*numeric, *coded], found.X[0].tolist(), strict=True)
    values = {column["name"]: _given(column, value) for column, value in pairs}
    return (*(values[c["name"]] for c in columns), *found.y[0].tolist(), float(found.weight[0]))


def _given(column: Mapping[str, Any], value: float) -> Any:
    if column["step"] not in ("numeric", "date"):
        return column["categories"][int(value)]
    if np.isnan(value):
        return None
    return (pipelines.EPOCH + timedelta(value)).isoformat() if column["step"] == "date" else value


def check_pipeline(platform: Platform, model_id: str, live: TableData, exact_to: float) -> None:
    """A linear running answer is the refitted pipeline; what is published is as far as it says."""
    state = platform.load(model_id)
    published = state.published_pipeline
    assert published is not None
    if state.meta.rows_live == 0:
        assert state.meta.status == "EMPTY"
        assert not published.theta.any()
        return
    data = platform.data[model_id]
    assert isinstance(data, TableData)
    [town] = [column for column in published.columns if column.name == "town"]
    registered = _with_towns(data, set(town.categories))
    penalised = state.meta.status == "INTERCEPT_PENALISED"
    truth = refitted(live, registered, penalised=penalised)
    linear = live.kind == "linear"
    if linear and state.pipeline is not None:  # None: rows are missing, and a rebuild is to come
        exact = state.pipeline.published(state.stream._replace(published=state.stream.theta_exact))
        assert distance(exact, truth) < exact_to * length(truth)
    error = state.meta.error
    there = np.array([*_places(live, registered), True])
    solution = state.stream.solution
    if solution is not None:
        rows = _as_numbers(live)
        expected = minimiser(live.columns, rows, live.y, live.weight, ridge=live.ridge, digits=200)
        assert solution.minimiser.theta[there].tobytes() == expected.tobytes()
    assert error.bound is not None or not linear
    if error.bound is not None:
        assert distance(published.theta, truth) <= error.bound + _ROUNDED * length(truth)
    assert not published.theta[~there].any(), "a category without a row has a weight"
    vanished = np.flatnonzero(~there[-1 - len(set(registered.rows()["town"])) : -1]).tolist()
    assert list(town.vanished) == vanished, "a category without a row is known"
