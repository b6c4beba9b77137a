"""Part 5: what the order of deletions, and how they are cut into batches, changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lethe.engine.fit.objective import Array
from lethe.engine.fit.precompute import precompute
from streams.data import FAMILIES, make
from streams.followed import Followed, fitted
from streams.papers_formula import objective_of, repeated, rows_of
from streams.records import Record

PART = "order"
_CUTS = (1, 7, 50, None)  # rows a batch; None: all in one


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes: ``deletions`` rows in ``orders`` random orders, each cut in several ways."""

    n: int = 3000
    d: int = 150
    deletions: int = 500
    orders: int = 3


QUICK = Plan(n=300, d=20, deletions=60, orders=2)


def run(kind: str, plan: Plan, seed: int) -> Iterator[Record]:
    """Compare all ways of deleting one set of rows, family by family."""
    rng = np.random.default_rng(seed)
    for family in FAMILIES:
        data = make(kind, family, n=plan.n, d=plan.d, deletions=plan.deletions, seed=seed)
        model = fitted(data)
        made = precompute(objective_of(data), rows_of(data))
        found: dict[str, list[Array]] = {"pru": [], "exact": [], "naive": []}
        for _ in range(plan.orders):
            data = replace(data, order=rng.permutation(data.order))
            for cut in _CUTS:
                k = cut or plan.deletions
                for method in ("pru", "exact"):
                    followed = Followed.begin(data, model, method, policy=False)
                    for _ in range(-(-plan.deletions // k)):
                        followed.delete(k)
                    found[method].append(followed.theta)
                *_, (_, last) = repeated(data, made, k)
                found["naive"].append(last)
        for method, thetas in found.items():
            yield {
                "part": PART,
                "kind": kind,
                "data": family,
                "method": method,
                "deleted": plan.deletions,
                "ways": len(thetas),
                "difference": _apart(thetas),
            }


def _apart(thetas: list[Array]) -> float:
    """Return the largest distance between two of them, relative to the first."""
    largest = max(float(np.linalg.norm(a - b)) for a in thetas for b in thetas)
    return largest / float(np.linalg.norm(thetas[0]))
