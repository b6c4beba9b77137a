"""Section ``cost against n``: the deletion step beside the number of rows that are kept.

X and W lie in memory-mapped files, as large as the rows need; every page has been touched before
(warm). A sample takes k random rows out of the files and deletes them. Fit and dual rows are the
engine's own, made block by block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from harness.records import Record, Setting, timed
from harness.study import Section, Setup
from harness.timing import in_turns
from kernels.steps import METHODS
from lethe.engine.deletion.generation import Generation, at_rest
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.fit.factor import factorise
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fit.precompute import dual_rows

_BLOCK = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes."""

    n: Sequence[int] = (10_000, 1_000_000)
    d: int = 250
    k: Sequence[int] = (1, 10, 100)
    repeats: int = 101


@dataclass(frozen=True, slots=True)
class _Kept:
    """A model whose rows are in files."""

    X: Array
    W: Array
    y: Array
    theta: Array
    generation: Generation


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Make the files, time the steps in turns, and delete the files."""
    seed, few, many = setup.seed, min(plan.n), max(plan.n)
    with tempfile.TemporaryDirectory(dir=setup.directory) as made:
        models = {n: _make(Path(made), n, plan.d, seed) for n in plan.n}
        for k in plan.k:
            for method in METHODS:
                steps = {str(n): _Step(models[n], method, k, seed) for n in plan.n}
                samples = in_turns(steps, plan.repeats, partial(_renew, steps.values()))
                times = {}
                for n in plan.n:
                    setting: Setting = {"method": method, "n": n, "d": plan.d, "k": k}
                    times[n] = timed(setting, "rows read and deleted", samples[str(n)])
                yield from times.values()
                ratio = times[many].value / times[few].value
                which: Setting = {"method": method, "d": plan.d, "k": k}
                metric = f"n = {many:,} over n = {few:,}"
                yield Record(which, metric, "1", ratio, plan.repeats, goal=1.2)


def _make(directory: Path, n: int, d: int, seed: int) -> _Kept:
    """Write n rows and their dual rows; leave every page touched."""
    rng = np.random.default_rng((seed, n))
    X, W = (_mapped(directory / f"{name}-{n}", n, d) for name in "XW")
    truth = rng.standard_normal((d, 1))
    y = np.empty((n, 1))
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        X[block] = rng.standard_normal(X[block].shape)
        y[block] = X[block] @ truth + rng.standard_normal(y[block].shape)
    rows = Rows(X, y, np.ones(n))
    objective = Objective(Kind.LINEAR, np.ones(d))
    factor = factorise(objective.hessian(rows, np.zeros((d, 1))))
    theta = factor.solve(X.T @ y)
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        W[block] = dual_rows(factor, X[block])
    for mapped in (X, W):
        mapped[:, 0].sum()  # touches every page: a row is shorter than two
    generation = Generation(0, objective, theta, factor.smallest, factor.largest, 0.0)
    return _Kept(X, W, y, theta, generation)


def _mapped(path: Path, n: int, d: int) -> Array:
    """Return an n x d array in a new file, as a plain array."""
    return np.asarray(np.memmap(path, dtype=np.float64, mode="w+", shape=(n, d)))


class _Step:
    """The deletion of k rows of a model by a method."""

    def __init__(self, model: _Kept, method: str, k: int, seed: int) -> None:
        self.model, self.method = model, method_named(method)
        self.rng = np.random.default_rng((seed, k))
        self.weight = np.ones(k)
        self.renew()

    def renew(self) -> None:
        """Draw the rows that the next call deletes; give the stream unused buffers."""
        k = len(self.weight)
        self.stream = at_rest(self.model.theta, 0.0)
        self.index = self.rng.choice(len(self.model.y), k, replace=False)

    def __call__(self) -> object:
        """Read the rows and delete them."""
        model, index = self.model, self.index
        rows = Rows(model.X[index], model.y[index], self.weight)
        return delete(model.generation, self.stream, rows, model.W[index], self.method)


def _renew(steps: Iterable[_Step]) -> None:
    for step in steps:
        step.renew()


SECTION = Section("cost against n", Plan(), Plan(n=(500, 5000), d=50, k=(1, 10), repeats=5), run)
