"""Section ``compact``: what V costs as it grows, and what folding it away costs.

The arithmetic alone, no store: the deletion of k rows with K in V, a compact of n live rows, and
a rebuild. `engine.deletion.crossover` decides by constants that ``scripts/crossover.py`` measures,
the store's part included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernel_measures.clock import Call, in_turns
from kernel_measures.deletions import Deletion, renew_all
from kernel_measures.figures import Figure, timed
from kernel_measures.rebuilding import synthetic
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import begin, delete
from lethe.engine.fit.objective import Kind, Objective
from lethe.engine.fit.precompute import precompute
from lethe.engine.refresh.kinds import compact

SECTION = "compact"


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes."""

    n: int = 10_000
    d: int = 1000
    k: Sequence[int] = (1, 10, 100)
    K: Sequence[int] = (0, 250, 500, 1000)
    repeats: int = 30


QUICK = Plan(n=500, d=50, k=(1,), K=(0, 20), repeats=3)


def run(plan: Plan, seed: int) -> Iterable[Figure]:
    """Delete K rows, then time what follows, in turns over all K."""
    rows = synthetic(Kind.LINEAR, plan.n, plan.d, seed)
    objective = Objective(Kind.LINEAR, np.ones(plan.d))
    made = precompute(objective, rows)
    generation, stream = begin(0, objective, made)
    gone = max(plan.K)
    live = rows.take(slice(gone, None))
    calls: dict[tuple[str, int, int], Call] = {}
    deletions = []
    for K in plan.K:
        before = slice(0, K)
        first = delete(
            generation, stream, rows.take(before), made.dual_rows[before], method_named("exact")
        )
        for k in plan.k:
            batch = slice(gone, gone + k)
            next_rows = rows.take(batch), made.dual_rows[batch]
            deletions.append(Deletion(generation, first.stream, *next_rows, "exact"))
            calls["deletion", K, k] = deletions[-1]
        if K:
            # Of the rows that this stream has left: compacts measure what they did to them.
            left = rows.take(slice(K, None)), made.dual_rows[K:]
            calls["compact", K, 0] = partial(compact, generation, first.stream, made.factor, *left)
    calls["rebuild", 0, 0] = partial(precompute, objective, live)
    named = {" ".join(map(str, key)): call for key, call in calls.items()}
    samples = in_turns(named, plan.repeats, fresh=partial(renew_all, deletions))
    for key in calls:
        metric, K, k = key
        n = len(live) if metric == "rebuild" else plan.n - K
        setting = {"n": n, "d": plan.d} | ({"K": K} if metric != "rebuild" else {})
        if k:
            setting["k"] = k
        yield timed(SECTION, setting, metric, samples[" ".join(map(str, key))])
