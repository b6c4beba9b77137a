"""Retraining by routes that share no code with the engine, and no normal equations.

Linear: QR of the system augmented with sqrt(penalty), then refinement with residuals in extended
precision. Others: damped Newton steps, each a QR of sqrt(S) X augmented, with the gradient in
extended precision to the end. The answers are good to about 1e-18 x condition: an oracle that
can judge rounding of the engine's own. (Where the platform's long double is a plain double, they
are as good as a backward-stable solver.)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr, solve_triangular
from scipy.optimize import minimize, root
from scipy.special import expit
from sklearn.linear_model import Ridge

Array: TypeAlias = NDArray[np.float64]
Wide: TypeAlias = NDArray[np.longdouble]

_REFINEMENTS = 30
_NEWTON_STEPS = 200


def _wide(values: Any) -> Wide:
    return np.asarray(values, dtype=np.longdouble)


def _triangle(X: Array, curvature: Array, penalty: Array) -> Array:
    """Return R with R^T R = X^T S X + diag(penalty), without forming that product."""
    augmented = np.vstack([np.sqrt(curvature)[:, None] * X, np.diag(np.sqrt(penalty))])
    R: Array = qr(augmented, mode="r")[0][: X.shape[1]]
    return R


def _solve(R: Array, g: Array) -> Array:
    solved: Array = solve_triangular(R, solve_triangular(R, g, trans="T"))
    return solved


def retrain_linear_wide(
    X: Array, y: Array, weight: Array, penalty: Array, start: Array | None = None
) -> Wide:
    """Return the ridge minimiser, d x m, in extended precision; ``start`` saves steps."""
    R = _triangle(X, weight, penalty)
    K, Y, s = _wide(X), _wide(y.reshape(len(y), -1)), _wide(weight)[:, None]
    theta = np.zeros((X.shape[1], Y.shape[1]), dtype=np.longdouble)
    theta = theta if start is None else _wide(start)
    last = np.inf
    for _ in range(_REFINEMENTS):
        g = K.T @ (s * (Y - K @ theta)) - _wide(penalty)[:, None] * theta
        step = _solve(R, g.astype(np.float64))
        size = float(np.linalg.norm(step))
        if size == 0.0 or size > last / 2:
            break
        theta, last = theta + step, size
    return theta


def retrain_linear(X: Array, y: Array, weight: Array, penalty: Array) -> Array:
    """Return argmin of sum weight (x.theta - y)^2 / 2 + penalty theta^2 / 2, shape d x m."""
    return retrain_linear_wide(X, y, weight, penalty).astype(np.float64)


class _Logistic:
    """The logistic loss of margins: value, error and curvature."""

    @staticmethod
    def value(u: Any, y: Any) -> Any:
        return (1 - y) * np.logaddexp(0.0, u) + y * np.logaddexp(0.0, -u)

    @staticmethod
    def error(u: Any, y: Any) -> Any:
        return (1 - y) / (1 + np.exp(-u)) - y / (1 + np.exp(u))

    @staticmethod
    def curvature(u: Any) -> Any:
        return 1 / (1 + np.exp(-u)) / (1 + np.exp(u))


class _LogisticByExpit(_Logistic):
    """The same by SciPy's sigmoid."""

    @staticmethod
    def error(u: Any, y: Any) -> Any:
        return (1 - y) * expit(u) - y * expit(-u)

    @staticmethod
    def curvature(u: Any) -> Any:
        return expit(u) * expit(-u)


class _Poisson:
    """The Poisson loss, likewise."""

    @staticmethod
    def value(u: Any, y: Any) -> Any:
        return np.exp(u) - y * u

    @staticmethod
    def error(u: Any, y: Any) -> Any:
        return np.exp(u) - y

    @staticmethod
    def curvature(u: Any) -> Any:
        return np.exp(u)


def _value(
    loss: type[Any], X: Array, y: Array, weight: Array, penalty: Array, theta: Wide
) -> float:
    plain = theta.astype(np.float64)
    with np.errstate(over="ignore"):
        losses = loss.value(X @ plain, y)
    return float(weight @ losses + 0.5 * np.sum(penalty * plain**2))


def _newton_wide(
    loss: type[Any], X: Array, y: Array, weight: Array, penalty: Array, start: Array | None
) -> Wide:
    """Return the minimiser, d x 1, by damped Newton steps; ``start`` saves steps."""
    K, s0, lam = _wide(X), _wide(weight), _wide(penalty)
    target = y.reshape(len(y))
    theta = np.zeros(X.shape[1], dtype=np.longdouble) if start is None else _wide(start[:, 0])
    last = np.inf
    for _ in range(_NEWTON_STEPS):
        margin = K @ theta
        g = K.T @ (s0 * loss.error(margin, target)) + lam * theta
        R = _triangle(X, (s0 * loss.curvature(margin)).astype(np.float64), penalty)
        step = _solve(R, g.astype(np.float64))
        size = float(np.linalg.norm(step))
        if size == 0.0 or (size > last / 2 and size < 1e-8 * float(np.linalg.norm(theta))):
            break
        scale, here = 1.0, _value(loss, X, target, weight, penalty, theta)
        slack = 1e-13 * max(abs(here), 1.0)
        while not _value(loss, X, target, weight, penalty, theta - scale * step) <= here + slack:
            scale /= 2
        theta, last = theta - scale * step, size
    return theta[:, None]


def retrain_logistic_wide(
    X: Array, y: Array, weight: Array, penalty: Array, start: Array | None = None
) -> Wide:
    """Return the logistic minimiser, d x 1, in extended precision; ``start`` saves steps."""
    return _newton_wide(_Logistic, X, y, weight, penalty, start)


def retrain_poisson_wide(
    X: Array, y: Array, weight: Array, penalty: Array, start: Array | None = None
) -> Wide:
    """Return the minimiser of a Poisson model, d x 1, likewise."""
    return _newton_wide(_Poisson, X, y, weight, penalty, start)


def retrain_logistic(X: Array, y: Array, weight: Array, penalty: Array) -> Array:
    """Return argmin of the weighted log loss + penalty theta^2 / 2, shape d x 1."""
    return retrain_logistic_wide(X, y, weight, penalty).astype(np.float64)


def retrain_softmax_wide(
    X: Array, y: Array, weight: Array, penalty: Array, start: Array | None = None
) -> Wide:
    """Return the minimiser of one softmax, d x C, each row of sum 0, in extended precision."""
    from tests.proof.bounds.oracle_glm import Softmax, solve

    loss = Softmax(*(_wide(part) for part in (X, y, weight, penalty)))
    begin = None if start is None else _wide(start).T.ravel()
    return solve(loss, X.shape[1] * y.shape[1], begin).theta.reshape(y.shape[1], -1).T


def retrain_wide(
    kind: str, X: Array, y: Array, weight: Array, penalty: Array, start: Array | None = None
) -> Wide:
    """Return the minimiser for any kind; of several classes, each against the rest.

    ``start`` (d x m) is where the iterations begin; it does not change where they end.
    """
    if kind == "logistic" and y.ndim == 2 and y.shape[1] > 1:
        begins = [None if start is None else start[:, c : c + 1] for c in range(y.shape[1])]
        columns = [(y[:, c], begin) for c, begin in enumerate(begins)]
        return np.hstack(
            [retrain_logistic_wide(X, one, weight, penalty, begin) for one, begin in columns]
        )
    train = {
        "linear": retrain_linear_wide,
        "logistic": retrain_logistic_wide,
        "poisson": retrain_poisson_wide,
        "softmax": retrain_softmax_wide,
    }[kind]
    return train(X, y, weight, penalty, start)


def retrain(kind: str, X: Array, y: Array, weight: Array, penalty: Array) -> Array:
    """Return the minimiser for either kind, in double precision."""
    return retrain_wide(kind, X, y, weight, penalty).astype(np.float64)


def newton_from(theta_b: Array, X: Array, y: Array, weight: Array, penalty: Array) -> Array:
    """Return one exact Newton step of the logistic loss on these rows from ``theta_b``."""
    K = _wide(X)
    margin = K @ _wide(theta_b[:, 0])
    up, down = 1 / (1 + np.exp(-margin)), 1 / (1 + np.exp(margin))
    target = y[:, 0]
    g = K.T @ (_wide(weight) * ((1 - target) * up - target * down)) + _wide(penalty * theta_b[:, 0])
    s = _wide(weight) * up * down
    R = _triangle(X, s.astype(np.float64), penalty)
    step = np.zeros(X.shape[1], dtype=np.longdouble)
    for _ in range(5):
        missing = g - (K.T @ (s * (K @ step)) + _wide(penalty) * step)
        step = step + _solve(R, missing.astype(np.float64))
    return (_wide(theta_b[:, 0]) - step).astype(np.float64)[:, None]


def projection(U: Array, vector: Array) -> Array:
    """Return the orthogonal projection of ``vector`` (d x m) onto the span of the rows U (SVD)."""
    _, size, Vt = np.linalg.svd(U, full_matrices=False)
    basis = Vt[size > 1e-12 * max(float(size.max(initial=0.0)), 1e-300)]
    projected: Array = basis.T @ (basis @ vector)
    return projected


def distance(published: Array, truth: Wide) -> float:
    """Return |published - truth|, subtracted in extended precision."""
    return float(np.linalg.norm((_wide(published) - truth).astype(np.float64)))


def relative(published: Array, truth: Array) -> float:
    """Return |published - truth| / |truth|."""
    return float(np.linalg.norm(published - truth) / np.linalg.norm(truth))


# -- what a stream should hold, and the same by other people's libraries -------------------------


def slopes(kind: str, X: Array, y: Array, weight: Array, theta: Array) -> tuple[Wide, Wide]:
    """Return each row's first (n x m) and second derivative of the weighted loss.

    The second is (n,), or n x m of m classes.
    """
    margin, target, w = _wide(X) @ _wide(theta), _wide(y), _wide(weight)
    if kind == "linear":
        return w[:, None] * (margin - target), w
    if kind == "poisson":
        return w[:, None] * _Poisson.error(margin, target), w * _Poisson.curvature(margin[:, 0])
    up, down = 1 / (1 + np.exp(-margin)), 1 / (1 + np.exp(margin))
    s = w[:, None] * up * down
    return w[:, None] * ((1 - target) * up - target * down), s[:, 0] if s.shape[1] == 1 else s


def solve_hessian(X: Array, curvature: Wide, penalty: Array, g: Wide) -> Array:
    """Return (X^T S X + diag(penalty))^-1 g by QR and refinement; it never forms that product."""
    R = _triangle(X, curvature.astype(np.float64), penalty)
    K, s, lam = _wide(X), curvature[:, None], _wide(penalty)[:, None]
    solution = np.zeros(g.shape, dtype=np.longdouble)
    for _ in range(5):
        missing = g - (K.T @ (s * (K @ solution)) + lam * solution)
        solution = solution + _solve(R, missing.astype(np.float64))
    return solution.astype(np.float64)


def solve_hessian_scipy(X: Array, curvature: Wide, penalty: Array, g: Wide) -> Array:
    """Return the same by ``scipy.linalg.eigh`` of the product formed in extended precision."""
    K = _wide(X)
    A = K.T @ (curvature[:, None] * K) + np.diag(_wide(penalty))
    values, vectors = eigh(A.astype(np.float64))
    solved: Array = vectors @ ((vectors.T @ g.astype(np.float64)) / values[:, None])
    return solved


def retrain_by_others(kind: str, X: Array, y: Array, weight: Array, penalty: Array) -> Array:
    """Return the minimiser by scikit-learn's Ridge or by SciPy's trust region, d x m.

    Of several classes each against the rest.
    An unpenalised last column (the constant one) is their intercept. SciPy minimises in
    coordinates scaled to unit columns, and polishes with `scipy.optimize.root`.
    """
    if kind == "linear":
        free = bool(penalty[-1] == 0)
        ridge = Ridge(alpha=float(penalty[0]), fit_intercept=free, solver="svd")
        ridge.fit(X[:, :-1] if free else X, y, sample_weight=weight)
        coefficients = np.asarray(ridge.coef_).reshape(y.shape[1], -1).T
        if not free:
            return coefficients
        return np.vstack([coefficients, np.reshape(ridge.intercept_, (1, -1))])
    if y.shape[1] > 1:
        columns = [y[:, c : c + 1] for c in range(y.shape[1])]
        return np.hstack([retrain_by_others(kind, X, one, weight, penalty) for one in columns])
    scale = 1.0 / np.sqrt(weight @ X**2 + penalty + 1e-300)
    K, target, lam = X * scale, y[:, 0], penalty * scale**2
    loss = _Poisson if kind == "poisson" else _LogisticByExpit

    def value(z: Array) -> float:
        u = K @ z
        losses = loss.value(u, target)
        return float(weight @ losses + 0.5 * lam @ z**2)

    def gradient(z: Array) -> Array:
        u = K @ z
        g: Array = K.T @ (weight * loss.error(u, target)) + lam * z
        return g

    def hessian(z: Array) -> Array:
        u = K @ z
        s = weight * loss.curvature(u)
        H: Array = (K.T * s) @ K + np.diag(lam)
        return H

    found = minimize(
        value, np.zeros(K.shape[1]), jac=gradient, hess=hessian, method="trust-exact",
        options={"gtol": 1e-9, "maxiter": 500},
    )  # fmt: skip
    better = root(gradient, found.x, jac=hessian, method="hybr", options={"xtol": 1e-15})
    best = min((found.x, better.x), key=lambda z: float(np.linalg.norm(gradient(z))))
    return np.asarray(best * scale)[:, None]
