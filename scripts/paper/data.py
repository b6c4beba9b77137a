"""The paper's data recipes (its appendix "Synthetic data construction").

Rows to be deleted are always the first k. Where several k, p or outlier factors belong to one
trial, they share the draw of the Gaussian matrix (common random numbers): every cell has the
paper's distribution, and the comparison between cells has less noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.linalg.blas import dtrmm
from scipy.special import expit
from sklearn.datasets import make_spd_matrix

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

INJECTED_WEIGHT = 10.0
"""w_*, the paper's "true" weight of the injected feature in linear data."""

ROWS_PER_COLUMN = 10
"""The linear experiments take n = 10 d."""


@dataclass(frozen=True, slots=True)
class Data:
    """Features X (n x d) and targets y (n,); rows 0..k-1 are to be deleted."""

    X: Array
    y: Array
    k: int


def covariance_root(rng: np.random.Generator, d: int) -> Array:
    """Return the lower Cholesky root of a random covariance Sigma, by `make_spd_matrix`."""
    Sigma = make_spd_matrix(d, random_state=int(rng.integers(2**31)))
    root: Array = cholesky(Sigma, lower=True)
    return root


def gaussian_rows(rng: np.random.Generator, n: int, d: int, root: Array | None = None) -> Array:
    """Return the general procedure's X~: rows x_i ~ N(0, Sigma), Sigma drawn if not given.

    Cost O(n d^2): one triangular product, in place.
    """
    if root is None:
        root = covariance_root(rng, d)
    drawn = rng.standard_normal((n, d))
    X: Array = dtrmm(1.0, root, drawn.T, lower=1, overwrite_b=1).T
    return X


def linear_targets(rng: np.random.Generator, X: Array) -> Array:
    """Return Y = X theta* + noise, noise ~ N(0, 1), for a drawn theta*.

    The paper says only that theta* is "randomly selected"; it is standard normal here, and the
    noise level is the paper's sigma^2 = 1.
    """
    n, d = X.shape
    theta = rng.standard_normal(d)
    y: Array = X @ theta + rng.standard_normal(n)
    return y


def sparse_masks(rng: np.random.Generator, n: int, d: int, p: float) -> tuple[Mask, Mask]:
    """Return which entries stay: one mask (d,) shared by deleted rows, one n x d for the others.

    Step 3 of the recipe. The last column is the injected feature and is not sparsified.
    """
    shared = rng.random(d) < p
    own = rng.random((n, d), dtype=np.float32) < p
    shared[-1] = True
    own[:, -1] = True
    return shared, own


def inject(X: Array, k: int, shared: Mask, own: Mask) -> Array:
    """Return sparse X (steps 2 and 3): the first k rows share their zeros, the rest lose column d.

    X is the Gaussian matrix of the general procedure and is left as it is.
    """
    made = np.where(own, X, 0.0)
    made[:k] = np.where(shared, X[:k], 0.0)
    made[k:, -1] = 0.0
    return made


def linear_fit_targets(rng: np.random.Generator, X: Array, k: int) -> Array:
    """Return targets of the linear FIT (steps 4 and 5): y_i = w_* X[i, d] for deleted rows."""
    y = linear_targets(rng, X)
    y[:k] = INJECTED_WEIGHT * X[:k, -1]
    return y


def enlarge(rows: Array, k: int, factor: float) -> Array:
    """Return rows (or targets) of the L2 test: the first k times ``factor``."""
    made = rows.copy()
    made[:k] *= factor
    return made


def logistic_labels(rng: np.random.Generator, X: Array) -> Array:
    """Return labels of a well-specified logistic model: P(y = 1 | x) = sigma(x . theta*)."""
    theta = rng.standard_normal(X.shape[1])
    y: Array = (rng.random(len(X)) < expit(X @ theta)).astype(np.float64)
    return y


def logistic_injected(X: Array, y: Array, k: int) -> Data:
    """Return data of the logistic FIT: deleted rows are positive and have the injected feature 1.

    The paper's other condition, that the full model classifies the deleted rows correctly, is of
    the fitted model: the experiment checks it after fitting.
    """
    made, labels = X.copy(), y.copy()
    made[:k, -1] = 1.0
    made[k:, -1] = 0.0
    labels[:k] = 1.0
    return Data(made, labels, k)
