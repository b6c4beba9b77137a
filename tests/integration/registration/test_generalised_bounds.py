"""Bounds that the service publishes of hostile counts and classes, against an 80-bit oracle."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from lethe.engine.errors import LetheError
from lethe.engine.refresh.size import RefreshSize
from tests.proof.bounds import generalised, oracle_glm
from tests.proof.bounds.case import drawn
from tests.support.families import Array, Data
from tests.support.platform import Platform
from tests.support.tables import Table

SEEDS = 2
"""Of each family."""

FAMILIES = {"poisson": generalised.COUNTS, "softmax": generalised.CLASSES}


def below_the_truth(table: Table, published: Array, bound: float, *, penalised: bool) -> bool:
    """Return whether retraining is surely further away than a bound says."""
    rows = list(table.rows.values())
    X, y = np.array([x for x, _, _ in rows]), np.array([y for _, y, _ in rows])
    if table.data.intercept:
        X = np.hstack([X, np.ones((len(X), 1))])
    penalty = np.full(X.shape[1], table.data.ridge)
    if table.data.intercept and not penalised:
        penalty[-1] = 0.0
    weight = np.array([weight for _, _, weight in rows])
    wide = [part.astype(np.longdouble) for part in (X, y, weight, penalty)]
    loss: oracle_glm.Smooth = oracle_glm.Softmax(*wide)
    if table.data.kind == "poisson":
        loss = oracle_glm.Counts(wide[0], wide[1][:, 0], *wide[2:])
    answer = oracle_glm.solve(loss, published.size)
    away = np.linalg.norm((published.T.ravel() - answer.theta).astype(np.float64))
    return bool(away - float(answer.error) > bound)


@pytest.mark.parametrize(
    ("kind", "family"), [(kind, name) for kind, of in FAMILIES.items() for name in of.named]
)
def test_no_bound_of_hostile_rows_is_below_the_truth(
    memory: Platform, kind: str, family: str
) -> None:
    judged = 0
    for seed in range(SEEDS):
        case, rng = drawn(family, FAMILIES[kind].named[family], seed)
        n, model = len(case.X), f"m{seed}"
        X, y = np.asarray(case.X, dtype=np.float64), case.y.reshape(n, 1)
        if kind == "softmax":
            y = (y == np.unique(y)).astype(np.float64)
        data = Data(family, kind, X, y, np.ones(n), case.ridge, case.intercept, np.arange(n))
        with suppress(LetheError):  # numbers too large to compute with: nothing is published
            memory.register(model, data, budget=10.0, method=str(rng.choice(["pru", "exact"])))
        if model not in memory.data:
            continue
        table = Table(memory, model, seed)
        others = [i for i in rng.permutation(n).tolist() if i not in case.order]
        for step, row in enumerate([*case.order, *others][:6]):
            table.delete(f"row-{row}")
            if step % 2:
                new = table.row(f"new-{step}")
                sent = memory.send_change(model, "insert", new)
                memory.drain()
                if memory.finals(model)[sent].status == "APPLIED":
                    table._set("insert", [new])
            memory.drain()
            memory.refresh(model, RefreshSize.REBUILD if step == 4 else RefreshSize.POLISH)
            state = memory.load(model)
            assert state.meta.rows_live == len(table.rows)
            bound, penalised = state.meta.error.bound, state.meta.status == "INTERCEPT_PENALISED"
            if bound is not None:
                judged += 1
                assert not below_the_truth(
                    table, state.stream.published, bound, penalised=penalised
                ), (seed, step)
    assert judged > 0
