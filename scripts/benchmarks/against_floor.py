"""Section ``floor``: the worker next to a program that moves the same bytes and computes nothing.

The two take turns, one run each, on the same machine. Every ratio is that of one pair of runs;
shown are their median, and the lowest and highest. The range of K is 0 to 200, no refresh runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import shape
from benchmarks.records import Record, Setting, compared, derived, measured
from benchmarks.sides import Asked, Side, floor_side, worker_side
from benchmarks.worker import Job
from lethe.consumers.workers.deletion_worker import BatchLimits
from lethe.engine.store.keys import COMMIT_PARTITIONS

SECTION = "floor"
METHODS = ("exact", "pru")
MOST_ROWS = 200
"""Rows that a model loses at most: K of every step lies below."""

SPARE_ROWS = 20
"""Rows of a model beyond those that it loses; one of them warms it up."""


@dataclass(frozen=True, slots=True)
class Load:
    """A backlog: each model loses ``rows`` rows, ``k`` a request, ``records`` requests a poll.

    ``goals`` are the least ratios of requests a second, by method.
    """

    name: str
    k: int
    records: int
    goals: Mapping[str, float]


LOADS = (
    Load(
        "20 models, k=1",
        k=1,
        records=BatchLimits().records,
        goals={"exact": 0.70, "pru": 0.60},
    ),
    Load(
        "1 model a poll, k=100",
        k=100,
        records=1,
        goals={"exact": 0.60, "pru": 0.50},
    ),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    d: int = 1000
    models: int = 20
    rows: int = MOST_ROWS
    runs: int = 7
    methods: Sequence[str] = METHODS
    loads: Sequence[Load] = LOADS
    loop_k: int = 10
    loop_models: int = 251
    loop_method: str = "pru"
    large_n: int = 10_000
    large_models: int = 2

    @property
    def n(self) -> int:
        """Rows of a model."""
        return self.rows + SPARE_ROWS


_FEW = Load("4 models, k=1", 1, BatchLimits().records, LOADS[0].goals)
QUICK = Plan(
    d=50, models=4, rows=20, runs=2, methods=("pru",), loads=(_FEW,),
    loop_k=2, loop_models=3, large_n=200, large_models=1,
)  # fmt: skip


def run(plan: Plan, seed: int, directory: Path, kafka: str | None) -> Iterable[Record]:
    """Measure on one log."""
    place = directory / f"floor-{'streams' if kafka is None else 'kafka'}"
    shapes = {
        method: shape.measure(method, plan.d, seed, place / f"shape-{method}")
        for method in {*plan.methods, plan.loop_method}
    }
    for load in plan.loads:
        for method in plan.methods:
            here = place / f"{method}-{load.k}"
            yield from _backlog(plan, load, method, shapes[method], seed, here, kafka)
    yield from _closed_loop(plan, shapes[plan.loop_method], seed, place / "loop", kafka)
    yield from _of_n(plan, seed, place / "n", kafka)


# -- requests that wait -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run of one side came to: a second and a request."""

    rate: float
    cpu_ms: float
    store_in: float
    store_out: float


def _backlog(
    plan: Plan,
    load: Load,
    method: str,
    sizes: shape.Shape,
    seed: int,
    directory: Path,
    kafka: str | None,
) -> Iterator[Record]:
    job = Job(
        role="deletions", redis_url="", method=method, models=plan.models * plan.runs,
        n=plan.n, d=plan.d, seed=seed, shared=True, records=load.records,
    )  # fmt: skip
    found: dict[str, list[_Run]] = {"worker": [], "floor": []}
    with ExitStack() as stack:
        worker = stack.enter_context(
            worker_side(directory / "worker", job, kafka, COMMIT_PARTITIONS)
        )
        floor = stack.enter_context(
            floor_side(directory / "floor", sizes, job, kafka, COMMIT_PARTITIONS)
        )
        sides = [worker, floor]
        before = [side.ends.sent_bytes() for side in sides]  # registrations
        for side in sides:
            side.rest()
        for turn in range(plan.runs):
            for side in sides if turn % 2 == 0 else reversed(sides):
                found[side.name].append(_drain(plan, load, side, turn, seed))
        sent = [side.ends.sent_bytes() - begin for side, begin in zip(sides, before, strict=True)]
        counted = worker.finish()
    setting: Setting = {"load": load.name, "log": _log(kafka), "method": method}
    for name, runs in found.items():
        which = {**setting, "who": name}
        yield measured(SECTION, which, "requests a second", "1/s", [one.rate for one in runs])
        yield measured(
            SECTION, which, "processor time a request", "ms", [one.cpu_ms for one in runs]
        )
    pairs = list(zip(found["worker"], found["floor"], strict=True))
    yield compared(
        SECTION, setting, "requests a second, worker / floor",
        [w.rate / f.rate for w, f in pairs], at_least=load.goals[method],
    )  # fmt: skip
    single = load.k == 1
    yield compared(
        SECTION, setting, "processor time a request, worker / floor",
        [w.cpu_ms / f.cpu_ms for w, f in pairs], at_most=2.0 if single else None,
    )  # fmt: skip
    if single:
        median = float(np.median([one.cpu_ms for one in found["worker"]]))
        yield compared(SECTION, setting, "processor time a request, ms", [median], at_most=0.3)
    moved = {
        "bytes to the store": [w.store_in / f.store_in for w, f in pairs],
        "bytes from the store": [w.store_out / f.store_out for w, f in pairs],
    }
    if kafka is not None:  # else the log lies in the store, and is counted there
        moved["bytes to the log"] = [sent[0] / sent[1]]
    for name, ratios in moved.items():
        yield compared(SECTION, setting, f"{name}, worker / floor", ratios)
    for name, most in (("round trips", 3.0 if kafka else None), ("flushes", 2.0)):
        yield compared(SECTION, setting, f"{name} a poll", [counted[name]], at_most=most)
    yield derived(
        SECTION, setting, "round trips a poll, mean", "1", counted["mean round trips"],
        int(counted["polls"]),
    )  # fmt: skip


def _drain(plan: Plan, load: Load, side: Side, turn: int, seed: int) -> _Run:
    """Let one side work off a backlog over models that nothing was deleted from yet."""
    first = turn * plan.models
    models = range(first, first + plan.models)
    before = side.answered
    side.work()
    side.ends.send(side.requests([Asked(model, [plan.n - 1]) for model in models]))
    side.wait_answers(before + plan.models)
    side.ends.answers()
    side.pause()
    asked = [
        Asked(model, range(row, row + load.k))
        for row in range(0, plan.rows, load.k)
        for model in models
    ]
    order = np.random.default_rng((seed, turn)).permutation(len(asked))
    side.ends.send(side.requests([asked[i] for i in order]))
    seconds, (read, sent) = side.process.seconds, side.traffic()
    side.work()
    side.wait_answers(before + plan.models + len(asked))
    used = side.process.seconds - seconds
    read_after, sent_after = side.traffic()
    side.rest()
    answers = side.ends.answers()
    number = len(asked)
    if len(answers.times) != number or (side.name == "worker" and answers.applied != number):
        raise AssertionError(f"{answers.applied} of {number} requests were applied")
    lasted = max(answers.times) - min(answers.times)
    return _Run(
        number / lasted, used / number * 1e3, (read_after - read) / number,
        (sent_after - sent) / number,
    )  # fmt: skip


# -- one request at a time --------------------------------------------------------------------


def _closed_loop(
    plan: Plan, sizes: shape.Shape, seed: int, directory: Path, kafka: str | None
) -> Iterator[Record]:
    job = Job(
        role="deletions", redis_url="", method=plan.loop_method, models=plan.loop_models,
        n=plan.n, d=plan.d, seed=seed, shared=True,
    )  # fmt: skip
    with ExitStack() as stack:
        sides = [
            stack.enter_context(worker_side(directory / "worker", job, kafka, 1)),
            stack.enter_context(floor_side(directory / "floor", sizes, job, kafka, 1)),
        ]
        samples = _take_turns(plan, sides, plan.loop_models)
    setting: Setting = {
        "load": f"closed loop, k={plan.loop_k}", "log": _log(kafka), "method": plan.loop_method,
    }  # fmt: skip
    for name, milliseconds in samples.items():
        yield measured(SECTION, {**setting, "who": name}, "end to end", "ms", milliseconds)
    for percent, most in ((50, 1.5), (99, 2.0)):
        of = {name: float(np.percentile(found, percent)) for name, found in samples.items()}
        yield compared(
            SECTION, setting, f"p{percent}, worker / floor", [of["worker"] / of["floor"]],
            at_most=most, n=len(samples["worker"]),
        )  # fmt: skip


def _take_turns(plan: Plan, sides: Sequence[Side], models: int) -> dict[str, list[float]]:
    """Return milliseconds of each side; the first model only warms up."""
    samples: dict[str, list[float]] = {side.name: [] for side in sides}
    for model in range(models):
        for turn, row in enumerate(range(0, plan.rows, plan.loop_k)):
            asked = Asked(model, range(row, row + plan.loop_k))
            for side in sides if turn % 2 == 0 else reversed(sides):
                seconds = side.ask(asked)
                side.settle()
                if model:
                    samples[side.name].append(seconds * 1e3)
    return samples


def _of_n(plan: Plan, seed: int, directory: Path, kafka: str | None) -> Iterator[Record]:
    """Compare models of few and of many rows: the hot path does not depend on n."""
    with ExitStack() as stack:
        sides = []
        for n in (plan.n, plan.large_n):
            job = Job(
                role="deletions", redis_url="", method=plan.loop_method,
                models=plan.large_models + 1, n=n, d=plan.d, seed=seed, shared=True,
            )  # fmt: skip
            side = stack.enter_context(worker_side(directory / str(n), job, kafka, 1))
            side.name = str(n)
            sides.append(side)
        samples = _take_turns(plan, sides, plan.large_models + 1)
    setting: Setting = {
        "load": f"closed loop, k={plan.loop_k}", "log": _log(kafka), "method": plan.loop_method,
    }  # fmt: skip
    for name, milliseconds in samples.items():
        yield measured(
            SECTION, {**setting, "who": f"worker, n={name}"}, "end to end", "ms", milliseconds
        )
    few, many = (float(np.median(found)) for found in samples.values())
    yield derived(
        SECTION, setting, f"p50, n={plan.large_n} / n={plan.n}", "1", many / few,
        len(samples[str(plan.n)]),
    )  # fmt: skip


def _log(kafka: str | None) -> str:
    return "streams" if kafka is None else "kafka"
