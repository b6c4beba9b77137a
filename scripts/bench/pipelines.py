"""Requests to versions: sections ``end to end``, ``during rebuild`` and ``throughput``.

A version counts once a subscriber in another process has read and checked it. Each model takes at
most as many rows as one generation takes before it is folded away, so that K is what a worker meets
in use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from bench.side import Asked, Process, Side, closed_loop, log_name, worker_side
from bench.synthetic import model_id
from bench.worker import Job
from harness.records import Record, Setting, measured
from harness.study import Section, Setup
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RefreshRequested
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.size import RefreshSize

_LIMIT_SECONDS = 300.0  # of a rebuild


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Size of the models and number of requests; the first model only warms up."""

    n: int = 1000
    d: int = 1000
    k: int = 10
    models: int = 9
    requests: int = 25
    kinds: Sequence[Kind] = (Kind.LINEAR, Kind.LOGISTIC)


def end_to_end(plan: LoopPlan, setup: Setup) -> Iterator[Record]:
    """Send one request of k rows at a time: request produced to version read and checked."""
    for kafka in setup.logs:
        for kind in plan.kinds:
            log = log_name(kafka)
            setting: Setting = {"log": log, "kind": kind.value, "d": plan.d, "k": plan.k}
            job = Job(
                role="deletions", redis_url="",
                kind=kind, models=plan.models, n=plan.n, d=plan.d, seed=setup.seed,
            )  # fmt: skip
            place = setup.directory / f"end-to-end-{log}-{kind.value}"
            with worker_side(place, job, kafka) as side:
                samples = closed_loop(
                    [side], setup.seed,
                    n=plan.n, k=plan.k, models=plan.models, requests=plan.requests,
                )  # fmt: skip
            yield measured(setting, "end to end", "ms", samples[side.name])


# -- while the model is rebuilt ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """Size of the model, pace of the deletions, and how often the turns repeat."""

    n: int = 20_000
    d: int = 1000
    pace_seconds: float = 0.03
    calm_seconds: float = 6.0
    rounds: int = 3


def during_rebuild(plan: RebuildPlan, setup: Setup) -> Iterator[Record]:
    """Delete at a fixed pace in single-node mode, each deletion waited for.

    The refresh worker, in a process of its own, rebuilds the same model, and does not, in turns.

    A rebuild lasts from its order until its version is seen.
    """
    samples: dict[str, list[float]] = {"calm": [], "rebuild": []}
    lengths: list[float] = []
    place = setup.directory / "rebuild"
    rows = iter(np.random.default_rng(setup.seed).permutation(plan.n).tolist())
    with ExitStack() as stack:
        job = Job(role="deletions", redis_url="", models=1, n=plan.n, d=plan.d, seed=setup.seed)
        side = stack.enter_context(worker_side(place, job, None))
        log = stack.enter_context((place / "refresh.log").open("w+"))
        refresh = Job(role="refresh", redis_url=side.job.redis_url)
        worker = Process(refresh, log, partitions=1)
        stack.callback(worker.close)
        worker.wait_ready()
        for turn in range(plan.rounds):
            end = time.monotonic() + plan.calm_seconds
            samples["calm"] += _probe(plan, side, rows, lambda: time.monotonic() < end)  # noqa: B023
            begin = time.monotonic()
            _order_rebuild(side, turn)
            samples["rebuild"] += _probe(
                plan,
                side,
                rows,
                lambda: not _rebuilt(side, turn, begin),  # noqa: B023
            )
            lengths.append(time.monotonic() - begin)
    setting: Setting = {"n": plan.n, "d": plan.d, "k": 1}
    for phase, milliseconds in samples.items():
        yield measured({"phase": phase, **setting}, "end to end", "ms", milliseconds)
    yield measured(setting, "rebuild, order to version", "s", lengths)


def _probe(
    plan: RebuildPlan, side: Side, rows: Iterator[int], going: Callable[[], bool]
) -> list[float]:
    """Delete one row at a time while ``going``; return milliseconds."""
    samples = []
    for row in rows:
        begin = time.monotonic()
        samples.append(side.ask(0, [row]) * 1e3)
        if not going():
            break
        time.sleep(max(0.0, begin + plan.pace_seconds - time.monotonic()))
    return samples


def _order_rebuild(side: Side, generation: int) -> None:
    newest = side.ends.newest[model_id(0)]
    job = RefreshRequested(
        job_id=f"bench-{generation}",
        model_id=model_id(0),
        generation=newest.generation,
        version=newest.version,
        reason="ordered",
        size=RefreshSize.REBUILD,
    )
    side.ends.publish(topics.REFRESH_JOBS, [(job.model_id.encode(), job.value())])


def _rebuilt(side: Side, generation: int, begin: float) -> bool:
    if time.monotonic() - begin > _LIMIT_SECONDS:
        raise TimeoutError(f"no rebuild in {_LIMIT_SECONDS:g} s")
    return side.ends.newest[model_id(0)].generation > generation


# -- requests that wait -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How many models share the requests evenly; one generation takes ``rows`` of each."""

    n: int = 400
    d: int = 1000
    models: int = 20
    rows: int = 250
    rounds: int = 2


def throughput(plan: LoadPlan, setup: Setup) -> Iterator[Record]:
    """Let the worker work off single-row requests; each round has models of its own.

    It pauses before a poll while the requests are sent; the time runs from the word to go on until
    the last version is seen.
    """
    job = Job(
        role="deletions", redis_url="", models=plan.models * plan.rounds,
        n=plan.n, d=plan.d, seed=setup.seed,
    )  # fmt: skip
    number = plan.models * plan.rows
    for kafka in setup.logs:
        log = log_name(kafka)
        rates, sizes = [], []
        with worker_side(setup.directory / f"{log}-throughput", job, kafka) as side:
            for turn in range(plan.rounds):
                first = turn * plan.models
                asked = [
                    Asked(first + model, [row])
                    for model in range(plan.models)
                    for row in range(plan.rows)
                ]
                order = np.random.default_rng((setup.seed, turn)).permutation(number)
                seconds, batches = _drain(side, [asked[i] for i in order])
                rates.append(number / seconds)
                sizes += batches
        setting: Setting = {"log": log, "d": plan.d, "models": plan.models, "requests": number}
        yield measured(setting, "requests per second", "1/s", rates)
        yield measured(setting, "requests in a version", "1", sizes)
        mean = float(np.mean(sizes))
        yield Record(setting, "mean requests in a version", "1", mean, len(sizes))


def _drain(side: Side, asked: Sequence[Asked]) -> tuple[float, list[float]]:
    """Return the seconds, and how many requests each version had."""
    side.pause()
    side.ends.send(side.requests(asked))
    begin = time.perf_counter()
    side.work()
    left, batches = len(asked), []
    while left > 0:
        for version in side.ends.next_versions():
            left -= len(version.request_ids)
            batches.append(float(len(version.request_ids)))
    return time.perf_counter() - begin, batches


END_TO_END = Section(
    "end to end",
    LoopPlan(),
    LoopPlan(n=100, d=50, k=2, models=2, requests=10, kinds=(Kind.LINEAR,)),
    end_to_end,
    on_kafka=True,
)
DURING_REBUILD = Section(
    "during rebuild",
    RebuildPlan(),
    RebuildPlan(n=500, d=50, pace_seconds=0.01, calm_seconds=0.3, rounds=1),
    during_rebuild,
)
THROUGHPUT = Section(
    "throughput",
    LoadPlan(),
    LoadPlan(n=100, d=50, models=4, rows=25, rounds=1),
    throughput,
    on_kafka=True,
)
