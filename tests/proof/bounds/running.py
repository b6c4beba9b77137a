"""Many streams in several processes: the same records for the same seeds, whatever the machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from tests.proof.bounds import families, generalised, hard_labels, held_out, people
from tests.proof.bounds.case import Families
from tests.proof.bounds.states import Record, Stream, run_stream

TUNING = "tuning"
HELD_OUT = "held out"
MILD = "mild"

SETS: dict[tuple[str, str], Families] = {
    ("linear", TUNING): families.HOSTILE,
    ("linear", HELD_OUT): held_out.LINEAR,
    ("linear", MILD): families.MILD,
    ("certificates", TUNING): hard_labels.HARD,
    ("certificates", HELD_OUT): held_out.LABELS,
    ("estimates", TUNING): hard_labels.HARD,
    ("estimates", HELD_OUT): held_out.LABELS,
    ("poisson", TUNING): generalised.COUNTS,
    ("softmax", TUNING): generalised.CLASSES,
    ("changes", TUNING): families.HOSTILE,
    ("changes", HELD_OUT): held_out.LINEAR,
    ("changes", MILD): families.MILD,
    ("changed labels", TUNING): hard_labels.HARD,
    ("changed labels", HELD_OUT): held_out.LABELS,
    ("changed counts", TUNING): generalised.COUNTS,
    ("changed classes", TUNING): generalised.CLASSES,
    ("slips", TUNING): people.TABLES,
    ("slips", HELD_OUT): people.OTHER_TABLES,
    ("labelled slips", TUNING): people.LABELLED,
    ("labelled slips", HELD_OUT): people.OTHER_LABELLED,
}
"""Families by plan and set."""

_CERTIFIED = (
    "certificates", "poisson", "softmax", "changed labels", "changed counts", "changed classes",
    "labelled slips",
)  # fmt: skip

_APART = 5_000_000  # the seeds of what is held out begin here
_CHUNK = 10


@dataclass(frozen=True, slots=True)
class Job:
    """Some seeds of one family."""

    plan: str
    kept_in: str
    family: str
    seeds: range


def counted(plan: str, record: Record) -> bool:
    """Return whether a record is one of the states that the plan is to reach in number."""
    if plan in _CERTIFIED:
        return record.kind == "certificate"
    if record.stage != "final":
        return False
    return plan == "estimates" or record.bound is not None


def run_job(job: Job) -> Stream:
    """Run one job in this process."""
    draw = SETS[job.plan, job.kept_in].named[job.family]
    total = Stream()
    with threadpool_limits(1):
        for seed in job.seeds:
            done = run_stream(job.plan, job.family, draw, seed)
            total.records += done.records
            total.refusals += done.refusals
            total.undecided += done.undecided
            total.escaped += [f"{job.family}, seed {seed}: {what}" for what in done.escaped]
    return total


def run_set(
    pool: ProcessPoolExecutor,
    plan: str,
    kept_in: str,
    *,
    first: int = 0,
    seeds: int | None = None,
    states: int = 0,
) -> dict[str, Stream]:
    """Return what each family of a set comes to.

    ``seeds`` of each family; or, where that is None, as many rounds as make ``states`` states. The
    seeds begin at ``first``, those of what is held out far above.
    """
    found = {name: Stream() for name in SETS[plan, kept_in].named}
    begin, reached, place = time.perf_counter(), 0, 0
    while reached < states if seeds is None else place < seeds:
        until = place + _CHUNK if seeds is None else min(place + _CHUNK, seeds)
        offset = first + (_APART if kept_in == HELD_OUT else 0)
        jobs = [Job(plan, kept_in, name, range(offset + place, offset + until)) for name in found]
        for job, done in zip(jobs, pool.map(run_job, jobs), strict=True):
            _add(found[job.family], done)
            reached += sum(counted(plan, record) for record in done.records)
        place = until
        seconds = time.perf_counter() - begin
        rate = reached / max(seconds, 1e-9)
        print(f"{plan}, {kept_in}: {reached} states, {rate:.0f} a second", file=sys.stderr)
    return found


def named(family: str, only: str | None) -> Iterator[Job]:
    """Return a job without seeds for each plan that knows the family."""
    for (plan, kept_in), known in SETS.items():
        if family in known.named and only in (None, plan):
            yield Job(plan, kept_in, family, range(0))


def together(streams: Iterable[Stream]) -> Stream:
    """Return several streams as one."""
    total = Stream()
    for stream in streams:
        _add(total, stream)
    return total


def _add(total: Stream, more: Stream) -> None:
    total.records += more.records
    total.refusals += more.refusals
    total.escaped += more.escaped
    total.undecided += more.undecided
