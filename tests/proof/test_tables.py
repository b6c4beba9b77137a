"""The judge's refit of a table is scikit-learn's pipeline, and rows survive their way to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from random import Random

import numpy as np
import pytest

from lethe.engine.preprocess.input.columns import Columns
from tests.proof.live_rows import Row, changed, data_of, rows_of
from tests.proof.tables import BY_ORDER, COLUMNS, TableData, draw, refitted, values_like
from tests.support import pipelines

TABLE = draw(80, np.random.default_rng(3))


@pytest.mark.parametrize("columns", [COLUMNS, BY_ORDER], ids=["means", "order"])
def test_the_judges_refit_is_scikit_learns_pipeline(columns: Columns) -> None:
    table = draw(80, np.random.default_rng(3), columns=columns)
    live = data_of([*rows_of(table).values()][:20], table)
    assert isinstance(live, TableData)
    theta = refitted(live, table).astype(np.float64)[:, 0]
    rows = live.rows()
    days = [None if day is None else date.fromisoformat(day) for day in rows["joined"]]
    rows = {**rows, "joined": np.array(days, dtype=object)}
    fitted = pipelines.pipeline(columns, ridge=table.ridge)
    fitted.fit(pipelines.matrix(columns, rows), live.y[:, 0])
    gone = ~np.isin(sorted(set(table.rows()["town"])), sorted(set(rows["town"])))
    assert gone.any(), "a category vanishes, and keeps its place"
    there = np.append(np.ones(len(theta) - len(gone) - 1, dtype=bool), [*~gone, True])
    assert not theta[~there].any()
    np.testing.assert_allclose(theta[there], pipelines.parameters(fitted), rtol=1e-10, atol=1e-12)


def test_a_request_leaves_the_row_that_it_gives() -> None:
    values = values_like(TABLE, Random(0))
    given = {"id": "row-0", "values": dict(reversed(values.items())), "target": 1.0}
    before = Row(tuple(TABLE.X[0]), (2.0,), 0.5, "somebody")
    expected = Row(tuple(values[str(name)] for name in COLUMNS), (1.0,), 0.5, "somebody")
    assert changed(before, given) == expected


def test_the_refit_tells_statistics_that_kept_a_row() -> None:
    """One row more moves the refit by far more than the judge forgives."""
    whole, less = TABLE, data_of([*rows_of(TABLE).values()][1:], TABLE)
    assert isinstance(less, TableData)
    far = np.linalg.norm((refitted(whole, TABLE) - refitted(less, TABLE)).astype(np.float64))
    assert far > 1e-3
    heavier = replace(less, weight=2 * less.weight)
    assert refitted(heavier, TABLE) != pytest.approx(refitted(less, TABLE))
