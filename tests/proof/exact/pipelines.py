"""Streams of mixed changes to models with preprocessing, judged in decimals at the end."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from lethe import LinearModel
from lethe.engine.error.estimate import ErrorKind
from lethe.engine.errors import LetheError
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import Numeric
from lethe.engine.preprocess.library.rounded import RoundedPipeline
from tests.proof.bounds.pipelines import draw_columns, draw_targets, draw_values
from tests.proof.exact.found import CHANGES, STOPS, Found
from tests.support.pipeline_in_decimals import minimiser

PIPELINES = "pipelines"
_POOL = 400
_DIGITS = 300


class _Stream:
    """A model, and what its live rows are: places in a pool of rows, and their weights."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng([seed, 1])
        self.columns = draw_columns(rng)
        n = int(rng.integers(3, 40))
        self.pool = {name: draw_values(c, _POOL, rng) for name, c in self.columns.items()}
        self.y = draw_targets(self.pool, _POOL, rng)
        self.ridge, self.weighted = 10.0 ** rng.uniform(-6.0, 1.0), rng.random() < 0.3
        for values in self.pool.values():
            if values[0] is None:
                values[0] = 1.0
        self.live = {str(i): (i, self._weight()) for i in range(n)}
        self.right: dict[str, tuple[int, float]] = {}  # of rows that a slip has spoilt
        self.born = n
        self.model = self.fresh(list(self.live))

    def _weight(self) -> float:
        if not self.weighted:
            return 1.0
        weight = float(10.0 ** self.rng.uniform(-8.0, 8.0))
        return weight if self.rng.random() < 0.9 else 0.0

    def table(self, ids: list[str]) -> tuple[dict[Any, np.ndarray], Array, Array]:
        places = [self.live[name][0] for name in ids]
        rows = {name: values[places] for name, values in self.pool.items()}
        return rows, self.y[places], np.array([self.live[name][1] for name in ids])

    def fresh(self, ids: list[str]) -> LinearModel:
        rows, y, weight = self.table(ids)
        model = LinearModel(self.ridge, preprocess=self.columns)
        return model.fit(rows, y, ids=ids, sample_weight=weight)

    def change(self) -> None:
        """Make one change, drawn."""
        way = int(self.rng.integers(8)) if len(self.live) > 4 else 2
        method = ("exact", "exact", "pru", "influence")[int(self.rng.integers(4))]
        some = str(self.rng.choice(list(self.live)))
        if way < 2:
            self.model.delete([some], method=method)
            del self.live[some]
            self.right.pop(some, None)
        elif way < 4:
            self.born += 1
            self._put({str(self.born): (self._drawn(), self._weight())}, method)
        elif way == 4:
            self._put({some: (self._drawn(), self._weight())}, method)
        elif way == 5:
            self._put({some: (self._slip(self.live[some][0]), self.live[some][1])}, method)
        elif way == 6 and self.right:
            back, self.right = self.right, {}
            self._put(back, method, slip=True)
            self.right = {}
        else:
            sizes = ("complete", "compact", "polish", "rebuild")
            self.model.refresh(sizes[int(self.rng.integers(4))])

    def _drawn(self) -> int:
        return int(self.rng.integers(len(self.y)))

    def _slip(self, place: int) -> int:
        """Return the place of a row in which a number is 10 to a million times too large."""
        times = 10.0 ** int(self.rng.integers(1, 7))
        names = [name for name, column in self.columns.items() if isinstance(column, Numeric)]
        spoilt = str(self.rng.choice(names)) if names else None
        for name, values in self.pool.items():
            value = values[place]
            more = value * times if name == spoilt and value is not None else value
            self.pool[name] = np.append(values, np.array([more], dtype=object))
        self.y = np.append(self.y, self.y[place])
        return len(self.y) - 1

    def _put(self, rows: dict[str, tuple[int, float]], method: str, *, slip: bool = False) -> None:
        ids, before = list(rows), dict(self.live)
        change = self.model.correct if ids[0] in self.live else self.model.insert
        for name in ids:
            spoilt = name in before and rows[name][0] >= _POOL
            if spoilt and not slip:
                self.right.setdefault(name, before[name])
        self.live.update(rows)
        given, y, weight = self.table(ids)
        try:
            change(given, y, ids, weight, method=method)
        except LetheError:
            self.live = before
            raise

    @property
    def rational(self) -> bool:
        state = self.model._fitted
        assert isinstance(state, RoundedPipeline)
        return state.solution.minimiser.rational

    def published(self, model: LinearModel) -> dict[str, float]:
        """Return the parameters by name, without those that are 0."""
        state = model._fitted
        assert isinstance(state, RoundedPipeline)
        names = (*state.feature_names, "intercept")
        values = state.published[:, 0].tolist()
        return {name: value for name, value in zip(names, values, strict=True) if value}


def run(seed: int, changes: int = CHANGES) -> Found:
    """Run a stream."""
    stream, found = _Stream(seed), Found(streams=1)
    digest, same = hashlib.sha256(), True
    for turn in range(1, changes + 1):
        where = f"{PIPELINES}, seed {seed}, change {turn}"
        try:
            stream.change()
        except LetheError as error:
            found.refused += 1
            found.wrong.append(f"{where}: {error}")
        if stream.right:
            found.slips += 1
            found.slips_rational += stream.rational
        else:
            found.changes += 1
            found.rational += stream.rational
        digest.update(stream.model._fitted.stream.theta_exact.tobytes())
        if turn % (changes // STOPS) == 0:
            same &= _stop(stream, found, where)
    _judge(stream, found, f"{PIPELINES}, seed {seed}")
    found.same, found.digest = int(same), digest.hexdigest()
    return found


def _stop(stream: _Stream, found: Found, where: str) -> bool:
    """Compare the model with a fresh fit in another order."""
    if not any(weight for _, weight in stream.live.values()):
        return True
    ids = [str(name) for name in stream.rng.permutation(list(stream.live))]
    stream.model.refresh("complete")
    if any(all(v is None for v in values) for values in stream.table(ids)[0].values()):
        return True  # a fit refuses a column without a value; the end is judged in decimals
    same = stream.published(stream.model) == stream.published(stream.fresh(ids))
    if not same:
        found.wrong.append(f"{where}: not the parameters of a fresh fit")
    if stream.model.error.kind is not ErrorKind.ROUNDED:
        found.wrong.append(f"{where}: it is called {stream.model.error.kind}")
    return same


def _judge(stream: _Stream, found: Found, where: str) -> None:
    """Compare the end with the pipeline in decimals."""
    rows, y, weight = stream.table(list(stream.live))
    if not weight.any():
        return
    expected = minimiser(stream.columns, rows, y, weight, ridge=stream.ridge, digits=_DIGITS)
    published = stream.published(stream.model)
    found.in_fractions += 1
    equal = list(published.values()) == [v for v in expected[:, 0].tolist() if v]
    found.equal += equal
    if not equal:
        found.wrong.append(f"{where}: not the pipeline in decimals")
