"""Section ``one row``: what most requests ask for, beside its kernel and the kernel's BLAS calls.

A linear model of one output. The kernel is `engine.deletion.downdate.leave_out`, as in ``leave
out``. It cannot do with less than a scalar product (the leverage) and two multiples of the dual row
(the step, the row of V): SciPy's ddot, daxpy and dscal. What these give are new arrays, so that the
calls write to copies; without the copies they are shown beside it.

The precomputation is synthetic, as in `kernel_measures.leave_out`. Each round has another row, in
arrays of its own that were just made, as those of a request are. Each call is timed right after an
untimed one on the row of the round before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dscal

from harness.records import Goal, Record, at_most, timed
from harness.study import Section, Setup
from harness.timing import Call, in_turns
from kernel_measures.steps import METHODS, Deletion
from lethe.engine.deletion.downdate import leave_out
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Generation, Stream, at_rest, delete
from lethe.engine.error.estimate import published_error
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.objective import Kind, Objective, Rows

IN_PLACE = "BLAS calls in place"
BLAS = "BLAS calls"
KERNEL = "kernel"
ERROR = "its error"

_NOTE = """
A linear model of one output, one row drawn anew for each sample. `kernel` is
`engine.deletion.downdate.leave_out`, row, dual row and error given; `BLAS calls` are the three that
it cannot do without (SciPy's ddot, dscal and daxpy), with the two copies that their results are;
`in place`, without the copies. The methods are `engine.deletion.stream.delete` with K rows deleted
before, all in: errors, gate, the row of V, what is published, and what rounding adds to the bound,
for which the lengths of three vectors and one more scalar product are taken. `its error` is
`engine.error.estimate.published_error`.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes: columns, rows deleted before, and rows to draw from."""

    d: int = 1000
    K: Sequence[int] = (0, 8)
    rows: int = 512
    repeats: int = 301


class _Model:
    """A synthetic model, and a stream for each number of rows deleted before."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.rng = np.random.default_rng((seed, plan.d))
        d, self.gone = plan.d, max(plan.K)
        c = 2.0 * (np.sqrt(d) + np.sqrt(self.gone + 1)) ** 2
        X = self.rng.standard_normal((plan.rows, d))
        self.rows = Rows(X, self.rng.standard_normal((plan.rows, 1)), np.ones(plan.rows))
        self.W, self.theta = X / c, self.rng.standard_normal((d, 1))
        objective, off = Objective(Kind.LINEAR, np.ones(d)), 1e-15 * c
        self.generation = Generation(0, objective, self.theta, c, c, dual_error=off)
        self.streams = {K: self._after(K) for K in plan.K}

    def _after(self, K: int) -> Stream:
        rows, W = self.rows.take(slice(0, K)), self.W[:K]
        begun, exact = at_rest(self.theta, 0.0), method_named("exact")
        return delete(self.generation, begun, rows, W, exact).stream

    def draw(self) -> _Drawn:
        """Draw a live row."""
        return _Drawn(self, int(self.rng.integers(self.gone, len(self.W))))


class _Drawn:
    """A row, and what each call is given of it."""

    def __init__(self, model: _Model, place: int) -> None:
        row, self.w = model.rows.take(np.array([place])), model.W[[place]]
        self.x, self.weight, self.theta = row.X, row.weight, model.theta
        self.error = row.X @ model.theta - row.y
        self.multiple, self.moved = self.w.copy(), model.theta.copy()
        self.deletions = {
            f"{method} {K}": Deletion(model.generation, stream, row, self.w, method)
            for K, stream in model.streams.items()
            for method in METHODS
        }
        for deletion in self.deletions.values():
            deletion.renew()

    def in_place(self) -> None:
        """Make the BLAS calls, on arrays that are there."""
        ddot(self.x, self.w)
        dscal(0.5, self.multiple)
        daxpy(self.w, self.moved, a=0.5)

    def on_copies(self) -> None:
        """Make the BLAS calls, on the copies that their results are."""
        ddot(self.x, self.w)
        dscal(0.5, self.w.copy())
        daxpy(self.w, self.theta.copy(), a=0.5)

    def kernel(self) -> object:
        """Leave the row out, its error given."""
        return leave_out(self.x, self.w, self.error, self.weight)


class _Rounds:
    """The row of this round and of the one before."""

    def __init__(self, model: _Model) -> None:
        self.model = model
        self.now = self.before = model.draw()

    def renew(self) -> None:
        """Draw the next row."""
        self.before, self.now = self.model.draw(), self.model.draw()

    def calls(self, which: str) -> dict[str, Call]:
        """Return the calls on the row of the round ``now`` or ``before``."""
        generation, live = self.model.generation, len(self.model.W)
        stream = self.model.streams[self.model.gone]
        nobody = Sentinels((), self.model.rows.take(slice(0, 0)), self.model.W[:0])

        def on_row(name: str) -> object:
            drawn: _Drawn = getattr(self, which)
            call: Call = drawn.deletions[name] if name in drawn.deletions else getattr(drawn, name)
            return call()

        named = {IN_PLACE: "in_place", BLAS: "on_copies", KERNEL: "kernel"}
        named |= {name: name for name in self.now.deletions}
        calls: dict[str, Call] = {name: partial(on_row, call) for name, call in named.items()}
        return calls | {ERROR: partial(published_error, generation, stream, nobody, live)}


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Time all calls in turns, and compare each with what it is made of."""
    rounds = _Rounds(_Model(plan, setup.seed))
    samples = in_turns(
        rounds.calls("now"), plan.repeats, fresh=rounds.renew, warm=rounds.calls("before")
    )
    times: dict[str, Record] = {}
    for name, taken in samples.items():
        method, _, K = name.rpartition(" ")
        if method in METHODS:
            times[name] = timed({"d": plan.d, "method": method, "K": int(K)}, "time", taken)
        else:
            times[name] = timed({"d": plan.d, "method": name}, "time", taken)
    yield from times.values()

    def over(name: str, other: str, goal: Goal | None = None) -> Record:
        ratio = times[name].value / times[other].value
        metric = f"time over that of the {other}"
        return Record(times[name].setting, metric, "1", ratio, plan.repeats, goal=goal)

    yield over(KERNEL, BLAS, at_most(2.0))
    yield over(KERNEL, IN_PLACE)
    for name in rounds.now.deletions:
        yield over(name, KERNEL, at_most(2.5) if name.startswith("exact") else None)
        yield over(name, BLAS)


SECTION = Section("one row", _NOTE, Plan(), Plan(d=100, rows=32, repeats=5), run)
