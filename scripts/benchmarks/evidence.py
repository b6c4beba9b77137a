"""Section ``evidence``: what signatures, the receipt log and commitments cost end to end.

Closed loop, one request at a time, in turns of two pipelines: the worker as it is, with a key, and
the same without evidence (`benchmarks.plain_worker`). The subscriber of the first checks the
signature of every version.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.end_to_end import Plan, take_turns
from benchmarks.pipeline import pipeline
from benchmarks.records import Record, Setting, derived, measured
from benchmarks.worker import Job
from lethe.consumers.contract.signatures import TrustedKeys, new_key_file
from lethe.engine.fit.objective import Kind

SECTION = "evidence"
ROLES = ("evidence", "plain")

PLANS = (
    Plan(n=1000, d=1000, k=10, models=9, requests=25),
    Plan(n=1000, d=100, k=1, models=9, requests=25, kinds=(Kind.LINEAR,)),
)
QUICK = (Plan(n=100, d=50, k=2, models=2, requests=10, kinds=(Kind.LINEAR,)),)


def run(plans: Iterable[Plan], seed: int, directory: Path, kafka: str | None) -> Iterable[Record]:
    """Measure on one log."""
    log = "streams" if kafka is None else "kafka"
    for plan in plans:
        for kind in plan.kinds:
            place = directory / f"{log}-evidence-{kind}-{plan.d}"
            yield from _measure(plan, kind, seed, place, kafka)


def _measure(
    plan: Plan, kind: Kind, seed: int, directory: Path, kafka: str | None
) -> Iterable[Record]:
    directory.mkdir(parents=True)
    key = new_key_file(directory / "signing.pem")
    job = Job(role="", redis_url="", kind=kind, models=plan.models, n=plan.n, d=plan.d, seed=seed)
    with ExitStack() as stack:
        pipelines = []
        for role in ROLES:
            signed = {"signing_key": str(directory / "signing.pem")} if role == "evidence" else {}
            one = stack.enter_context(
                pipeline(directory / role, job.model_copy(update={"role": role, **signed}), kafka)
            )
            if signed:
                one.subscriber.trusted = TrustedKeys.of([key.public])
            pipelines.append(one)
        samples = take_turns(plan, seed, pipelines)
    log = "streams" if kafka is None else "kafka"
    setting: Setting = {"log": log, "kind": kind.value, "d": plan.d, "k": plan.k}
    for role in ROLES:
        which = {"pipeline": role, **setting}
        yield measured(SECTION, which, "end to end", "ms", samples[role])
    full, plain = (np.array(samples[role]) for role in ROLES)
    ratio = float(np.median(full) / np.median(plain))
    yield derived(SECTION, setting, "evidence p50 / plain p50", "1", ratio, len(full))
    yield measured(SECTION, setting, "evidence - plain, pairwise", "ms", list(full - plain))
