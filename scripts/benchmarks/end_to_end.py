"""Section ``end to end``: request produced to version seen, next to a null pipeline.

Closed loop: one request at a time, in turns of the two pipelines (`benchmarks.null_worker`).
Each model takes at most as many rows as one generation takes before it is folded away, so that
K is what a worker meets in use.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pipeline import Pipeline, pipeline
from benchmarks.records import Record, Setting, derived, measured
from benchmarks.synthetic import model_id, row_id
from benchmarks.worker import Job
from lethe.engine.fit.objective import Kind

SECTION = "end to end"
ROLES = ("deletions", "null")
_SETTLE_SECONDS = 0.02  # trimming, erasing and advancing end before the other pipeline begins


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the models and number of requests; the first model only warms up."""

    n: int = 1000
    d: int = 1000
    k: int = 10
    models: int = 9
    requests: int = 25
    kinds: tuple[Kind, ...] = (Kind.LINEAR, Kind.LOGISTIC)


QUICK = Plan(n=100, d=50, k=2, models=2, requests=10, kinds=(Kind.LINEAR,))


def run(plan: Plan, seed: int, directory: Path, kafka: str | None) -> Iterable[Record]:
    """Measure on one log."""
    log = "streams" if kafka is None else "kafka"
    for kind in plan.kinds:
        with ExitStack() as stack:
            pipelines = [
                stack.enter_context(
                    pipeline(
                        directory / f"{log}-{kind}-{role}",
                        Job(
                            role=role, redis_url="", kind=kind,
                            models=plan.models, n=plan.n, d=plan.d, seed=seed,
                        ),
                        kafka,
                    )
                )
                for role in ROLES
            ]  # fmt: skip
            samples = take_turns(plan, seed, pipelines)
        setting: Setting = {"log": log, "kind": kind.value, "d": plan.d, "k": plan.k}
        for role in ROLES:
            which = {"pipeline": "null" if role == "null" else "lethe", **setting}
            yield measured(SECTION, which, "end to end", "ms", samples[role])
        full, null = (np.array(samples[role]) for role in ROLES)
        n = len(full)
        ratio = float(np.median(full) / np.median(null))
        yield derived(SECTION, setting, "lethe p50 / null p50", "1", ratio, n)
        yield measured(SECTION, setting, "lethe - null, pairwise", "ms", list(full - null))


def take_turns(plan: Plan, seed: int, pipelines: list[Pipeline]) -> dict[str, list[float]]:
    """Return milliseconds; who goes first alternates."""
    samples: dict[str, list[float]] = {one.name: [] for one in pipelines}
    rng = np.random.default_rng(seed)
    for model in range(plan.models):
        order = rng.permutation(plan.n)
        for turn in range(plan.requests):
            rows = [row_id(int(i)) for i in order[turn * plan.k : (turn + 1) * plan.k]]
            for one in pipelines if turn % 2 == 0 else reversed(pipelines):
                seconds = one.ask(model_id(model), rows)
                time.sleep(_SETTLE_SECONDS)
                if model > 0:
                    samples[one.name].append(seconds * 1e3)
    return samples
