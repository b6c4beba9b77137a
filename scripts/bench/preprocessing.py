"""Section ``preprocessing``: a request to a model with preprocessing beside one to a bare model.

Of each pair both have had the same deletions, so that K is the same. End to end: two workers in
processes of their own. Processor time: one worker in this process (log in memory, Valkey beside
it), from poll to publication.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from bench.mixtures import Mixture, register_mixture
from bench.side import closed_loop, log_name, worker_side
from bench.synthetic import local_worker, model_id
from bench.worker import Job
from harness.records import Record, Setting, compared, measured
from harness.study import Section, Setup

_BARE = Mixture(1000, bare=True)
_MIXTURES = (Mixture(1000), Mixture(900, 100), Mixture(800, 190, 10))

_LARGEST = 3.0  # times a bare model's request, end to end: docs/preprocessing.md


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; the first model and, in one process, the first ``warm`` requests only warm up."""

    n: int = 3000
    k: int = 10
    requests: int = 20
    warm: int = 3
    models: int = 4
    bare: Mixture = _BARE
    mixtures: tuple[Mixture, ...] = _MIXTURES

    def setting(self, mixture: Mixture) -> Setting:
        """Return the setting of a record."""
        return {"preprocessing": str(mixture), "n": self.n, "d": self.bare.plain, "k": self.k}


def run(plan: Plan, setup: Setup) -> Iterator[Record]:
    """Measure from end to end on each log, and then the worker alone."""
    for kafka in setup.logs:
        for mixture in plan.mixtures:
            yield from _end_to_end(plan, setup, mixture, kafka)
    yield from _processor_time(plan, setup)


def _end_to_end(plan: Plan, setup: Setup, mixture: Mixture, kafka: str | None) -> Iterator[Record]:
    setting: Setting = {"log": log_name(kafka), **plan.setting(mixture)}
    place = setup.directory / "-".join(["preprocessing", *map(str, setting.values())])
    with ExitStack() as stack:
        sides = []
        for one in (mixture, plan.bare):
            job = Job(
                role="deletions", redis_url="",
                mixture=one, models=plan.models, n=plan.n, seed=setup.seed,
            )  # fmt: skip
            side = worker_side(place / str(one), job, kafka, name=str(one))
            sides.append(stack.enter_context(side))
        samples = closed_loop(
            sides, setup.seed, n=plan.n, k=plan.k, models=plan.models, requests=plan.requests
        )
    for name, milliseconds in samples.items():
        yield measured({**setting, "preprocessing": name}, "end to end", "ms", milliseconds)
    taken, bare = (np.array(milliseconds) for milliseconds in samples.values())
    middle = float(np.median(taken) / np.median(bare))
    metric = "p50 of a bare model's"
    yield compared(setting, metric, [middle], _LARGEST, samples=len(taken))


def _processor_time(plan: Plan, setup: Setup) -> Iterator[Record]:
    rng = np.random.default_rng(setup.seed)
    models = (plan.bare, *plan.mixtures)
    with local_worker(setup.directory / "preprocessing") as local:
        for number, mixture in enumerate(models):
            register_mixture(local.registrar, model_id(number), mixture, plan.n, rng)
        taken = local.in_turns(len(models), plan.warm + plan.requests, plan.k)
    for mixture, times in zip(models, taken, strict=True):
        del times[: plan.warm]
        yield measured(plan.setting(mixture), "processor time of a request", "us", times)
    for mixture, times in zip(plan.mixtures, taken[1:], strict=True):
        ratios = [with_ / without for with_, without in zip(times, taken[0], strict=True)]
        yield measured(plan.setting(mixture), "processor time, of a bare model's", "1", ratios)


SECTION = Section(
    "preprocessing",
    Plan(),
    Plan(
        n=100,
        k=2,
        requests=3,
        warm=1,
        models=2,
        bare=Mixture(20, bare=True),
        mixtures=(Mixture(20), Mixture(15, 3, 2)),
    ),
    run,
    on_kafka=True,
)
