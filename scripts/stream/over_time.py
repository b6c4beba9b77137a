"""Streams of deletions followed: parts ``over time``, ``trace``, ``endurance`` and ``order``.

True error (against retraining, at checkpoints), what was published as its error, and the cost of
a batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lethe.engine import Limits
from lethe.engine.deletion.generation import begin
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.fit.objective import Array
from lethe.engine.fit.precompute import Precomputation, precompute
from stream.data import FAMILIES, Record, StreamData, make
from stream.divergence import repeated
from stream.followed import LIMITS, Followed, fitted, median_us
from stream.retraining import Wide, newton_step, projection, relative_error, retrain_at

# -- 1: every method over one long stream, each data family, several batch sizes -----------------

OVER_TIME = "over time"
STREAMING = (("pru", False), ("pru", True), ("exact", False), ("exact", True))


@dataclass(frozen=True, slots=True)
class LongPlan:
    """Sizes; checkpoints count deleted rows, in rising order."""

    n: int = 6000
    d: int = 300
    checkpoints: tuple[int, ...] = (1, 10, 30, 100, 200, 300, 500, 800, 1200, 2000, 3000)
    batches: tuple[int, ...] = (1, 10, 100)


def over_time(kind: str, family: str, plan: LongPlan, seed: int) -> Iterator[Record]:
    """Measure one kind of model on one family of data."""
    deletions = plan.checkpoints[-1]
    data = make(kind, family, n=plan.n, d=plan.d, deletions=deletions, seed=seed)
    truths = retrain_at(data, plan.checkpoints)
    made = precompute(data.objective, data.rows)
    unions = {}
    for mark in plan.checkpoints:
        record, unions[mark] = _one_shot(data, made, mark, truths[mark])
        yield record
    model = fitted(data)
    for k in plan.batches:
        yield from _naive(data, made, k, truths)
        for method, policy in STREAMING:
            followed = Followed.begin(data, model, method, policy=policy)
            setting = _setting(data, k, f"{method}, refreshed" if policy else method)
            for found in followed.at_marks(truths, k):
                record = {
                    **setting,
                    **found,
                    "batch_us": followed.batch_us,
                    "batches_seconds": sum(followed.batch_seconds),
                    **followed.counts(),
                    "refresh_seconds": followed.refresh_seconds,
                }
                if method == "pru" and not policy:
                    union = unions[followed.deleted]
                    gap = np.linalg.norm(followed.theta - union) / np.linalg.norm(union)
                    record["difference"] = float(gap)
                yield record


def _setting(data: StreamData, k: int | None, method: str) -> Record:
    return {
        "part": OVER_TIME,
        "kind": data.kind,
        "data": data.family,
        "n": data.n,
        "d": data.d,
        "k": k,
        "method": method,
    }


def _one_shot(
    data: StreamData, made: Precomputation, mark: int, truth: Wide
) -> tuple[Record, Array]:
    """Return the one-shot PRU of the union: its record, and theta by a route of its own."""
    theta_b = made.theta[:, 0]
    union = data.order[:mark]
    moved = newton_step(data, theta_b, mark) - theta_b
    independent = theta_b + projection(data.X[union], moved)
    generation, stream = begin(0, data.objective, made)
    rows, W = data.rows.take(union), made.dual_rows[union]
    started = time.perf_counter()
    published = delete(generation, stream, rows, W, method_named("pru")).stream.published[:, 0]
    seconds = time.perf_counter() - started
    scale = float(np.linalg.norm(independent))
    record = {
        **_setting(data, None, "one-shot pru"),
        "deleted": mark,
        "true": relative_error(independent, truth),
        "batch_us": seconds * 1e6,
        "difference": float(np.linalg.norm(published - independent)) / scale,
    }
    return record, independent


def _naive(
    data: StreamData, made: Precomputation, k: int, truths: Mapping[int, Wide]
) -> Iterator[Record]:
    seconds: list[float] = []
    started = time.perf_counter()
    for deleted, theta in repeated(data, made, k):
        seconds.append(time.perf_counter() - started)
        if deleted in truths:
            yield {
                **_setting(data, k, "naive"),
                "deleted": deleted,
                "true": relative_error(theta, truths[deleted]),
                "batch_us": median_us(seconds),
            }
            seconds = []
        started = time.perf_counter()


# -- 2: the published error against the truth, batch by batch, refreshes and all -----------------

TRACE = "trace"
FOLLOWED = (("linear", "pru"), ("logistic", "pru"), ("logistic", "exact"))


@dataclass(frozen=True, slots=True)
class TracePlan:
    """Sizes: ``batches`` of k rows, each checked against retraining."""

    n: int = 4000
    d: int = 200
    k: int = 10
    batches: int = 100


def trace(kind: str, plan: TracePlan, seed: int) -> Iterator[Record]:
    """Follow isotropic data through the policy's refreshes."""
    deletions = plan.k * plan.batches
    data = make(kind, "isotropic", n=plan.n, d=plan.d, deletions=deletions, seed=seed)
    truths = retrain_at(data, range(plan.k, deletions + 1, plan.k))
    model = fitted(data)
    for method in (method for wanted, method in FOLLOWED if wanted == kind):
        followed, before = Followed.begin(data, model, method, policy=True), 0
        for found in followed.at_marks(truths, plan.k):
            new, before = followed.refreshes[before:], len(followed.refreshes)
            yield {
                "part": TRACE,
                "kind": kind,
                "data": data.family,
                "k": plan.k,
                "method": f"{method}, refreshed",
                **found,
                "refresh": new[0].size if new else None,
            }


# -- 3: thousands of single deletions by exact, with the product's policy and without it ---------

ENDURANCE = "endurance"
ENDURED = ("isotropic", "anisotropic")
ENDURED_ERROR = 1e-8
"""The largest error to retraining that these streams may come to."""

POLICIES: Mapping[str, Limits | None] = {
    "exact": None,
    "exact, refreshed": LIMITS,
    "exact, often compacted": Limits(fraction_of_d=1.0, floor_rows=0),
}
"""The streams that are compared: their limits, or None for no refresh at all.

The last one compacts each d rows, more often than is worth it: it shows what compacting does to the
error and to its bound.
"""


@dataclass(frozen=True, slots=True)
class EndurancePlan:
    """Sizes; checkpoints count single deletions."""

    n: int = 20_000
    d: int = 500
    checkpoints: tuple[int, ...] = (1, 100, 500, 1000, 2000, 3000, 4000, 5000)


def endurance(family: str, plan: EndurancePlan, seed: int) -> Iterator[Record]:
    """Delete one row at a time from a linear model; no batch is ever more than one row."""
    deletions = plan.checkpoints[-1]
    data = make("linear", family, n=plan.n, d=plan.d, deletions=deletions, seed=seed)
    truths = retrain_at(data, plan.checkpoints)
    model = fitted(data)
    for method, limits in POLICIES.items():
        policy = limits is not None
        followed = Followed.begin(data, model, "exact", policy=policy, limits=limits or LIMITS)
        for found in followed.at_marks(truths, 1):
            yield {
                "part": ENDURANCE,
                "kind": "linear",
                "data": family,
                "n": plan.n,
                "d": plan.d,
                "k": 1,
                "method": method,
                **found,
                "batch_us": followed.batch_us,
                **followed.counts(),
                "for_error": sum(refresh.cause == "budget" for refresh in followed.refreshes),
                "reasons": followed.reasons(),
                "refresh_seconds": followed.refresh_seconds,
            }


# -- 5: what the order of deletions, and how they are cut into batches, changes ------------------

ORDER = "order"
_CUTS = (1, 7, 50, None)  # rows a batch; None: all in one


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """Sizes: ``deletions`` rows in ``orders`` random orders, each cut in several ways."""

    n: int = 3000
    d: int = 150
    deletions: int = 500
    orders: int = 3


def order(kind: str, plan: OrderPlan, seed: int) -> Iterator[Record]:
    """Compare all ways of deleting one set of rows, family by family."""
    rng = np.random.default_rng(seed)
    for family in FAMILIES:
        data = make(kind, family, n=plan.n, d=plan.d, deletions=plan.deletions, seed=seed)
        model = fitted(data)
        made = precompute(data.objective, data.rows)
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
                "part": ORDER,
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
