"""Section ``leave out``: the exact step from dual rows, against its rivals.

Rivals: the projective residual update as the engine makes it (vectorised, rank-revealing), the
same by the Gram matrix of the deleted rows (the least work; fails on dependent rows), the PRU as
published with its rows of the hat matrix given, and the influence method as published, A^-1 times
the gradient. The functions are those of the paper's tables (scripts/reproduction).

The precomputation is synthetic: A = c I with c above anything that the deleted rows can take
away, so that dual rows and hat matrix are exact. No time depends on the values; the inverse
that the influence method multiplies by is a full d x d matrix. Each call is timed right after an
untimed one on the rows of the round before: the program is warm, and the rows are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.records import Record, at_least, timed
from harness.study import Section, Setup
from harness.timing import Call, in_turns
from lethe.engine.deletion.downdate import leave_out
from lethe.engine.fit.objective import Array
from reproduction import ours, published

EXACT = "exact from dual rows"
KERNEL = "its kernel alone"
PRU = "PRU, the engine's"
PRU_GRAM = "PRU by Gram matrix"
PRU_PUBLISHED = "PRU as published"
INFLUENCE = "influence as published"

RIVALS = (PRU, PRU_GRAM, PRU_PUBLISHED, INFLUENCE)

Index: TypeAlias = NDArray[np.intp]
Method: TypeAlias = Callable[[Array, Array, Array, Index, Array], Array]

_GOALS = {PRU: at_least(2.0), PRU_PUBLISHED: at_least(8.0), INFLUENCE: at_least(1.0)}
_INFLUENCE_ROWS = 50  # above that many, O(k^2 d) against O(d^2) is reported without a goal

_NOTE = """
k rows drawn anew for each sample out of n = 10 d, all methods in turns, each right after an untimed
call of itself on the rows drawn before. Inside each timer: reading the rows, their errors, the
step, the new theta; of the exact method the gate and the rows of V too. Not inside: what each
method has precomputed (dual rows; the rows of the hat matrix; the inverse Hessian). `its kernel
alone` is `engine.deletion.downdate.leave_out`, rows and errors given. The PRU by the Gram matrix is
the least work for a projection; it fails on dependent rows, so the product does not use it: at that
least the projection costs about what the exact step does. For one row the engine's PRU needs no
factor either, and the exact step is less than twice as fast. Functions:
`scripts/reproduction/ours.py` and `scripts/reproduction/published.py`.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; n is ``rows_per_column`` times d, as in the paper's Table 2."""

    d: Sequence[int] = (1000, 1500, 2000, 2500, 3000)
    k: Sequence[int] = (1, 5, 10, 25, 50, 100)
    rows_per_column: int = 10
    repeats: int = 31


class _Model:
    """A synthetic model with the precomputation of every method."""

    def __init__(self, plan: Plan, d: int, seed: int) -> None:
        self.rng = np.random.default_rng((seed, d))
        n = plan.rows_per_column * d
        c = 2.0 * (np.sqrt(d) + np.sqrt(max(plan.k))) ** 2
        self.X = self.rng.standard_normal((n, d))
        self.W = self.X / c
        self.y = self.rng.standard_normal(n)
        self.theta = self.rng.standard_normal(d)
        self.inverse = np.eye(d) / c

    def draw(self, k: int) -> _Drawn:
        """Draw k rows to delete, and what the published PRU and the kernel are handed."""
        deleted = self.rng.choice(len(self.y), k, replace=False)
        U, dual = self.X[deleted], self.W[deleted]
        error = (U @ self.theta - self.y[deleted])[:, None]
        return _Drawn(deleted, dual @ self.X.T, U, dual, error, np.ones(k))


@dataclass(frozen=True, slots=True)
class _Drawn:
    deleted: Index
    hat_rows: Array
    U: Array
    dual: Array
    error: Array
    curvature: Array


class _Rounds:
    """The rows of this round and of the one before."""

    def __init__(self, model: _Model, k: int) -> None:
        self.model, self.k = model, k
        self.now = self.before = model.draw(k)

    def renew(self) -> None:
        """Draw the next rows."""
        self.before, self.now = self.now, self.model.draw(self.k)

    def calls(self, which: str) -> dict[str, Call]:
        """Return the methods on the rows of the round ``now`` or ``before``."""
        model = self.model

        def on(method: Method, given: Callable[[_Drawn], Array]) -> Call:
            def call() -> Array:
                drawn: _Drawn = getattr(self, which)
                return method(model.X, model.y, model.theta, drawn.deleted, given(drawn))

            return call

        def kernel() -> object:
            drawn: _Drawn = getattr(self, which)
            return leave_out(drawn.U, drawn.dual, drawn.error, drawn.curvature)

        return {
            EXACT: on(ours.exact_from_dual_rows, lambda _: model.W),
            KERNEL: kernel,
            PRU: on(ours.pru_from_dual_rows, lambda _: model.W),
            PRU_GRAM: on(ours.pru_by_gram_matrix, lambda _: model.W),
            PRU_PUBLISHED: on(published.projective_residual_update, lambda drawn: drawn.hat_rows),
            INFLUENCE: on(published.influence, lambda _: model.inverse),
        }


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Time all methods, in turns, on rows drawn anew for each round."""
    for d in plan.d:
        model = _Model(plan, d, setup.seed)
        for k in plan.k:
            rounds = _Rounds(model, k)
            samples = in_turns(
                rounds.calls("now"), plan.repeats, fresh=rounds.renew, warm=rounds.calls("before")
            )
            times = {
                name: timed({"d": d, "k": k, "method": name}, "time", taken)
                for name, taken in samples.items()
            }
            yield from times.values()
            for rival in RIVALS:
                asked = _GOALS.get(rival)
                if rival == INFLUENCE and k > _INFLUENCE_ROWS:
                    asked = None
                ratio = times[rival].value / times[EXACT].value
                metric = f"time over that of {EXACT}"
                setting = times[rival].setting
                yield Record(setting, metric, "1", ratio, plan.repeats, goal=asked)


SECTION = Section(
    "leave out", _NOTE, Plan(), Plan(d=(100,), k=(1, 10), rows_per_column=4, repeats=5), run
)
