"""Families of training data, each with the hazard that it is named for. No engine code in here.

`make` returns plain arrays: features without the constant column, targets n x m, weights, and
the rows to delete in order. `Data.design` and `Data.penalty` add the intercept as the engine's
conventions have it: the last column, not penalised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]

N, P = 120, 12
DELETED = 36


@dataclass(frozen=True, slots=True)
class Data:
    """A training set and the rows that will be deleted.

    Attributes
    ----------
    name, kind
        Family; ``linear`` or ``logistic``.
    X, y, weight
        n x p, n x m, (n,).
    ridge, intercept
        Penalty strength; whether there is an unpenalised constant column.
    deleted
        Indices of rows to delete, in order.
    injected
        Column that is not zero only in deleted rows (the feature injection test), or None.
    """

    name: str
    kind: str
    X: Array
    y: Array
    weight: Array
    ridge: float
    intercept: bool
    deleted: Index
    injected: int | None = None

    @property
    def design(self) -> Array:
        """X with the constant column, if there is an intercept."""
        if not self.intercept:
            return self.X
        return np.hstack([self.X, np.ones((len(self.X), 1))])

    @property
    def penalty(self) -> Array:
        """Ridge strength of each coordinate; 0 for the intercept."""
        penalty = np.full(self.X.shape[1] + self.intercept, self.ridge)
        if self.intercept:
            penalty[-1] = 0.0
        return penalty

    def live(self, deleted: int) -> NDArray[np.bool_]:
        """Mask of the rows that remain after the first ``deleted`` deletions."""
        mask = np.ones(len(self.X), dtype=np.bool_)
        mask[self.deleted[:deleted]] = False
        return mask


_WIDEST = 4.0  # of a log mean that counts are drawn from


def _targets(rng: np.random.Generator, X: Array, kind: str, m: int, strength: float) -> Array:
    scale = np.maximum(np.linalg.norm(X, axis=0), 1e-12) / np.sqrt(len(X))
    beta = rng.standard_normal((X.shape[1], m)) / scale[:, None] / np.sqrt(X.shape[1])
    signal = strength * (X @ beta)
    if kind == "linear":
        targets: Array = 1.0 + signal + 0.3 * rng.standard_normal((len(X), m))
        return targets
    if kind == "poisson":
        counts: Array = rng.poisson(np.exp(np.clip(signal, -_WIDEST, _WIDEST))).astype(np.float64)
        return counts
    labels: Array = (rng.random((len(X), 1)) < 1 / (1 + np.exp(-signal))).astype(np.float64)
    return labels


def _base(
    rng: np.random.Generator,
    name: str,
    kind: str,
    X: Array,
    *,
    ridge: float = 1.0,
    intercept: bool = True,
    strength: float = 1.5,
    m: int = 1,
) -> Data:
    y = _targets(rng, X, kind, m if kind == "linear" else 1, strength)
    deleted = rng.permutation(len(X))[: min(DELETED, len(X) - 4)]
    return Data(name, kind, X, y, np.ones(len(X)), ridge, intercept, deleted)


def _benign(rng: np.random.Generator, kind: str) -> Data:
    return _base(rng, "benign", kind, rng.standard_normal((N, P)))


def _no_intercept(rng: np.random.Generator, kind: str) -> Data:
    return _base(rng, "no_intercept", kind, rng.standard_normal((N, P)), intercept=False)


def _badly_scaled(rng: np.random.Generator, kind: str) -> Data:
    """Hessian condition about 1e6, not along the axes."""
    turn = np.linalg.qr(rng.standard_normal((P, P)))[0]
    X = (rng.standard_normal((N, P)) * np.logspace(0.5, -2.5, P)) @ turn
    return _base(rng, "badly_scaled", kind, X, ridge=1e-4)


def _sparse(rng: np.random.Generator, kind: str) -> Data:
    X = rng.standard_normal((N, 40)) * (rng.random((N, 40)) < 0.08)
    return _base(rng, "sparse", kind, X, ridge=0.5, intercept=False)


def _duplicated(rng: np.random.Generator, kind: str) -> Data:
    X = np.repeat(rng.standard_normal((N // 4, P)), 4, axis=0)
    return _base(rng, "duplicated", kind, X)


def _rank_deficient(rng: np.random.Generator, kind: str) -> Data:
    X = rng.standard_normal((N, P))
    X[:DELETED] = rng.standard_normal((DELETED, 3)) @ rng.standard_normal((3, P))
    data = _base(rng, "rank_deficient", kind, X, intercept=False)
    return replace(data, deleted=np.arange(DELETED))


def _high_leverage(rng: np.random.Generator, kind: str) -> Data:
    X = rng.standard_normal((N, P))
    X[:P] *= 100.0
    data = _base(rng, "high_leverage", kind, X, ridge=0.1, strength=0.5)
    y = data.y.copy()
    y[:3] = 1 - y[:3] if kind == "logistic" else 50.0
    return replace(data, y=y, deleted=np.arange(DELETED))


def _injected(rng: np.random.Generator, kind: str, ridge: float, size: float) -> Data:
    X = rng.standard_normal((N, P))
    X[:, 3] = 0.0
    X[:DELETED, 3] = size * rng.uniform(0.5, 1.5, DELETED)
    data = _base(rng, "injected", kind, X, ridge=ridge, intercept=False)
    y = data.y.copy()
    y[:DELETED] = y[:DELETED] + 10.0 if kind == "linear" else 1.0
    return replace(data, y=y, deleted=np.arange(DELETED), injected=3)


def _fit(rng: np.random.Generator, kind: str) -> Data:
    return _injected(rng, kind, 1.0, 1.0)


def _fit_tiny_ridge(rng: np.random.Generator, kind: str) -> Data:
    return replace(_injected(rng, kind, 1e-4, 3.0), name="injected_tiny_ridge")


def _wide(rng: np.random.Generator, kind: str) -> Data:
    return _base(rng, "wide", kind, rng.standard_normal((24, 40)))


def _constant(rng: np.random.Generator, kind: str) -> Data:
    X = rng.standard_normal((N, P))
    X[:, 0], X[:, 1] = 2.0, 0.0
    return _base(rng, "constant", kind, X)


def _weighted(rng: np.random.Generator, kind: str) -> Data:
    data = _base(rng, "weighted", kind, rng.standard_normal((N, P)))
    return replace(data, weight=rng.uniform(0.2, 5.0, N))


def _classes(rng: np.random.Generator, kind: str) -> Data:
    """Return four classes, one of them rare, in one-hot targets."""
    X = rng.standard_normal((N, P))
    data = _base(rng, "classes", kind, X)
    pull = 1.5 * X @ rng.standard_normal((P, 4)) / np.sqrt(P) + np.array([0.5, 0.0, 0.0, -1.0])
    drawn = np.argmax(pull + rng.gumbel(size=(N, 4)), axis=1)
    return replace(data, y=np.eye(4)[drawn])


def _classes_badly_scaled(rng: np.random.Generator, kind: str) -> Data:
    """Return three classes over badly scaled features, nearly separable."""
    data = _badly_scaled(rng, kind)
    scaled = data.X / np.linalg.norm(data.X, axis=0) * np.sqrt(N)
    drawn = np.argmax(4 * scaled[:, :3] + rng.gumbel(size=(N, 3)), axis=1)
    return replace(data, name="classes_badly_scaled", y=np.eye(3)[drawn], ridge=1e-3)


def _several_outputs(rng: np.random.Generator, kind: str) -> Data:
    return _base(rng, "several_outputs", kind, rng.standard_normal((N, P)), m=3)


def _large_targets(rng: np.random.Generator, kind: str) -> Data:
    """Targets far larger than what the features explain: theta is small beside them."""
    data = _base(rng, "large_targets", kind, rng.standard_normal((N, P)), intercept=False)
    return replace(data, y=1e6 + data.y) if kind == "linear" else data


def _near_separable(rng: np.random.Generator, kind: str) -> Data:
    X = rng.standard_normal((N, P))
    return _base(rng, "near_separable", kind, X, ridge=1e-3, strength=20.0)


CLASSES: dict[str, Callable[[np.random.Generator, str], Data]] = {
    "classes": _classes,
    "classes_badly_scaled": _classes_badly_scaled,
}
"""Logistic families of more than two classes, which one-vs-rest models are made from."""

MAKERS: dict[str, Callable[[np.random.Generator, str], Data]] = {
    "benign": _benign,
    "no_intercept": _no_intercept,
    "badly_scaled": _badly_scaled,
    "sparse": _sparse,
    "duplicated": _duplicated,
    "rank_deficient": _rank_deficient,
    "high_leverage": _high_leverage,
    "injected": _fit,
    "injected_tiny_ridge": _fit_tiny_ridge,
    "wide": _wide,
    "constant": _constant,
    "weighted": _weighted,
    "several_outputs": _several_outputs,
    "large_targets": _large_targets,
    "near_separable": _near_separable,
}

LINEAR_ONLY = frozenset({"several_outputs", "large_targets"})


def families(kind: str) -> tuple[str, ...]:
    """Names of the families that make sense for this kind."""
    return tuple(name for name in MAKERS if kind == "linear" or name not in LINEAR_ONLY)


def make(name: str, kind: str, seed: int = 0) -> Data:
    """Return the family's data for one seed."""
    if name in CLASSES:
        of = "softmax" if kind == "softmax" else "logistic"
        return CLASSES[name](np.random.default_rng([seed, *name.encode()]), of)
    rng = np.random.default_rng([seed, sorted(MAKERS).index(name)])
    return MAKERS[name](rng, kind)


# -- extremes: the battery's own, beside the families above --------------------------------------


def _all_but_a_few(rng: np.random.Generator, kind: str) -> Data:
    """Four rows remain; of a logistic model two of each class."""
    data = _base(rng, "all_but_a_few", kind, rng.standard_normal((60, P)))
    order = np.argsort(data.y[:, 0], kind="stable")
    kept = np.concatenate([order[:2], order[-2:]])
    return replace(data, deleted=rng.permutation(np.setdiff1d(np.arange(60), kept)))


def _one_column(rng: np.random.Generator, kind: str) -> Data:
    return _base(rng, "one_column", kind, rng.standard_normal((40, 1)), intercept=False)


def _zero_rows(rng: np.random.Generator, kind: str) -> Data:
    """Rows without any feature: leverage 0, and no direction to project on."""
    X = rng.standard_normal((N, P))
    X[::4] = 0.0
    data = _base(rng, "zero_rows", kind, X, intercept=False)
    return replace(data, deleted=np.arange(DELETED))


def _saturated(rng: np.random.Generator, kind: str) -> Data:
    """A third of the rows lies so far out that curvatures underflow; one has the wrong label."""
    X = rng.standard_normal((N, P))
    data = _base(rng, "saturated", kind, X, ridge=1e-2, strength=6.0)
    side = np.where(data.y[:, :1] > 0.5, 1.0, -1.0)
    beta = np.linalg.lstsq(X, side[:, 0], rcond=None)[0]
    X[:40] = 200.0 * side[:40] * beta / np.linalg.norm(beta) + X[:40]
    y = data.y.copy()
    y[50] = 1.0 - y[50]
    return replace(data, X=X, y=y, deleted=rng.permutation(52)[:DELETED])


EXTREMES: dict[str, Callable[[np.random.Generator, str], Data]] = {
    "all_but_a_few": _all_but_a_few,
    "one_column": _one_column,
    "zero_rows": _zero_rows,
    "saturated": _saturated,
}

LOGISTIC_ONLY = frozenset({"saturated"})


def extremes(kind: str) -> tuple[str, ...]:
    """Names of the extremes that make sense for this kind."""
    return tuple(name for name in EXTREMES if kind == "logistic" or name not in LOGISTIC_ONLY)


def make_any(name: str, kind: str, seed: int = 0) -> Data:
    """Return a family's or an extreme's data for one seed."""
    if name in MAKERS:
        return make(name, kind, seed)
    rng = np.random.default_rng([seed, 100 + sorted(EXTREMES).index(name)])
    return EXTREMES[name](rng, kind)


def remodelled(
    data: Data, m: int = 1, other_intercept: bool = False, weighted: bool = False
) -> Data:
    """Return the same rows for another model: m targets, with or without intercept, weights.

    Of a logistic model m classes, one-hot: the first is the family's own, the others share the
    rest of the rows.
    """
    rng = np.random.default_rng([m, len(data.X)])
    y = data.y
    if m > 1 and data.kind == "logistic":
        others = 1 + rng.permutation(np.arange(len(y)) % (m - 1))
        y = np.eye(m)[np.where(y[:, 0] == 1, 0, others)]
    elif m > 1:
        noise = rng.standard_normal((len(y), m)) * (1e-3 + np.std(y))
        y = y[:, :1] * np.linspace(1.0, -0.5, m) + noise
    return replace(
        data,
        y=y,
        intercept=data.intercept != other_intercept,
        weight=rng.uniform(0.5, 1.5, len(y)) if weighted else data.weight,
    )
