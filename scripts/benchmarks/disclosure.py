"""Section ``disclosure``: what it costs to keep what versions disclose of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.synthetic import local_worker, model_id, register_model
from harness.records import Record, Setting, measured
from harness.study import Section, Setup
from lethe.engine.fit.objective import Kind

_NOTE = """
One request of k rows at a time to two linear models of one data set, in turns, by the method exact:
one keeps what its versions disclose (`lethe register --disclosure`). Processor time of one worker
in this process (log in memory, Valkey beside it), from poll to publication.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; the first ``warm`` requests only warm up."""

    n: int = 3000
    d: int = 1000
    k: int = 1
    requests: int = 200
    warm: int = 10


def run(plans: Sequence[Plan], setup: Setup) -> Iterator[Record]:
    """Measure each plan with models of its own."""
    for plan in plans:
        with local_worker(setup.directory / f"disclosure-{plan.k}") as local:
            for number, disclosure in enumerate((False, True)):
                register_model(
                    local.registrar,
                    model_id(number),
                    Kind.LINEAR,
                    plan.n,
                    plan.d,
                    setup.seed,
                    "exact",
                    disclosure=disclosure,
                )
            taken = local.in_turns(2, plan.warm + plan.requests, plan.k)
        setting: Setting = {"n": plan.n, "d": plan.d, "k": plan.k}
        for name, times in zip(("off", "on"), taken, strict=True):
            del times[: plan.warm]
            own: Setting = {"disclosure": name, **setting}
            yield measured(own, "processor time of a request", "us", times)
        ratios = [on / off for off, on in zip(*taken, strict=True)]
        yield measured(setting, "processor time, on / off", "1", ratios)


SECTION = Section(
    "disclosure",
    _NOTE,
    (Plan(), Plan(k=10, requests=100)),
    (Plan(n=100, d=20, requests=5, warm=1),),
    run,
)
