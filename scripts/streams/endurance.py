"""Part 3: thousands of single deletions by exact, with the product's policy and without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lethe.engine import Limits
from streams.data import make
from streams.followed import LIMITS, Followed, fitted, median_us, said
from streams.records import Record
from streams.retraining import relative_error, retrain_at

PART = "endurance"
FAMILIES = ("isotropic", "anisotropic")
LIMIT = 1e-8


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; checkpoints count single deletions."""

    n: int = 20_000
    d: int = 500
    checkpoints: tuple[int, ...] = (1, 100, 500, 1000, 2000, 3000, 4000, 5000)


QUICK = Plan(n=1200, d=40, checkpoints=(1, 100, 300, 600))


def policies() -> dict[str, Limits | None]:
    """Return the streams that are compared: their limits, or None for no refresh at all.

    The last one compacts each d rows, more often than is worth it: it shows what
    compacting does to the error and to its bound.
    """
    return {
        "exact": None,
        "exact, refreshed": LIMITS,
        "exact, often compacted": Limits(fraction_of_d=1.0, floor_rows=0),
    }


def run(family: str, plan: Plan, seed: int) -> Iterator[Record]:
    """Delete one row at a time from a linear model; no batch is ever more than one row."""
    deletions = plan.checkpoints[-1]
    data = make("linear", family, n=plan.n, d=plan.d, deletions=deletions, seed=seed)
    truths = retrain_at(data, plan.checkpoints)
    model = fitted(data)
    for method, limits in policies().items():
        policy = limits is not None
        followed = Followed.begin(data, model, "exact", policy=policy, limits=limits or LIMITS)
        first = 0
        for _ in range(deletions):
            error = followed.delete(1)
            if followed.deleted not in truths:
                continue
            truth = truths[followed.deleted]
            yield {
                "part": PART,
                "kind": "linear",
                "data": family,
                "n": plan.n,
                "d": plan.d,
                "k": 1,
                "method": method,
                "deleted": followed.deleted,
                "true": relative_error(followed.theta, truth),
                **said(error, float(np.linalg.norm(truth.astype(np.float64)))),
                "batch_us": median_us(followed.batch_seconds[first:]),
                "refreshes": followed.counts(),
                "for_error": sum(refresh.cause == "budget" for refresh in followed.refreshes),
                "reasons": _reasons(followed),
                "refresh_seconds": sum((refresh.seconds for refresh in followed.refreshes), 0.0),
            }
            first = len(followed.batch_seconds)


def _reasons(followed: Followed) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for refresh in followed.refreshes:
        said_why = f"{refresh.size}: {refresh.reason}"
        reasons[said_why] = reasons.get(said_why, 0) + 1
    return reasons
