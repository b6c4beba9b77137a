"""Section ``during rebuild``: what a deletion takes while the model itself is rebuilt.

Single-node mode; the refresh worker is a process of its own. Deletions of one row come at a fixed
pace, each waited for. Calm and rebuild take turns; a rebuild lasts from its order until its
version is seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pipeline import Pipeline, Process, pipeline
from benchmarks.records import Record, Setting, measured
from benchmarks.synthetic import model_id, row_id
from benchmarks.worker import Job
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.log.base import Message
from lethe.engine.refresh.kind import RefreshKind

SECTION = "during rebuild"
_LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the model, pace of the deletions, and how often the turns repeat."""

    n: int = 20_000
    d: int = 1000
    pace_seconds: float = 0.03
    calm_seconds: float = 6.0
    rounds: int = 3


QUICK = Plan(n=500, d=50, pace_seconds=0.01, calm_seconds=0.3, rounds=1)


def run(plan: Plan, seed: int, directory: Path) -> Iterable[Record]:
    """Measure in turns."""
    samples: dict[str, list[float]] = {"calm": [], "rebuild": []}
    lengths: list[float] = []
    order = iter(np.random.default_rng(seed).permutation(plan.n).tolist())
    with ExitStack() as stack:
        job = Job(role="deletions", redis_url="", models=1, n=plan.n, d=plan.d, seed=seed)
        one = stack.enter_context(pipeline(directory, job, None))
        log = stack.enter_context((directory / "refresh.log").open("w+"))
        refresh = Process(Job(role="refresh", redis_url=one.redis_url).model_dump_json(), log)
        stack.callback(refresh.close)
        refresh.wait_ready()
        for turn in range(plan.rounds):
            end = time.monotonic() + plan.calm_seconds
            samples["calm"] += _probe(
                plan,
                one,
                order,
                lambda: time.monotonic() < end,  # noqa: B023
            )
            begin = time.monotonic()
            _order_rebuild(one, turn)
            samples["rebuild"] += _probe(
                plan,
                one,
                order,
                lambda: not _rebuilt(one, turn, begin),  # noqa: B023
            )
            lengths.append(time.monotonic() - begin)
    setting: Setting = {"n": plan.n, "d": plan.d, "k": 1}
    for phase, milliseconds in samples.items():
        yield measured(SECTION, {"phase": phase, **setting}, "end to end", "ms", milliseconds)
    yield measured(SECTION, setting, "rebuild, order to version", "s", lengths)


def _probe(
    plan: Plan, one: Pipeline, order: Iterable[int], going: Callable[[], bool]
) -> list[float]:
    """Delete one row at a time while ``going``; return milliseconds."""
    samples = []
    for row in order:
        begin = time.monotonic()
        samples.append(one.ask(model_id(0), [row_id(row)]) * 1e3)
        if not going():
            break
        time.sleep(max(0.0, begin + plan.pace_seconds - time.monotonic()))
    return samples


def _order_rebuild(one: Pipeline, generation: int) -> None:
    newest = one.subscriber.newest[model_id(0)]
    job = RefreshRequested(
        job_id=f"bench-{generation}",
        model_id=model_id(0),
        generation=newest.generation,
        version=newest.version,
        reason="ordered",
        size=RefreshKind.REBUILD,
    )
    one.producer.publish([Message(topics.REFRESH_JOBS, job.model_id.encode(), job.value())])


def _rebuilt(one: Pipeline, generation: int, begin: float) -> bool:
    if time.monotonic() - begin > _LIMIT_SECONDS:
        raise TimeoutError(f"no rebuild in {_LIMIT_SECONDS:g} s")
    return one.subscriber.newest[model_id(0)].generation > generation
