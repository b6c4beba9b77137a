"""How tight the ledger of certified removal is, and how many deletions its budget lasts.

    python scripts/certified.py

Logistic models of synthetic rows, one deletion after another until the budget of (1, 1e-4)
passes, or `LIMIT` deletions. Beside it, how long two other bounds of the same residual last: the
Lipschitz bound of one step from the reference, and the data-dependent bound of Guo et al. (their
corollary 1), summed over removals, which takes a pass over the rows for each. docs/certified.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.tables import table
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import begin, delete
from lethe.engine.error.certified import after_deletion, begin_ledger, spent
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.fit.objective import Kind, Objective, Rows, norm, with_intercept
from lethe.engine.fit.precompute import precompute

LIMIT = 400
RIDGE = 1.0
SLOPE = 0.25  # Lipschitz constant of sigma' that the paper uses
SHARP = 1 / (6 * math.sqrt(3))  # the smallest one


@dataclass(frozen=True, slots=True)
class Case:
    """d features, of length at most 1 together or standard normal, and an intercept."""

    n: int
    d: int
    unit: bool
    sigma: float


@dataclass(slots=True)
class Outcome:
    """Deletions within the budget by each bound, and spent over residual at each."""

    ledger: int = 0
    lipschitz: int = 0
    paper: int = 0
    ratios: tuple[float, ...] = ()


CASES = [
    Case(n, d, unit, sigma)
    for n, d in ((1000, 10), (5000, 20), (5000, 100))
    for unit in (True, False)
    for sigma in (1.0, 10.0)
]


def data_of(case: Case) -> tuple[Rows, NDArray[np.intp]]:
    """Return the rows and the order in which they are deleted."""
    rng = np.random.default_rng([case.n, case.d, int(case.unit)])
    X = rng.standard_normal((case.n, case.d))
    beta = 2 * rng.standard_normal(case.d) / math.sqrt(case.d)
    y = (rng.random(case.n) < 1 / (1 + np.exp(-X @ beta))).astype(np.float64)[:, None]
    if case.unit:
        X = X / np.linalg.norm(X, axis=1).max()
    order = rng.permutation(case.n)[:LIMIT].astype(np.intp)
    return Rows(with_intercept(X), y, np.ones(case.n)), order


def run(case: Case) -> Outcome:
    """Delete until every bound is past the budget."""
    rows, order = data_of(case)
    budget = ObjectiveNoise(1.0, 1e-4, case.sigma).budget
    noise = case.sigma * np.random.default_rng(0).standard_normal((case.d + 1, 1))
    objective = Objective(Kind.LOGISTIC, np.full(case.d + 1, RIDGE), noise)
    made = precompute(objective, rows)
    generation, stream = begin(0, objective, made)
    ledger = begin_ledger(objective, rows, made.theta, made.dual_rows, made.factor)
    largest = float(np.linalg.eigvalsh(rows.X.T @ rows.X)[-1])
    longest = float(np.linalg.norm(rows.X, axis=1).max())
    live = np.ones(case.n, dtype=np.bool_)
    outcome, summed, ratios = Outcome(), 0.0, []
    within = {"ledger": True, "lipschitz": True, "paper": True}
    for row in order:
        one, before = np.array([row]), stream
        gone = rows.take(one)
        stream = delete(generation, stream, gone, made.dual_rows[one], method_named("exact")).stream
        ledger = after_deletion(ledger, generation, before, stream, gone)
        live[one] = False
        step = stream.theta_exact - before.theta_exact
        summed += SLOPE * longest * math.sqrt(largest) * norm(step) * norm(rows.X[live] @ step)
        moved = norm(stream.theta_exact - stream.theta_r)
        bounds = {
            "ledger": spent(ledger, generation, stream),
            "lipschitz": SHARP / 2 * longest * largest * moved**2,
            "paper": summed,
        }
        for name, bound in bounds.items():
            within[name] = within[name] and bound <= budget
            setattr(outcome, name, getattr(outcome, name) + within[name])
        if not any(within.values()):
            break
        if within["ledger"]:
            true = norm(objective.gradient(rows.take(live), stream.theta_exact))
            ratios.append(bounds["ledger"] / true)
    outcome.ratios = tuple(ratios)
    return outcome


def main() -> None:
    """Print the table of docs/certified.md: deletions within the budget, at most `LIMIT`."""
    lines = []
    for case in CASES:
        found = run(case)
        budget = ObjectiveNoise(1.0, 1e-4, case.sigma).budget
        rows = "length ≤ 1" if case.unit else "normal"
        counts = map(str, (found.ledger, found.lipschitz, found.paper))
        ratios = found.ratios or (math.nan,)
        spread = f"{np.median(ratios):.0f}", f"{max(ratios):.0f}"
        setting = str(case.n), str(case.d), rows, f"{case.sigma:g}", f"{budget:.3f}"
        lines.append([*setting, *counts, *spread])
    head = ["n", "d", "rows", "sigma", "budget", "this ledger", "Lipschitz", "paper"]
    print(table([*head, "spent / residual, median", "highest"], lines))


if __name__ == "__main__":
    main()
