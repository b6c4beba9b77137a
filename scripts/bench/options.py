"""What options of a linear model cost: sections ``disclosure`` and ``exact sums``.

To keep what versions disclose of each row; and sums with all their digits. One request at a time to
two models of one data set, in turns, by exact; processor time of one worker in this process (log in
memory, Valkey beside it), from poll to publication.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.synthetic import local_worker, model_id, register_model
from harness.records import Record, Setting, measured
from harness.study import Section, Setup
from lethe.engine.fit.objective import Kind


@dataclass(frozen=True, slots=True)
class Plan:
    """An option and sizes; the first ``warm`` requests only warm up."""

    option: str
    n: int = 3000
    d: int = 1000
    k: int = 1
    requests: int = 200
    warm: int = 10


def run(plans: Sequence[Plan], setup: Setup) -> Iterator[Record]:
    """Measure each plan with models of its own."""
    for plan in plans:
        with local_worker(setup.directory / f"{plan.option}-{plan.d}-{plan.k}") as local:
            for number, on in enumerate((False, True)):
                register_model(
                    local.registrar,
                    model_id(number),
                    Kind.LINEAR,
                    plan.n,
                    plan.d,
                    setup.seed,
                    "exact",
                    **{plan.option: on},
                )
            taken = local.in_turns(2, plan.warm + plan.requests, plan.k)
        setting: Setting = {"n": plan.n, "d": plan.d, "k": plan.k}
        for name, times in zip(("off", "on"), taken, strict=True):
            del times[: plan.warm]
            own: Setting = {plan.option: name, **setting}
            yield measured(own, "processor time of a request", "us", times)
        ratios = [on / off for off, on in zip(*taken, strict=True)]
        yield measured(setting, "processor time, on / off", "1", ratios)


DISCLOSURE = Section(
    "disclosure",
    (Plan("disclosure"), Plan("disclosure", k=10, requests=100)),
    (Plan("disclosure", n=100, d=20, requests=5, warm=1),),
    run,
)

EXACT_SUMS = Section(
    "exact sums",
    (
        Plan("exact_sums", d=20),
        Plan("exact_sums", d=100),
        Plan("exact_sums", d=200),
        Plan("exact_sums", d=100, k=10, requests=100),
    ),
    (Plan("exact_sums", n=100, d=20, requests=5, warm=1),),
    run,
)
