"""Part 1: every method over one long stream, each data family, several batch sizes.

True error (against retraining, at checkpoints), what was published as its error, and the cost of
a batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import begin, delete
from lethe.engine.fit.objective import Array
from lethe.engine.fit.precompute import Precomputation, precompute
from streams.data import StreamData, make
from streams.followed import Followed, Model, fitted, median_us, said
from streams.papers_formula import objective_of, repeated, rows_of
from streams.records import Record
from streams.retraining import (
    Wide,
    newton_step,
    projection,
    relative_error,
    retrain_at,
)

PART = "over time"
STREAMING = (("pru", False), ("pru", True), ("exact", False), ("exact", True))


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; checkpoints count deleted rows, in rising order."""

    n: int = 6000
    d: int = 300
    checkpoints: tuple[int, ...] = (1, 10, 30, 100, 200, 300, 500, 800, 1200, 2000, 3000)
    batches: tuple[int, ...] = (1, 10, 100)


QUICK = Plan(n=500, d=30, checkpoints=(1, 10, 20, 40, 100, 200), batches=(1, 20))


def run(kind: str, family: str, plan: Plan, seed: int) -> Iterator[Record]:
    """Measure one kind of model on one family of data."""
    deletions = plan.checkpoints[-1]
    data = make(kind, family, n=plan.n, d=plan.d, deletions=deletions, seed=seed)
    truths = retrain_at(data, plan.checkpoints)
    made = precompute(objective_of(data), rows_of(data))
    unions = {}
    for mark in plan.checkpoints:
        record, unions[mark] = _one_shot(data, made, mark, truths[mark])
        yield record
    model = fitted(data)
    for k in plan.batches:
        yield from _naive(data, made, k, truths)
        for method, policy in STREAMING:
            yield from _streamed(data, model, k, method, policy, truths, unions)


def _setting(data: StreamData, k: int | None, method: str, deleted: int) -> Record:
    return {
        "part": PART,
        "kind": data.kind,
        "data": data.family,
        "n": data.n,
        "d": data.d,
        "k": k,
        "method": method,
        "deleted": deleted,
    }


def _one_shot(
    data: StreamData, made: Precomputation, mark: int, truth: Wide
) -> tuple[Record, Array]:
    """Return the one-shot PRU of the union: its record, and theta by a route of its own."""
    theta_b = made.theta[:, 0]
    union = data.order[:mark]
    moved = newton_step(data, theta_b, mark) - theta_b
    independent = theta_b + projection(data.X[union], moved)
    generation, stream = begin(0, objective_of(data), made)
    rows, W = rows_of(data).take(union), made.dual_rows[union]
    started = time.perf_counter()
    published = delete(generation, stream, rows, W, method_named("pru")).stream.published[:, 0]
    seconds = time.perf_counter() - started
    scale = float(np.linalg.norm(independent))
    record = {
        **_setting(data, None, "one-shot pru", mark),
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
                **_setting(data, k, "naive", deleted),
                "true": relative_error(theta, truths[deleted]),
                "batch_us": median_us(seconds),
            }
            seconds = []
        started = time.perf_counter()


def _streamed(
    data: StreamData,
    model: Model,
    k: int,
    method: str,
    policy: bool,
    truths: Mapping[int, Wide],
    unions: Mapping[int, Array],
) -> Iterator[Record]:
    followed = Followed.begin(data, model, method, policy=policy)
    first = 0
    for _ in range(len(data.order) // k):
        error = followed.delete(k)
        deleted = followed.deleted
        if deleted not in truths:
            continue
        truth = truths[deleted]
        theta = followed.theta
        record: Record = {
            **_setting(data, k, f"{method}, refreshed" if policy else method, deleted),
            "true": relative_error(theta, truth),
            **said(error, float(np.linalg.norm(truth.astype(np.float64)))),
            "batch_us": median_us(followed.batch_seconds[first:]),
            "batches_seconds": sum(followed.batch_seconds),
            "refreshes": followed.counts(),
            "refresh_seconds": sum((refresh.seconds for refresh in followed.refreshes), 0.0),
        }
        if method == "pru" and not policy:
            union = unions[deleted]
            gap = np.linalg.norm(theta - union) / np.linalg.norm(union)
            record["difference"] = float(gap)
        first = len(followed.batch_seconds)
        yield record
