"""What tests/proof/properties/test_battery.py runs on: models, routes, and the observer.

A *route* is a way to run a model: the raw stream of `engine.deletion.stream`, or the library's
classes. An *observer* sees which rows were deleted and which refreshes were made, and says by
oracles alone what must be published. It takes three points from the engine, as a reader of the
paper would: theta_b, theta_r and the anchor; each is checked when it appears
(`test_battery.check_refresh`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lethe.engine import LinearModel, LogisticModel, PoissonModel, RefreshSize
from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.error.estimate import PublishedError, published_error
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Rows
from lethe.engine.refresh.policy import Limits
from lethe.engine.refresh.refreshes import adopt_polish, compact, complete, polish_snapshot, rebuild
from tests.support.families import Array, Index, make_any, remodelled
from tests.support.oracles import (
    Wide,
    projection,
    retrain_by_others,
    retrain_wide,
    slopes,
    solve_hessian,
    solve_hessian_scipy,
)
from tests.support.states import Started, start

FAR_UNDER = 1e-10
"""Of |theta|: what polishes aim at, so that a polished point can be told from a fitted one."""

Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Model:
    """One line of the table of models: what is fitted to a family's rows.

    ``m`` targets, or classes of a logistic model; ``weighted`` gives each row a weight of its own;
    ``other_intercept`` fits one where the family has none, and none where it has one.
    """

    name: str
    kind: str
    m: int = 1
    weighted: bool = False
    other_intercept: bool = False

    @functools.cache  # noqa: B019 - the models are those of one table
    def started(self, family: str) -> Started:
        """Return the family's rows for this model, and its precomputation."""
        made = make_any(family, self.kind)
        return start(remodelled(made, self.m, self.other_intercept, self.weighted))


class Route(Protocol):
    """A way to run a model, and what can be read of it."""

    @property
    def generation(self) -> Generation:
        """The generation of today."""

    @property
    def stream(self) -> Stream:
        """The running state."""

    @property
    def factor(self) -> Factor:
        """The factor that V is relative to."""

    def delete(self, index: Index, method: str) -> None:
        """Delete rows."""

    def refresh(self, size: RefreshSize) -> None:
        """Do a refresh of this size."""

    def error(self) -> PublishedError:
        """Return the published error; an estimate is made from every live row."""

    def published(self) -> Array:
        """Return what is published, d x m."""


class RawStream:
    """`engine.deletion.stream` and `engine.refresh.refreshes` themselves."""

    def __init__(self, started: Started) -> None:
        self.generation: Generation = started.generation
        self.stream: Stream = started.stream
        self.factor: Factor = started.made.factor
        self._rows = started.rows
        self._W = started.made.dual_rows.copy()
        self._live = np.ones(len(self._rows), dtype=np.bool_)
        self._certified: float | None = None

    def delete(self, index: Index, method: str) -> None:
        rows, W = self._rows.take(index), self._W[index]
        self.stream = delete(self.generation, self.stream, rows, W, method_named(method)).stream
        self._live[index] = False
        self._certified = None

    def refresh(self, size: RefreshSize) -> None:
        rows, W = self._left()
        if size is RefreshSize.COMPLETE:
            self.stream = complete(self.stream)
        elif size is RefreshSize.POLISH:
            target = FAR_UNDER * float(np.linalg.norm(self.stream.theta_exact))
            polished = polish_snapshot(
                self.generation, self.stream, self.factor, rows, W, target=target
            )
            self.stream = adopt_polish(self.stream, polished)
            self._certified = polished.certified
        else:
            made = (
                compact(self.generation, self.stream, self.factor, rows, W)
                if size is RefreshSize.COMPACT
                else rebuild(self.generation, rows, self.stream.theta_exact)
            )
            self.generation, self.stream = made.generation, made.stream
            self.factor, self._certified = made.factor, made.certified
            self._W[self._live] = made.dual_rows

    def error(self) -> PublishedError:
        rows, W = self._left()
        everyone = Sentinels(tuple(map(str, range(len(rows)))), rows, W)
        return published_error(self.generation, self.stream, everyone, len(rows), self._certified)

    def published(self) -> Array:
        return self.stream.published

    def _left(self) -> tuple[Rows, Array]:
        return self._rows.take(self._live), self._W[self._live]


class Library:
    """`engine.LinearModel`, `engine.LogisticModel` and `engine.PoissonModel`."""

    def __init__(self, started: Started) -> None:
        data = started.data
        kind: type[LinearModel | LogisticModel | PoissonModel] = {
            "linear": LinearModel,
            "logistic": LogisticModel,
            "poisson": PoissonModel,
        }[data.kind]
        self._model = kind(
            ridge=data.ridge,
            fit_intercept=data.intercept,
            error_budget=1.0,
            limits=Limits(far_under=FAR_UNDER),
        )
        several_classes = data.kind == "logistic" and data.y.shape[1] > 1
        y = np.argmax(data.y, axis=1) if several_classes else data.y
        self._model.fit(data.X, y, sample_weight=data.weight)

    @property
    def generation(self) -> Generation:
        return self._model._fitted.generation

    @property
    def stream(self) -> Stream:
        return self._model._fitted.stream

    @property
    def factor(self) -> Factor:
        return self._model._fitted.factor

    def delete(self, index: Index, method: str) -> None:
        self._model.delete([str(i) for i in index], method=method)

    def refresh(self, size: RefreshSize) -> None:
        assert self._model.refresh(size).size is size

    def error(self) -> PublishedError:
        return self._model.error

    def published(self) -> Array:
        return self._model.published


ROUTES: dict[str, Callable[[Started], Route]] = {"stream": RawStream, "library": Library}


@dataclass(frozen=True, slots=True)
class Oracle:
    """Two functions by which an observer computes everything: a refit, and A^-1 g."""

    retrain: Callable[[str, Array, Array, Array, Array], Wide | Array]
    solve: Callable[[Array, Wide, Array, Wide], Array]


QR = Oracle(retrain_wide, solve_hessian)
ORACLES = {
    "QR and extended precision": QR,
    "SciPy and scikit-learn": Oracle(retrain_by_others, solve_hessian_scipy),
}


@functools.cache
def _optimum(model: Model, family: str, live: bytes, oracle: Oracle) -> Wide | Array:
    data, mask = model.started(family).data, np.frombuffer(live, dtype=np.bool_)
    return oracle.retrain(
        data.kind, data.design[mask], data.y[mask], data.weight[mask], data.penalty
    )


class Observer:
    """What a stream of deletions and refreshes must have come to."""

    def __init__(self, model: Model, family: str, route: Route) -> None:
        self._model, self._family = model, family
        self.data = model.started(family).data
        everyone = np.ones(len(self.data.X), dtype=np.bool_)
        self.live, self.base, self.known, self.anchored = (everyone.copy() for _ in range(4))
        self.theta_b = self.theta_r = self.anchor = route.published().copy()

    def deleted(self, index: Index) -> None:
        """See rows go."""
        self.live[index] = False

    def refreshed(self, size: RefreshSize, route: Route) -> None:
        """See a refresh: where curvatures, errors and projections are taken from now on.

        A row of V counts from the compact or rebuild before it, an error from the last point
        known to be optimal, a projection from the last point published in full.
        """
        now = self.live.copy()
        self.anchored, self.anchor = now, route.published().copy()
        if size in (RefreshSize.COMPACT, RefreshSize.REBUILD):
            self.base = now
        if size in (RefreshSize.POLISH, RefreshSize.REBUILD):
            self.known, self.theta_r = now, self.anchor
        if size is RefreshSize.REBUILD:
            self.theta_b = self.anchor

    def optimum(self, oracle: Oracle = QR) -> Wide | Array:
        """Return the minimiser over the live rows, as precisely as the oracle has it."""
        return _optimum(self._model, self._family, self.live.tobytes(), oracle)

    def exact(self, oracle: Oracle) -> Array:
        """Return retraining (linear), or theta_r and the step of the quadratic model there."""
        if self.data.kind == "linear":
            return self.optimum(oracle).astype(np.float64)
        return self.theta_r + self._solve(oracle, self.live, self._errors(self.known))

    def pru(self, oracle: Oracle) -> Array:
        """Return the projection of the exact answer (Theorems 1 and 5), from the anchor on."""
        U = self.data.design[self.anchored & ~self.live]
        return self.anchor + projection(U, self.exact(oracle) - self.anchor)

    def influence(self, oracle: Oracle) -> Array:
        """Return the influence step (equation 1), from the anchor on."""
        return self.anchor + self._solve(oracle, self.base, self._errors(self.anchored))

    def hessians(self) -> list[Wide]:
        """Return A_t, of each class if there are several: curvatures at theta_b, live rows."""
        K, (_, s) = np.asarray(self.data.design, dtype=np.longdouble), self._slopes(self.theta_b)
        K, columns = K[self.live], _columns(s[self.live])
        return [K.T @ (one[:, None] * K) + np.diag(self.data.penalty) for one in columns]

    def _slopes(self, theta: Array) -> tuple[Wide, Wide]:
        data = self.data
        return slopes(data.kind, data.design, data.y, data.weight, theta)

    def _errors(self, since: Mask) -> Wide:
        """Return the sum of x_i e_i at theta_r over the rows deleted since then."""
        gone = since & ~self.live
        e, _ = self._slopes(self.theta_r)
        return np.asarray(self.data.design[gone].T, dtype=np.longdouble) @ e[gone]

    def _solve(self, oracle: Oracle, rows: Mask, g: Wide) -> Array:
        _, s = self._slopes(self.theta_b)
        X, penalty, columns = self.data.design[rows], self.data.penalty, _columns(s[rows])
        if len(columns) == 1:
            return oracle.solve(X, columns[0], penalty, g)
        parts = [oracle.solve(X, one, penalty, g[:, [c]]) for c, one in enumerate(columns)]
        return np.hstack(parts)


def _columns(s: Wide) -> list[Wide]:
    """Return curvatures one block after another."""
    return [s] if s.ndim == 1 else [s[:, c] for c in range(s.shape[1])]
