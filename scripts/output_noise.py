"""How far output noise moves theta, beside how far theta_exact is proved to be from retraining.

    python scripts/output_noise.py

Terms of (1, 1e-4) over 1, 100 and 1,000 versions with alpha = 1e-8. For linear models, `DELETED`
rows are deleted one by one, and the largest bound of all steps is given; a logistic model is
refitted for each version where alpha is so small, so that its bound is that of a fit.
docs/certified.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.tables import table
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import begin, delete
from lethe.engine.error.certified import after_deletion, begin_ledger, spent
from lethe.engine.error.terms import OutputNoise
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, norm, with_intercept
from lethe.engine.fit.precompute import precompute

DELETED = 200
DRAWS = 200
RIDGE = 1.0
ALPHA = 1e-8
VERSIONS = (1, 100, 1000)


@dataclass(frozen=True, slots=True)
class Case:
    """n rows of d standard normal features, and an intercept."""

    kind: Kind
    n: int
    d: int


CASES = [
    Case(kind, n, d)
    for kind in (Kind.LINEAR, Kind.LOGISTIC)
    for n, d in ((1000, 10), (1000, 100), (5000, 100))
]


def rows_of(case: Case) -> Rows:
    """Return the rows of a case."""
    rng = np.random.default_rng([case.n, case.d])
    X = rng.standard_normal((case.n, case.d))
    signal = X @ (2 * rng.standard_normal((case.d, 1)) / math.sqrt(case.d))
    y = signal + rng.standard_normal((case.n, 1))
    if case.kind is Kind.LOGISTIC:
        y = (rng.random((case.n, 1)) < 1 / (1 + np.exp(-signal))).astype(np.float64)
    return Rows(with_intercept(X), y, np.ones(case.n))


def largest_bound(case: Case) -> tuple[float, Array]:
    """Return the largest proved distance to retraining over the deletions, and the fitted theta."""
    rows = rows_of(case)
    objective = Objective(case.kind, np.full(case.d + 1, RIDGE))
    made = precompute(objective, rows)
    generation, stream = begin(0, objective, made)
    ledger = begin_ledger(objective, rows, made.theta, made.dual_rows, made.factor)
    largest = spent(ledger, generation, stream)
    for row in range(DELETED if case.kind is Kind.LINEAR else 0):
        one, before = np.array([row]), stream
        gone = rows.take(one)
        stream = delete(generation, stream, gone, made.dual_rows[one], method_named("exact")).stream
        ledger = after_deletion(ledger, generation, before, stream, gone)
        largest = max(largest, spent(ledger, generation, stream))
    return largest / RIDGE, made.theta


def main() -> None:
    """Print the table of docs/certified.md."""
    lines = []
    for case in CASES:
        bound, theta = largest_bound(case)
        moved = []
        for versions in VERSIONS:
            terms = OutputNoise(1.0, 1e-4, ALPHA, versions)
            lengths = [norm(terms.draw(theta.shape)) for _ in range(DRAWS)]
            moved.append(f"{np.median(lengths) / norm(theta):.1e}")
        lines.append([case.kind.value, str(case.n), str(case.d), f"{bound:.1e}", *moved])
    heads = [f"moved, {versions:,} versions" for versions in VERSIONS]
    print(table(["model", "n", "d", "largest bound", *heads], lines))


if __name__ == "__main__":
    main()
