"""Section ``step``: the time of one engine step, in d, in k and in K.

The precomputation is synthetic: A = c I with c above anything that the deleted rows can take
away, so that dual rows are exact (x / c) and no d x d matrix is needed. The time of a step does
not depend on the values.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from benchmarks.records import Record, Setting, derived, measured
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Generation, Stream, at_rest, delete
from lethe.engine.fit.objective import Array, Kind, Objective, Rows

SECTION = "step"
METHODS = ("exact", "pru")
Medians: TypeAlias = dict[tuple[str, int, int], list[tuple[int, float]]]
"""Of method, k and K: pairs of d and the median time."""

_WARM_UP = 3
_LARGE_D = 1000  # from here on fixed costs no longer hide the slope


@dataclass(frozen=True, slots=True)
class Plan:
    """Which steps are timed, and how often each."""

    d: Sequence[int] = (250, 500, 1000, 2000, 4000)
    k: Sequence[int] = (1, 5, 10, 25, 50, 100)
    k_with_history: Sequence[int] = (1, 10, 100)
    K: Sequence[int] = (0, 250, 1000)
    repeats: int = 40

    def settings(self) -> list[tuple[int, int, Sequence[int]]]:
        """Return K, d and the sizes of batches that are timed there."""
        return [(K, d, self.k if K == 0 else self.k_with_history) for K in self.K for d in self.d]


QUICK = Plan(d=(250, 500), k=(1, 10), k_with_history=(1,), K=(0, 250), repeats=5)


@dataclass(frozen=True, slots=True)
class _Case:
    generation: Generation
    stream: Stream
    rows: Rows
    W: Array


def run(plan: Plan, seed: int) -> Iterable[Record]:
    """Time all steps; the methods take turns."""
    medians: Medians = {}
    for K, d, sizes in plan.settings():
        rng = np.random.default_rng((seed, K, d))
        histories = {method: _case(rng, d, K, max(sizes), method) for method in METHODS}
        for k in sizes:
            samples = _time(histories, k, plan.repeats)
            for method in METHODS:
                setting: Setting = {"method": method, "d": d, "k": k, "K": K}
                record = measured(SECTION, setting, "step time", "us", samples[method])
                medians.setdefault((method, k, K), []).append((d, record.median))
                yield record
    yield from slopes(medians)


def slopes(medians: Medians) -> Iterable[Record]:
    """Return the slopes in d of each method, k and K, over d > K.

    With d <= K the deleted rows span everything, and the work for their basis is another.
    """
    for (method, k, K), points in medians.items():
        which: Setting = {"method": method, "k": k, "K": K}
        above = [point for point in points if point[0] > K]
        large = [point for point in above if point[0] >= _LARGE_D]
        for metric, chosen in (
            ("slope in d", above),
            (f"slope in d, d >= {_LARGE_D}", large if len(large) < len(above) else []),
        ):
            if len(chosen) > 1:
                yield _slope(which, metric, chosen)


def _slope(setting: Setting, metric: str, points: Sequence[tuple[int, float]]) -> Record:
    """Return the exponent of a least-squares line through the logarithms."""
    d, seconds = np.log(np.array(points, dtype=np.float64)).T
    slope, _ = np.polyfit(d, seconds, 1)
    return derived(SECTION, setting, metric, "1", float(slope), len(points))


def _case(rng: np.random.Generator, d: int, K: int, k: int, method: str) -> _Case:
    """Return a stream in which K rows were deleted, and k rows to delete next."""
    c = 2.0 * (np.sqrt(d) + np.sqrt(K + k)) ** 2
    X, y = rng.standard_normal((K + k, d)), rng.standard_normal((K + k, 1))
    rows = Rows(X, y, np.ones(K + k))
    theta = rng.standard_normal((d, 1))
    objective = Objective(Kind.LINEAR, np.ones(d))
    generation = Generation(0, objective, theta, smallest=c, largest=c, dual_error=0.0)
    before = slice(0, K)
    first = delete(
        generation, at_rest(theta, 0.0), rows.take(before), X[before] / c, method_named(method)
    )
    last = slice(K, K + k)
    return _Case(generation, first.stream, rows.take(last), X[last] / c)


def _time(cases: dict[str, _Case], k: int, repeats: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {method: [] for method in cases}
    first = slice(0, k)
    for repeat in range(_WARM_UP + repeats):
        for method, case in cases.items():
            stream = _own_buffers(case.stream)
            rows, W = case.rows.take(first), case.W[first]
            chosen = method_named(method)
            begin = time.perf_counter()
            delete(case.generation, stream, rows, W, chosen)
            seconds = time.perf_counter() - begin
            if repeat >= _WARM_UP:
                samples[method].append(seconds * 1e6)
    return samples


def _own_buffers(stream: Stream) -> Stream:
    """Return the stream with buffers that have room, as the next step of a running worker does.

    Appending twice to one stream would copy its history, which a stream that moves on never does.
    """
    return replace(stream, V=GrowingRows.of(stream.V.array), Q=GrowingRows.of(stream.Q.array))
