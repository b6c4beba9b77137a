"""One stream of mixed changes to a model, and what is compared at its stops."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from lethe import LinearModel
from lethe.engine.error.estimate import ErrorKind
from lethe.engine.errors import LetheError
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.fitted_linear import FittedLinear
from tests.proof.exact import pipelines
from tests.proof.exact.families import FAMILIES, Family
from tests.proof.exact.found import CHANGES, STOPS, Found
from tests.support.in_fractions import minimiser, nearest

MOST_IN_FRACTIONS = 8
"""Coefficients, the intercept counted, up to which the end of a stream is solved in fractions."""

_METHODS = ("exact", "pru", "influence")


Row = tuple[Array, float, float]


class _Stream:
    """A model, the rows that it should have, and what can happen to them."""

    def __init__(self, name: str, family: Family, seed: int) -> None:
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.family = family
        low = 5 if family.few else 1
        self.d = int(self.rng.integers(low, family.most + 1))
        self.n = int(self.rng.integers(2, self.d) if family.few else self.rng.integers(3, 40))
        self.ridge = 10.0 ** self.rng.uniform(-6.0, 1.0)
        self.intercept, self.penalised = bool(seed % 2), bool(seed % 3)
        rows = self.drawn(self.n)
        self.live: dict[str, Row] = {str(i): row for i, row in enumerate(rows)}
        self.right: dict[str, Row] = {}  # of rows that a slip has spoilt
        self.model = self.fresh(list(self.live))
        self.born = self.n

    def drawn(self, k: int) -> list[Row]:
        X, y = self.family.draw(self.rng, k, self.d)
        weight = np.ones(k)
        if self.family.weighted:
            weight = 10.0 ** self.rng.uniform(-8.0, 8.0, k) * (self.rng.random(k) < 0.95)
        return [(x, float(t), float(w)) for x, t, w in zip(X, y, weight, strict=True)]

    def table(self, ids: list[str]) -> tuple[Array, Array, Array]:
        rows = [self.live[name] for name in ids]
        X = np.array([row[0] for row in rows]).reshape(len(rows), self.d)
        return X, np.array([row[1] for row in rows]), np.array([row[2] for row in rows])

    def fresh(self, ids: list[str]) -> LinearModel:
        X, y, weight = self.table(ids)
        model = LinearModel(
            self.ridge, fit_intercept=self.intercept, penalise_intercept=self.penalised
        )
        return model.fit(X, y, ids=ids, sample_weight=weight)

    def change(self) -> None:
        """Make one change, drawn."""
        ways: tuple[Callable[[str], None], ...] = (
            self._delete,
            self._delete,
            self._insert,
            self._insert,
            self._correct,
            self._reweight,
            self._slip,
            self._put_right,
            self._refresh,
        )
        way = ways[int(self.rng.integers(len(ways)))]
        if len(self.live) < 3:
            way = self._insert
        way(_METHODS[int(self.rng.integers(3))])

    def _some(self, k: int) -> list[str]:
        ids = list(self.live)
        return [ids[int(i)] for i in self.rng.choice(len(ids), min(k, len(ids)), replace=False)]

    def _delete(self, method: str) -> None:
        ids = self._some(int(self.rng.integers(1, 3)))
        self.model.delete(ids, method=method)
        for name in ids:
            del self.live[name]
            self.right.pop(name, None)

    def _insert(self, method: str) -> None:
        k = int(self.rng.integers(1, 3))
        self._put({str(self.born + i): row for i, row in enumerate(self.drawn(k))}, method)
        self.born += k

    def _correct(self, method: str) -> None:
        self._put(dict(zip(self._some(1), self.drawn(1), strict=True)), method)

    def _reweight(self, method: str) -> None:
        [name] = self._some(1)
        x, t, _ = self.live[name]
        weight = 10.0 ** self.rng.uniform(-8.0, 8.0) if self.family.weighted else 2.0
        self._put({name: (x, t, weight)}, method)

    def _slip(self, method: str) -> None:
        """Make one number, or a row, 10 to a million times too large."""
        [name] = self._some(1)
        x, t, w = self.live[name]
        times = np.ones(self.d)
        of = slice(None) if self.rng.random() < 0.5 else int(self.rng.integers(self.d))
        times[of] = 10.0 ** int(self.rng.integers(1, 7))
        self.right.setdefault(name, (x, t, w))
        self._put({name: (x * times, t, w)}, method)

    def _put_right(self, method: str) -> None:
        self._put(self.right, method)
        self.right = {}

    def _put(self, rows: dict[str, Row], method: str) -> None:
        if not rows:
            return
        ids = list(rows)
        new = ids[0] not in self.live
        before = dict(self.live)
        self.live.update(rows)
        X, y, weight = self.table(ids)
        try:
            change = self.model.insert if new else self.model.correct
            change(X, y, ids, weight, method=method)
        except LetheError:
            self.live = before
            raise

    def _refresh(self, _method: str) -> None:
        sizes = ("complete", "compact", "polish", "rebuild")
        self.model.refresh(sizes[int(self.rng.integers(len(sizes)))])

    @property
    def parameters(self) -> Array:
        return self.model._fitted.stream.published

    @property
    def rational(self) -> bool:
        state = self.model._fitted
        assert isinstance(state, FittedLinear)
        return state.solution.minimiser.rational

    def in_fractions(self) -> list[list[Fraction]]:
        X, y, weight = self.table(list(self.live))
        if self.intercept:
            X = np.hstack([X, np.ones((len(X), 1))])
        penalty = np.full(X.shape[1], self.ridge)
        if self.intercept and not self.penalised:
            penalty[-1] = 0.0
        return minimiser(Rows(X, y[:, np.newaxis], weight), penalty)


def run_all(name: str, seeds: range, changes: int = CHANGES) -> Found:
    """Run streams of a family, one after the other."""
    found = Found()
    for seed in seeds:
        prepared = name == pipelines.PIPELINES
        found.add(pipelines.run(seed, changes) if prepared else run(name, seed, changes))
    return found


def run(name: str, seed: int, changes: int = CHANGES) -> Found:
    """Run a stream of a family."""
    stream, found = _Stream(name, FAMILIES[name], seed), Found(streams=1)
    digest, same = hashlib.sha256(), True
    for turn in range(1, changes + 1):
        before = stream.model._fitted
        try:
            stream.change()
        except LetheError as error:
            found.refused += 1
            found.wrong.append(f"{name}, seed {seed}, change {turn}: {error}")
        if stream.model._fitted is not before:
            if stream.right:
                found.slips += 1
                found.slips_rational += stream.rational
            else:
                found.changes += 1
                found.rational += stream.rational
        digest.update(stream.model._fitted.stream.theta_exact.tobytes())
        if turn % (changes // STOPS) == 0:
            same &= _stop(stream, found, f"{name}, seed {seed}, change {turn}", turn == changes)
    found.same = int(same)
    found.digest = digest.hexdigest()
    return found


def _stop(stream: _Stream, found: Found, where: str, last: bool) -> bool:
    """Compare the model with a fresh fit in another order, and at the end with fractions."""
    ids = [str(name) for name in stream.rng.permutation(list(stream.live))]
    fresh = stream.fresh(ids)
    truth = fresh._fitted.stream.published
    error = stream.model.error
    assert error.value is not None
    found.bounds += 1
    if not np.linalg.norm(stream.parameters - truth) <= error.value + (fresh.error.value or 0.0):
        found.false += 1
        found.wrong.append(f"{where}: an error of {error.value} is below the truth")
    stream.model.refresh("complete")
    same = stream.parameters.tobytes() == truth.tobytes()
    if not same:
        found.wrong.append(f"{where}: not the bytes of a fresh fit")
    if stream.model.error.kind is not ErrorKind.ROUNDED and any(
        w for *_, w in stream.live.values()
    ):
        found.wrong.append(f"{where}: it is called {stream.model.error.kind}")
    if last and len(truth) <= MOST_IN_FRACTIONS:
        found.in_fractions += 1
        exact = stream.in_fractions()
        rounded = np.array([[nearest(value) for value in row] for row in exact])
        found.equal += stream.parameters.tobytes() == rounded.tobytes()
        off = sum(
            (Fraction(float(stream.parameters[j, 0])) - exact[j][0]) ** 2 for j in range(len(exact))
        )
        found.bounds += 1
        if off > Fraction(stream.model.error.value or 0.0) ** 2:
            found.false += 1
            found.wrong.append(f"{where}: half a unit in the last place is below the truth")
    return same
