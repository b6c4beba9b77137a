"""The attack of an owner of many rows: what a series of perfect retrainings reveals of the others.

The owner of rows 1..m of a linear model deletes them one at a time and sees theta after each.
The step of the i-th deletion has

    A_i (theta_i - theta_(i-1)) = x_i e_i,      e_i = x_i.theta_(i-1) - y_i,

which is linear in the unknown A, as A_i = A + (own rows that are still in). With m >= d such
equations the owner solves for A, the Gram matrix of the strangers' rows and the ridge; then
X^T y = A theta. When a stranger's row goes, A (theta' - theta) is that row, up to a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.data import DATA, Array, Index
from evaluation.deletions import answers, retrained

_STRANGERS = 20


def measure(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a record for each way to publish and number of the owner's rows."""
    rng = np.random.default_rng([seed, 2])
    table = DATA[name](rng)
    d = table.X.shape[1]
    order = rng.permutation(len(table.y))
    ways: Mapping[str, Callable[[Index, Index], Array]] = {
        "retrain": lambda kept, _: retrained(table, kept),
        "exact": lambda kept, gone: answers(table, kept, gone)["exact"],
        "pru": lambda kept, gone: answers(table, kept, gone)["pru"],
    }
    for owned in (d // 2, d, 2 * d):
        own, others = order[:owned], order[owned:]
        A = table.X[others].T @ table.X[others] + table.ridge * np.eye(d)
        for method, published in ways.items():
            thetas = [retrained(table, order)]
            thetas += [published(order[i:], order[:i]) for i in range(1, owned + 1)]
            found = _gram(table.X[own], table.y[own], thetas)
            cosines = []
            for stranger in others[:_STRANGERS]:
                kept = np.setdiff1d(others, [stranger])
                after = published(kept, np.append(own, stranger))
                x = found @ (after - thetas[-1])
                row = table.X[stranger]
                cosines.append(abs(x @ row) / (np.linalg.norm(x) * np.linalg.norm(row)))
            yield {
                "part": "owner",
                "data": name,
                "method": method,
                "owned": owned,
                "columns": d,
                "gram_error": float(np.linalg.norm(found - A) / np.linalg.norm(A)),
                "cosine_of_a_stranger": float(np.median(cosines)),
            }


def _gram(X: Array, y: Array, thetas: Sequence[Array]) -> Array:
    """Return the symmetric A of least norm that explains the steps, d x d.

    A D = R with a column a deletion: D the steps, R the gradients less what the owner's own rows
    contribute to them.
    """
    m, d = X.shape
    steps, right = np.empty((d, m)), np.empty((d, m))
    for i in range(m):
        before, after = thetas[i], thetas[i + 1]
        steps[:, i] = after - before
        left = X[i + 1 :]
        gradient = X[i] * float(X[i] @ before - y[i])
        right[:, i] = gradient - left.T @ (left @ steps[:, i])
    found = right @ np.linalg.pinv(steps)
    symmetric: Array = (found + found.T) / 2
    return symmetric
