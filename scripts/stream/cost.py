"""Part 6: the cost of a deletion against K, the rows deleted in this generation before it.

`engine.deletion.stream.delete` alone, along a stream (a state that is used twice would copy its V).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lethe.engine.deletion.generation import begin
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.fit.precompute import Precomputation, precompute
from stream.data import Record, StreamData, make
from stream.followed import median_us

PART = "cost"
METHODS = ("exact", "pru")


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; ``edges`` of the ranges of K that are timed."""

    n: int = 20_000
    d: int = 500
    edges: tuple[int, ...] = (0, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096)
    batches: tuple[int, ...] = (1, 10, 100)


_FEWEST = 3  # samples that a median is made of


def run(plan: Plan, seed: int) -> Iterator[Record]:
    """Time batches of each size at each K."""
    data = make("linear", "isotropic", n=plan.n, d=plan.d, deletions=plan.n, seed=seed)
    made = precompute(data.objective, data.rows)
    for k in plan.batches:
        for method in METHODS:
            yield from _against_deleted(plan, data, made, k, method)


def _against_deleted(
    plan: Plan, data: StreamData, made: Precomputation, k: int, method: str
) -> Iterator[Record]:
    """Time every batch of one stream; medians over ranges of K."""
    rows, chosen = data.rows, method_named(method)
    generation, stream = begin(0, data.objective, made)
    timed: list[tuple[float, float]] = []
    for gone in range(0, plan.edges[-1], k):
        batch = data.order[gone : gone + k]
        U, W = rows.take(batch), made.dual_rows[batch]
        started = time.perf_counter()
        stream = delete(generation, stream, U, W, chosen).stream
        timed.append((gone, time.perf_counter() - started))
    K, seconds = np.array(timed).T
    for low, high in pairwise(plan.edges):
        inside = (low <= K) & (high > K)
        if inside.sum() >= _FEWEST:
            yield {
                "part": PART,
                "kind": "linear",
                "data": "isotropic",
                "n": plan.n,
                "d": plan.d,
                "method": method,
                "k": k,
                "K": float(K[inside].mean()),
                "batch_us": median_us(list(seconds[inside])),
                "samples": int(inside.sum()),
                "range": f"{low} to {high - 1}",
            }


def line(records: Sequence[Record]) -> tuple[float, float]:
    """Return slope and intercept of time against K, in microseconds."""
    K = np.array([record["K"] for record in records], dtype=np.float64)
    slope, fixed = np.polyfit(K, [record["batch_us"] for record in records], 1)
    return float(slope), float(fixed)
