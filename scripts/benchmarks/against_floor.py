"""Section ``floor``: the worker next to a program that moves the same bytes and computes nothing.

The two take turns, one run each, on the same machine. Every ratio is that of one pair of runs;
shown are their median, and the lowest and highest. The range of K is 0 to 200, no refresh runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import shape
from benchmarks.sides import SETTLE_SECONDS, Asked, Side, floor_side, log_name, worker_side
from benchmarks.worker import Job
from harness.records import Record, Setting, at_least, at_most, compared, measured
from harness.study import Section, Setup
from lethe.consumers.workers.deletion_worker import BatchLimits
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS

METHODS = ("exact", "pru")
MOST_ROWS = 200
"""Rows that a model loses at most: K of every step lies below."""

SPARE_ROWS = 20
"""Rows of a model beyond those that it loses; one of them warms it up."""


_NOTE = """
The worker next to a program on kafka-python and redis-py alone (`scripts/benchmarks/floor.py`; in
single-node mode on redis-py alone, with streams of its own): the same requests, reads, writes and
messages in number and bytes, and no mathematics, no check and none of our code. The `contract
floor` (`scripts/benchmarks/contract_floor.py`) does the same, and also the engine's step and what
the contract demands of each message, with the same libraries as the worker. d = 1000, K from 0
to 200, no refresh. A backlog is loaded first, and the time runs from the first receipt to the last,
by the log. A ratio is that of two runs in turns: median, and lowest to highest. The many models of
a backlog have 220 rows each, to fit into memory; the last rows compare models of 10,000 rows with
them. `streams` is single-node mode.
"""


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


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Measure on each log."""
    for kafka in setup.logs:
        place = setup.directory / f"floor-{log_name(kafka)}"
        shapes = {
            method: shape.measure(method, plan.d, setup.seed, place / f"shape-{method}")
            for method in {*plan.methods, plan.loop_method}
        }
        for load in plan.loads:
            for method in plan.methods:
                here = place / f"{method}-{load.k}"
                yield from _backlog(plan, load, method, shapes[method], setup.seed, here, kafka)
        loop = shapes[plan.loop_method]
        yield from _closed_loop(plan, loop, setup.seed, place / "loop", kafka)
        yield from _of_n(plan, setup.seed, place / "n", kafka)


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
    with ExitStack() as stack:
        worker = stack.enter_context(
            worker_side(directory / "worker", job, kafka, COMMIT_PARTITIONS)
        )
        sides: list[Side[Any]] = [worker]
        for name in ("floor", "contract floor"):
            here = directory / name.replace(" ", "-")
            floor = floor_side(here, sizes, job, kafka, COMMIT_PARTITIONS, name)
            sides.append(stack.enter_context(floor))
        found: dict[str, list[_Run]] = {side.name: [] for side in sides}
        before = [side.ends.sent_bytes() for side in sides]  # registrations
        for side in sides:
            side.rest()
        for turn in range(plan.runs):
            for side in sides if turn % 2 == 0 else reversed(sides):
                found[side.name].append(_drain(plan, load, side, turn, seed))
        sent = [side.ends.sent_bytes() - begin for side, begin in zip(sides, before, strict=True)]
        counted = worker.finish()
    setting: Setting = {"load": load.name, "log": log_name(kafka), "method": method}
    for name, runs in found.items():
        which = {**setting, "who": name}
        yield measured(which, "requests a second", "1/s", [one.rate for one in runs])
        yield measured(which, "processor time a request", "ms", [one.cpu_ms for one in runs])
    pairs = list(zip(found["worker"], found["floor"], strict=True))
    single, cpu = load.k == 1, "processor time a request"
    for name, runs in found.items():
        if name == "floor":
            continue
        goals = (at_least(load.goals[method]), at_most(2.0)) if name == "worker" else (None, None)
        against = list(zip(runs, found["floor"], strict=True))
        rates = [one.rate / f.rate for one, f in against]
        yield compared(setting, f"requests a second, {name} / floor", rates, goals[0])
        times = [one.cpu_ms / f.cpu_ms for one, f in against]
        yield compared(setting, f"{cpu}, {name} / floor", times, goals[1] if single else None)
    if single:
        median = float(np.median([one.cpu_ms for one in found["worker"]]))
        yield compared(setting, f"{cpu}, ms", [median], at_most(0.3))
    moved = {
        "bytes to the store": [w.store_in / f.store_in for w, f in pairs],
        "bytes from the store": [w.store_out / f.store_out for w, f in pairs],
    }
    if kafka is not None:  # else the log lies in the store, and is counted there
        moved["bytes to the log"] = [sent[0] / sent[1]]
    for name, ratios in moved.items():
        yield compared(setting, f"{name}, worker / floor", ratios)
    trips = at_most(3.0) if kafka else None
    yield compared(setting, "round trips a poll", [counted["round trips"]], trips)
    yield compared(setting, "flushes a poll", [counted["flushes"]], at_most(2.0))
    mean, polls = counted["mean round trips"], int(counted["polls"])
    yield Record(setting, "round trips a poll, mean", "1", mean, polls)


def _drain(plan: Plan, load: Load, side: Side[Any], turn: int, seed: int) -> _Run:
    """Let one side work off a backlog over models that nothing was deleted from yet."""
    first = turn * plan.models
    models = range(first, first + plan.models)
    before = side.ends.answered()
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
    job = _loop_job(plan, plan.n, plan.loop_models, seed)
    with ExitStack() as stack:
        sides: list[Side[Any]] = [
            stack.enter_context(worker_side(directory / "worker", job, kafka, 1)),
            stack.enter_context(floor_side(directory / "floor", sizes, job, kafka, 1)),
        ]
        samples = _take_turns(plan, sides, plan.loop_models)
    setting = _loop_setting(plan, kafka)
    for name, milliseconds in samples.items():
        yield measured({**setting, "who": name}, "end to end", "ms", milliseconds)
    number = len(samples["worker"])
    for percent, most in ((50, 1.5), (99, 2.0)):
        worker, floor = (np.percentile(samples[name], percent) for name in ("worker", "floor"))
        metric, ratio = f"p{percent}, worker / floor", float(worker / floor)
        yield compared(setting, metric, [ratio], at_most(most), samples=number)


def _of_n(plan: Plan, seed: int, directory: Path, kafka: str | None) -> Iterator[Record]:
    """Compare models of few and of many rows: the hot path does not depend on n."""
    sides: list[Side[Any]] = []
    with ExitStack() as stack:
        for n in (plan.n, plan.large_n):
            job = _loop_job(plan, n, plan.large_models + 1, seed)
            side = stack.enter_context(worker_side(directory / str(n), job, kafka, 1))
            side.name = str(n)
            sides.append(side)
        samples = _take_turns(plan, sides, plan.large_models + 1)
    setting = _loop_setting(plan, kafka)
    for name, milliseconds in samples.items():
        yield measured({**setting, "who": f"worker, n={name}"}, "end to end", "ms", milliseconds)
    few, many = (float(np.median(found)) for found in samples.values())
    metric = f"p50, n={plan.large_n} / n={plan.n}"
    yield Record(setting, metric, "1", many / few, len(samples[str(plan.n)]))


def _loop_job(plan: Plan, n: int, models: int, seed: int) -> Job:
    return Job(
        role="deletions", redis_url="", method=plan.loop_method, models=models,
        n=n, d=plan.d, seed=seed, shared=True,
    )  # fmt: skip


def _loop_setting(plan: Plan, kafka: str | None) -> Setting:
    return {
        "load": f"closed loop, k={plan.loop_k}", "log": log_name(kafka), "method": plan.loop_method,
    }  # fmt: skip


def _take_turns(plan: Plan, sides: Sequence[Side[Any]], models: int) -> dict[str, list[float]]:
    """Return milliseconds of each side; the first model only warms up."""
    samples: dict[str, list[float]] = {side.name: [] for side in sides}
    for model in range(models):
        for turn, row in enumerate(range(0, plan.rows, plan.loop_k)):
            for side in sides if turn % 2 == 0 else reversed(sides):
                seconds = side.ask(model, range(row, row + plan.loop_k))
                time.sleep(SETTLE_SECONDS)
                if model:
                    samples[side.name].append(seconds * 1e3)
    return samples


SECTION = Section(
    "floor",
    _NOTE,
    Plan(),
    Plan(
        d=50,
        models=4,
        rows=20,
        runs=2,
        methods=("pru",),
        loads=(Load("4 models, k=1", k=1, records=16, goals=LOADS[0].goals),),  # several polls
        loop_k=2,
        loop_models=3,
        large_n=200,
        large_models=1,
    ),
    run,
    on_kafka=True,
)
