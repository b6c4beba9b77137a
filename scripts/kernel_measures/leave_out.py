"""Section ``leave out``: the exact step from dual rows, against its rivals.

Rivals: the projective residual update as the engine makes it (vectorised, rank-revealing), the
same by the Gram matrix of the deleted rows (the least work; fails on dependent rows), the PRU as
published with its rows of the hat matrix given, and the influence method as published, A^-1 times
the gradient. The functions are those of the paper's tables (scripts/reproduction).

The precomputation is synthetic: A = c I with c above anything that the deleted rows can take
away, so that dual rows and hat matrix are exact. No time depends on the values; the inverse
that the influence method multiplies by is a full d x d matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from reproduction import ours, published

from engine.downdate import leave_out
from engine.objective import Array
from kernel_measures.clock import Call, in_turns
from kernel_measures.figures import Figure, Goal, timed

SECTION = "leave out"
EXACT = "exact from dual rows"
KERNEL = "its kernel alone"
PRU = "PRU, the engine's"
PRU_GRAM = "PRU by Gram matrix"
PRU_PUBLISHED = "PRU as published"
INFLUENCE = "influence as published"

RIVALS = (PRU, PRU_GRAM, PRU_PUBLISHED, INFLUENCE)

Method: TypeAlias = Callable[[Array, Array, Array, Any, Array], Array]

_GOALS = {PRU: 2.0, PRU_PUBLISHED: 8.0, INFLUENCE: 1.0}
_INFLUENCE_ROWS = 50  # above that many, O(k^2 d) against O(d^2) is reported without a goal


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; n is ``rows_per_column`` times d, as in the paper's Table 2."""

    d: Sequence[int] = (1000, 1500, 2000, 2500, 3000)
    k: Sequence[int] = (1, 5, 10, 25, 50, 100)
    rows_per_column: int = 10
    repeats: int = 31


QUICK = Plan(d=(100,), k=(1, 10), rows_per_column=4, repeats=5)


class _Model:
    """A synthetic model, and the rows that are deleted in this round."""

    def __init__(self, plan: Plan, d: int, seed: int) -> None:
        self.rng = np.random.default_rng((seed, d))
        n = plan.rows_per_column * d
        c = 2.0 * (np.sqrt(d) + np.sqrt(max(plan.k))) ** 2
        self.X = self.rng.standard_normal((n, d))
        self.W = self.X / c
        self.y = self.rng.standard_normal(n)
        self.theta = self.rng.standard_normal(d)
        self.inverse = np.eye(d) / c

    def draw(self, k: int) -> None:
        """Draw k rows to delete, and what the published PRU and the kernel are handed."""
        self.deleted = self.rng.choice(len(self.y), k, replace=False)
        self.U, self.dual = self.X[self.deleted], self.W[self.deleted]
        self.hat_rows = self.dual @ self.X.T
        self.error = (self.U @ self.theta - self.y[self.deleted])[:, None]
        self.curvature = np.ones(k)

    def calls(self) -> dict[str, Call]:
        """Return the methods, each on the rows drawn last."""

        def on(method: Method, attribute: str) -> Call:
            return lambda: method(
                self.X, self.y, self.theta, self.deleted, getattr(self, attribute)
            )

        return {
            EXACT: on(ours.exact_from_dual_rows, "W"),
            PRU: on(ours.pru_from_dual_rows, "W"),
            PRU_GRAM: on(ours.pru_by_gram_matrix, "W"),
            PRU_PUBLISHED: on(published.projective_residual_update, "hat_rows"),
            INFLUENCE: on(published.influence, "inverse"),
            KERNEL: lambda: leave_out(self.U, self.dual, self.error, self.curvature),
        }


def run(plan: Plan, seed: int) -> Iterable[Figure]:
    """Time all methods, in turns, on rows drawn anew for each round."""
    for d in plan.d:
        model = _Model(plan, d, seed)
        for k in plan.k:
            draw = partial(model.draw, k)
            draw()
            samples = in_turns(model.calls(), plan.repeats, fresh=draw)
            times = {
                name: timed(SECTION, {"d": d, "k": k, "method": name}, "time", samples[name])
                for name in samples
            }
            yield from times.values()
            for rival in RIVALS:
                asked = _GOALS.get(rival)
                if rival == INFLUENCE and k > _INFLUENCE_ROWS:
                    asked = None
                yield Figure(
                    SECTION,
                    {"d": d, "k": k, "method": rival},
                    f"time over that of {EXACT}",
                    "1",
                    times[rival].value / times[EXACT].value,
                    samples=plan.repeats,
                    goal=None if asked is None else Goal(">=", asked),
                )
