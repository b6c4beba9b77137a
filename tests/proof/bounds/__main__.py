"""`make bounds`: judge published bounds and estimates against the 80-bit oracle.

python -m tests.proof.bounds                            the numbers of states that are promised
python -m tests.proof.bounds --seeds 20 --only linear   20 streams of each family
python -m tests.proof.bounds --family one_outlier --seed 7      one stream, state by state
python -m tests.proof.bounds --against DIR              bounds of another checkout, side by side
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from tests.proof.bounds import against, cost, figures, pipelines
from tests.proof.bounds.case import drawn
from tests.proof.bounds.figures import Figures
from tests.proof.bounds.running import HELD_OUT, MILD, SETS, named, run_job, run_set, together
from tests.proof.bounds.states import PLANS, describe

STATES = {
    "linear": 110_000,
    "certificates": 25_000,
    "estimates": 12_000,
    "pipelines": 50_000,
    "poisson": 5_000,
    "softmax": 5_000,
    "changes": 100_000,
    "changed labels": 15_000,
    "changed counts": 5_000,
    "changed classes": 5_000,
    "slips": 100_000,
    "labelled slips": 10_000,
}
_OF_MILD = 4_000  # beside the others: they are for the looseness
_JOBS = 2


def _repeat(family: str, seed: int, only: str | None) -> int:
    """Run one stream of one family and show each of its states."""
    jobs = [replace(job, seeds=range(seed, seed + 1)) for job in named(family, only)]
    if not jobs:
        known = sorted({name for known in SETS.values() for name in known.named})
        print(f"no family is called {family}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    wrong = 0
    for job in jobs:
        case, _ = drawn(family, SETS[job.plan, job.kept_in].named[family], seed)
        print(f"{job.plan}, {family}, seed {seed}: {describe(case)}")
        done = run_job(job)
        for r in done.records:
            mark = "  BELOW THE TRUTH" if r.false else ""
            mark += "  under a tenth" if job.plan == "estimates" and r.under_a_tenth else ""
            state = f"step {r.step}, {r.live} rows left, {r.how} ({r.stage})"
            print(f"  {state}: {figures.told(r)}{mark}")
        print(f"  refused: {dict(done.refusals)}" if done.refusals else "  nothing was refused")
        print("\n".join(done.escaped))
        total = figures.figures(job.plan, {family: done})["all"]
        wrong += len(figures.broken(job.plan, total))
    return 1 if wrong else 0


def _run_plan(
    pool: ProcessPoolExecutor, plan: str, given: argparse.Namespace
) -> tuple[dict[str, dict[str, Figures]], list[str]]:
    """Run a plan over all its sets; return the figures of each set and of all, and what failed."""
    sets = [kept for of, kept in SETS if of == plan]
    share = STATES[plan] // sum(kept != MILD for kept in sets)
    if given.tuning_only and HELD_OUT in sets:
        sets.remove(HELD_OUT)
    tables, hostile = {}, []
    for kept_in in sets:
        states = _OF_MILD if kept_in == MILD else share
        streams = run_set(pool, plan, kept_in, first=given.first, seeds=given.seeds, states=states)
        tables[kept_in] = figures.figures(plan, streams)
        hostile += [] if kept_in == MILD else list(streams.values())
        _show(f"{plan}, {kept_in}", tables[kept_in])
        for line in figures.examples(plan, together(streams.values())):
            print(f"  {line}")
        print()
    everything = together(hostile)
    tables["hostile"] = figures.figures(plan, {"every family": everything})
    failed = [f"{plan}: {what}" for what in figures.broken(plan, tables["hostile"]["all"])]
    promised = 0 if given.seeds is not None else share * sum(kept != MILD for kept in sets)
    if (judged := int(tables["hostile"]["all"]["states"] or 0)) < promised:
        failed.append(f"{plan}: only {judged} states were judged, not {promised}")
    if MILD in tables:
        failed += [f"{plan}, mild: {w}" for w in figures.broken(plan, tables[MILD]["all"])]
    _show(f"{plan}, together (the mild ones left out)", {"all": tables["hostile"]["all"]})
    print(f"  refused: {dict(everything.refusals)}\n")
    return tables, failed


def _show(title: str, rows: dict[str, Figures]) -> None:
    print(title)
    print(figures.table(rows), flush=True)


def _compare(directory: Path, seeds: int) -> tuple[dict[str, Figures], list[str]]:
    with threadpool_limits(1):
        rows = against.compared(
            against.mild_records(seeds), against.other_records(directory, seeds)
        )
    _show("mild families: median bounds here and there, where the exact answer is published", rows)
    failed, rebuild = against.broken(rows), cost.rebuilds(directory)
    _show("rebuild at 10,000 x 1,000, seconds of processor time here and there", {"all": rebuild})
    if not float(rebuild["ratio"] or 0.0) <= cost.SLOWER:
        failed.append(f"a rebuild takes {rebuild['ratio']:.2f} times as long as the other's")
    return {**rows, "rebuild": rebuild}, failed


def _costs() -> tuple[dict[str, Figures], list[str]]:
    rows = cost.deletions()
    _show("milliseconds of a deletion, n = 100,000, without and with an intercept", rows)
    corrected = cost.corrections()
    _show("preprocessing: a correction beside two triangular solves", corrected)
    return {**rows, **corrected}, cost.too_dear(rows)


def _run_pipelines(
    pool: ProcessPoolExecutor, given: argparse.Namespace
) -> tuple[dict[str, Figures], list[str]]:
    outcome = pipelines.run(pool, STATES["pipelines"], given.first, given.seeds)
    rows = pipelines.figures(outcome)
    _show("models with preprocessing", rows)
    print(f"  refused: {dict(outcome.refusals)}\n")
    return rows, pipelines.broken(outcome, 0 if given.seeds is not None else STATES["pipelines"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bounds", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=[*PLANS, "pipelines", "cost"], help="one part of it")
    parser.add_argument("--seeds", type=int, help="streams of each family, whatever they come to")
    parser.add_argument("--first", type=int, default=0, help="the first seed of each family (0)")
    parser.add_argument("--tuning-only", action="store_true", help="nothing that is held out")
    parser.add_argument("--family", help="repeat one family's stream ...")
    parser.add_argument("--seed", type=int, default=0, help="... of this seed")
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--jobs", type=int, default=_JOBS, help=f"processes ({_JOBS})")
    return parser.parse_args()


def main() -> int:
    """Run the command."""
    given = _arguments()
    if given.family is not None:
        return _repeat(given.family, given.seed, given.only)
    begin = time.perf_counter()
    found: dict[str, object] = {}
    failed: list[str] = []
    if given.against is not None:
        found["against"], failed = _compare(given.against, given.seeds or 100)
    else:
        with ProcessPoolExecutor(given.jobs) as pool:
            for plan in [plan for plan in PLANS if given.only in (None, plan)]:
                found[plan], wrong = _run_plan(pool, plan, given)
                failed += wrong
            if given.only in (None, "pipelines"):
                found["pipelines"], wrong = _run_pipelines(pool, given)
                failed += wrong
        if given.only in (None, "cost"):
            found["cost"], wrong = _costs()
            failed += wrong
    if given.json is not None:
        report = {"first": given.first, "figures": found, "failed": failed}
        given.json.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(["not kept:", *failed]) if failed else "every promise was kept")
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
