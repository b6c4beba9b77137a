"""What two successive versions of a linear model tell about the rows between them.

This is no defect that a test could guard against: it is what publishing two versions means. The
figures are those of docs/threat-model.md.
"""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine import LinearModel
from lethe.engine.fit.objective import Array

N, D = 2000, 8


def _data(seed: int, rows: int = N) -> tuple[Array, Array]:
    """Return correlated features, and a target of them."""
    draw = np.random.default_rng(seed)
    mix = np.random.default_rng(99).normal(size=(D, D))  # one population, any number of samples
    X = draw.normal(size=(rows, D)) @ mix + 1.0
    return X, X @ np.linspace(-1.0, 1.0, D) + draw.normal(size=rows)


def _with_ones(X: Array) -> Array:
    return np.hstack([X, np.ones((len(X), 1))])


def _hessian(X: Array, ridge: float) -> Array:
    Z = _with_ones(X)
    return np.asarray(Z.T @ Z + ridge * np.diag([1.0] * D + [0.0]))


def _difference(X: Array, y: Array, gone: list[int], method: str) -> tuple[Array, Array]:
    """Return the newer parameters, and what is added to the older ones to get them."""
    model = LinearModel(ridge=1.0, fit_intercept=True).fit(X, y, ids=[f"r{i}" for i in range(N)])
    before = np.append(model.theta, model.intercept)
    model.delete([f"r{i}" for i in gone], method=method)
    after = np.append(model.theta, model.intercept)
    return after, after - before


def _seen(X: Array, y: Array, gone: list[int], method: str) -> Array:
    """Return what who has two versions makes of them: rows, each times a number."""
    _, step = _difference(X, y, gone, method)
    # An exact step is the inverse Hessian of what stayed times the row; a PRU's is in its span.
    return step if method == "pru" else _hessian(np.delete(X, gone, axis=0), 1.0) @ step


def _cosine(a: Array, b: Array) -> float:
    return float(abs(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.parametrize("row", [3, 500, 1999])
def test_one_row_between_two_versions_is_read_off_exactly(row: int) -> None:
    X, y = _data(1)
    # With the projective residual update from the two versions alone; else with the Hessian.
    for method in ("pru", "exact", "influence"):
        seen = _seen(X, y, [row], method)
        # The intercept's coordinate is 1 in every row, so the row's scale is known too.
        assert seen[:-1] / seen[-1] == pytest.approx(X[row], rel=1e-5, abs=1e-5)
    # And with the exact method the number is minus the residual, and so the target is known.
    after, _ = _difference(X, y, [row], "exact")
    seen = _seen(X, y, [row], "exact")
    older = after - _difference(X, y, [row], "exact")[1]
    target = -seen[-1] + older @ np.append(X[row], 1.0)
    assert target == pytest.approx(y[row], rel=1e-5)


@pytest.mark.parametrize(("rows", "median", "least"), [(2000, 0.997, 0.985), (200, 0.988, 0.903)])
def test_who_has_only_the_population_gets_the_row_nearly(
    rows: int, median: float, least: float
) -> None:
    X, y = _data(1)
    other, _ = _data(2, rows)  # other people of the same population: nobody's secret
    found = []
    for row in range(40):
        _, step = _difference(X, y, [row], "exact")
        seen = _hessian(other, 1.0) @ step
        found.append(_cosine(seen[:-1] / seen[-1], X[row]))
    assert np.median(found) == pytest.approx(median, abs=0.002)
    assert min(found) == pytest.approx(least, abs=0.005)


@pytest.mark.parametrize(
    ("method", "likenesses"),
    [("pru", (1.00, 0.52, 0.21, 0.23)), ("exact", (1.00, 0.61, 0.38, 0.36))],
)
def test_a_batch_reveals_a_mixture_of_its_rows(method: str, likenesses: tuple[float, ...]) -> None:
    X, y = _data(1)
    center = X.mean(axis=0)
    pairs = [_cosine(X[i] - center, X[N - 1 - i] - center) for i in range(N // 2)]
    assert np.median(pairs) == pytest.approx(0.34, abs=0.005)  # two rows with nothing in common
    for k, expected in zip((1, 4, 16, 64), likenesses, strict=True):
        likeness = []
        for start in range(0, 6 * k, k):
            gone = list(range(start, start + k))
            seen = _seen(X, y, gone, method)
            guess = seen[:-1] / seen[-1] - center
            likeness += [_cosine(guess, X[row] - center) for row in gone]
        assert np.median(likeness) == pytest.approx(expected, abs=0.01)
