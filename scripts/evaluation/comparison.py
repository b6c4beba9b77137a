"""HF-OCU, PrIU and SISA beside this project's methods: time, distance to retraining, memory.

Every method deletes the same rows of the same data. HF-OCU and PrIU update a mini-batch descent
that stops before the minimum, so that two distances are given: to the method's own retraining (what
the deletion leaves), and to the minimiser on the remaining rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from evaluation.data import DATA, Array, Index, Table
from evaluation.deletions import retrained
from evaluation.rivals.descent import Descent
from evaluation.rivals.hf_ocu import HessianFree
from evaluation.rivals.priu import Provenance
from evaluation.rivals.sisa import Sharded
from harness.timing import Samples, in_turns
from lethe import LogisticModel

_HELD_OUT = 0.25
_BUDGET = 1e-5  # of the polished model, relative
OURS = ("pru", "exact", "polished")


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows deleted, epochs and batch of the descent, timed rounds and draws."""

    deleted: tuple[int, ...] = (1, 20)
    batch: int = 64
    epochs: int = 60
    rounds: int = 5
    draws: int = 5


@dataclass(frozen=True, slots=True)
class _Deletion:
    """One method: the call that deletes, theta after it, its own retraining, and its state."""

    call: Callable[[], object]
    theta: Callable[[], Array]
    goal: Array
    bytes: int


@dataclass(frozen=True, slots=True)
class _Trained:
    """What the published methods keep of their training on the rows ``train``."""

    table: Table
    train: Index
    descent: Descent
    free: HessianFree
    priu: Provenance
    sharded: Sharded


def measure(name: str, plan: Plan, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a record for each method and number of rows: medians over draws of the rows."""
    rng = np.random.default_rng([seed, 3, list(DATA).index(name)])
    table = DATA[name](rng)
    order = rng.permutation(len(table.y))
    held_out = round(_HELD_OUT * len(order))
    test, train = order[:held_out], order[held_out:]
    descent = Descent.of(table, train, plan.epochs, plan.batch, seed)
    trained = _Trained(
        table, train, descent, HessianFree.train(table, descent),
        Provenance.train(table, descent), Sharded.train(table, train, seed),
    )  # fmt: skip
    for k in plan.deleted:
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(plan.draws):
            gone = rng.choice(train, k, replace=False)
            for method, figures in _figures(trained, gone, test, plan.rounds).items():
                found.setdefault(method, []).append(figures)
        for method, of_draws in found.items():
            medians = {f: float(np.median([one[f] for one in of_draws])) for f in of_draws[0]}
            yield {"part": "comparison", "data": name, "k": k, "method": method, **medians}


def _rivals(trained: _Trained, gone: Index) -> dict[str, _Deletion]:
    """Return retraining and the published methods, which may be called any number of times."""
    table, kept = trained.table, np.setdiff1d(trained.train, gone)
    optimum = retrained(table, kept)
    descended = trained.descent.train(table, gone)
    free, priu, sharded = trained.free, trained.priu, trained.sharded
    return {
        "retrain": _Deletion(lambda: retrained(table, kept), lambda: optimum, optimum, 0),
        "HF-OCU": _Deletion(
            lambda: free.delete(gone), lambda: free.delete(gone), descended, free.bytes
        ),
        "PrIU": _Deletion(
            lambda: priu.delete(gone), lambda: priu.delete(gone), descended, priu.bytes
        ),
        "SISA": _Deletion(
            lambda: sharded.delete(gone),
            lambda: sharded.delete(gone).theta,
            sharded.retrained(gone).theta,
            sharded.bytes,
        ),
    }


def _ours(trained: _Trained, gone: Index, optimum: Array) -> dict[str, _Deletion]:
    """Return the library's methods; polished is ``exact`` and a refresh. Each call works once."""
    table, train = trained.table, trained.train
    ids = [str(row) for row in train]
    n, d = len(train), table.X.shape[1]
    state = 8 * (n * d + d * d + d)  # dual rows, factor, theta
    made = {}
    for method in OURS:
        model = LogisticModel(ridge=table.ridge, fit_intercept=False, error_budget=_BUDGET)
        model.fit(table.X[train], table.y[train], ids=ids)
        call = partial(_delete, model, [str(row) for row in gone], method)
        made[method] = _Deletion(call, partial(getattr, model, "theta"), optimum, state)
    return made


def _delete(model: LogisticModel, ids: Sequence[str], method: str) -> None:
    model.delete(ids, method="exact" if method == "polished" else method)
    if method == "polished":
        model.refresh("polish")


def _figures(
    trained: _Trained, gone: Index, test: Index, rounds: int
) -> dict[str, dict[str, float]]:
    """Time the methods and judge what they leave."""
    rivals = _rivals(trained, gone)
    optimum = rivals["retrain"].goal
    ours = _ours(trained, gone, optimum)
    samples = {name: Samples() for name in ours}
    for name, one in ours.items():
        samples[name].take(one.call)
    samples |= in_turns({name: one.call for name, one in rivals.items()}, rounds)
    figures = {}
    for name, one in {**ours, **rivals}.items():
        theta = one.theta()
        figures[name] = {
            "seconds": float(np.median(samples[name].processor)),
            "to_own_retraining": _distance(theta, one.goal),
            "to_optimum": _distance(theta, optimum),
            "accuracy": float(np.mean(trained.table.margins(theta, test) > 0)),
            "bytes": float(one.bytes),
        }
    return figures


def _distance(theta: Array, goal: Array) -> float:
    return float(np.linalg.norm(theta - goal) / np.linalg.norm(goal))
