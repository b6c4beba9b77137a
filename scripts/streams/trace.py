"""Part 2: the published error against the truth, batch by batch, refreshes and all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streams.data import make
from streams.followed import Followed, fitted, said
from streams.records import Record
from streams.retraining import relative_error, retrain_at

PART = "trace"
FOLLOWED = (("linear", "pru"), ("logistic", "pru"), ("logistic", "exact"))


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes: ``batches`` of k rows, each checked against retraining."""

    n: int = 4000
    d: int = 200
    k: int = 10
    batches: int = 100


QUICK = Plan(n=400, d=20, k=5, batches=20)


def run(kind: str, plan: Plan, seed: int) -> Iterator[Record]:
    """Follow isotropic data through the policy's refreshes."""
    deletions = plan.k * plan.batches
    data = make(kind, "isotropic", n=plan.n, d=plan.d, deletions=deletions, seed=seed)
    marks = range(plan.k, deletions + 1, plan.k)
    truths = retrain_at(data, marks)
    model = fitted(data)
    for wanted, method in FOLLOWED:
        if wanted != kind:
            continue
        followed = Followed.begin(data, model, method, policy=True)
        for mark in marks:
            before = len(followed.refreshes)
            error = followed.delete(plan.k)
            truth = truths[mark]
            new = followed.refreshes[before:]
            yield {
                "part": PART,
                "kind": kind,
                "data": data.family,
                "k": plan.k,
                "method": f"{method}, refreshed",
                "deleted": mark,
                "true": relative_error(followed.theta, truth),
                **said(error, float(np.linalg.norm(truth.astype(np.float64)))),
                "refresh": new[0].size if new else None,
            }
