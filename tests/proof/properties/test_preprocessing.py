"""Preprocessing inside a model: 5,000 mixed changes, and bounds against the 80-bit oracle."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from lethe import LinearModel
from lethe.engine.preprocess.input.columns import (
    Columns,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
    passthrough,
)
from tests.proof.bounds.pipelines import run_seeds
from tests.support.pipelines import draw_rows, draw_target, joined, matrix, parameters, pipeline

LOG = logging.getLogger(__name__)

COLUMNS: Columns = {
    **{f"number{i}": Numeric() for i in range(24)},
    **{f"plain{i}": passthrough() for i in range(16)},
    **{f"imputed{i}": Numeric(standardise=False) for i in range(8)},
    **{f"town{i}": OneHot() for i in range(3)},
    **{f"grade{i}": Ordinal(standardise=i == 0) for i in range(3)},
    **{f"post{i}": TargetEncode(standardise=i % 2 == 0) for i in range(4)},
    **{f"job{i}": TargetEncode(smooth=3.0, standardise=i == 0) for i in range(2)},
    **{f"date{i}": Date() for i in range(4)},
}
"""Columns of every kind; about 100 features."""


@pytest.mark.timeout(900)
def test_5000_mixed_changes_leave_what_the_pipeline_gives() -> None:
    """Up to three rows a change, a refresh by the policy every 500."""
    rng = np.random.default_rng(1)
    rows, live = draw_rows(COLUMNS, 2000, rng), {str(i): i for i in range(2000)}
    y = draw_target(COLUMNS, rows, rng)
    model = LinearModel(preprocess=COLUMNS, rounded_features=0).fit(rows, y)
    assert 95 <= len(model.theta) <= 105
    for number in range(1, 5001):
        what, k = rng.integers(3), int(rng.integers(1, 4))
        ids = [str(name) for name in rng.permutation(list(live))[:k]]
        if what == 0:
            model.delete(ids, method="exact")
            for name in ids:
                del live[name]
        else:
            fresh = draw_rows(COLUMNS, k, rng)
            targets, start = draw_target(COLUMNS, fresh, rng), len(y)
            ids = ids if what == 1 else [f"new{number}-{i}" for i in range(k)]
            (model.correct if what == 1 else model.insert)(fresh, targets, ids, method="exact")
            rows, y = joined(rows, fresh), np.append(y, targets)
            live |= {name: start + i for i, name in enumerate(ids)}
        if number % 500 == 0:
            model.refresh()
        if number % 250 == 0:
            places = list(live.values())
            truth = parameters(pipeline(COLUMNS).fit(matrix(COLUMNS, rows, places), y[places]))
            theta = np.append(model.theta, model.intercept)
            size, bound = float(np.linalg.norm(truth)), model.error.bound
            distance = float(np.linalg.norm(theta - truth))
            assert bound is not None
            LOG.info("change %d: %.1e away, bound %.1e", number, distance / size, bound / size)
            assert distance <= min(bound, 1e-9 * size)


@pytest.mark.timeout(600)
def test_no_bound_of_a_hostile_table_is_below_the_truth() -> None:
    outcome = run_seeds(range(150))
    assert outcome.escaped == []
    assert outcome.false == []
    assert len(outcome.states) >= 1200
