"""`make exact`: linear models after thousands of changes, byte for byte.

python -m tests.proof.exact                  10,000 streams of 200 changes, over all families
python -m tests.proof.exact --seeds 20       20 streams of each family
python -m tests.proof.exact --only pipelines --seeds 200    one family
python -m tests.proof.exact --cost           deletions and fits beside rounded_features=0
python -m tests.proof.exact --page           retraining in the audit page
python -m tests.proof.exact --seeds 0 --mkl LIBMKL_RT    other machines alone, with Intel's MKL, too
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple
from pathlib import Path

from threadpoolctl import threadpool_limits

from tests.proof.exact import cost
from tests.proof.exact.families import FAMILIES
from tests.proof.exact.found import CHANGES, Found
from tests.proof.exact.machines import MACHINES, digest, digest_elsewhere, with_mkl
from tests.proof.exact.page_cost import page_costs
from tests.proof.exact.pipelines import PIPELINES
from tests.proof.exact.stream import run_all

_STREAMS = 10_000
_OF_MACHINES = 2
"""Streams of each family for each machine, at most."""
_AT_ONCE = 10
_RARELY = 0.01
"""Of the changes to ordinary rows: rational arithmetic is to decide no more."""


def _job(given: tuple[str, range]) -> Found:
    with threadpool_limits(1):
        return run_all(*given)


def _line(name: str, found: Found) -> str:
    return (
        f"{name:<26} {found.same:>6} of {found.streams:<6} {found.equal:>5} of "
        f"{found.in_fractions:<5} {found.false:>4} of {found.bounds:<7} {found.refused:>4} "
        f"{_share(found.rational, found.changes):>9} {_share(found.slips_rational, found.slips):>9}"
    )


def _share(part: int, whole: int) -> str:
    return f"{100.0 * part / whole:.2f} %" if whole else ""


def _streams(names: Sequence[str], seeds: int, jobs: int) -> list[str]:
    print(
        f"streams of {CHANGES} changes; the same bytes as a fresh fit in another order, at 4 stops;"
    )
    print("the last state against fractions, of pipelines against decimals; published errors")
    print("below the truth; refusals;")
    print("changes that rational arithmetic decided: rows as they should be, and with a slip there")
    head = f"{'':<26} {'same bytes':>16} {'fractions':>14} {'false':>15} {'ref.':>4}"
    print(f"{head} {'rational':>9} {'slip':>9}")
    total, failed = Found(), []
    with ProcessPoolExecutor(jobs) as pool:
        for name in names:
            found = Found()
            parts = [range(i, min(i + _AT_ONCE, seeds)) for i in range(0, seeds, _AT_ONCE)]
            for part in pool.map(_job, [(name, part) for part in parts]):
                found.add(part)
            print(_line(name, found), flush=True)
            total.add(found)
            ordinary = name != PIPELINES and FAMILIES[name].ordinary
            if ordinary and found.rational > _RARELY * found.changes:
                failed.append(f"{name}: rational arithmetic decided {found.rational} changes")
    print(_line("all", total))
    return failed + total.wrong


def _machines(seeds: range, machines: dict[str, dict[str, str]]) -> list[str]:
    rounded, not_rounded = set(), set()
    print(f"\nthe same {len(seeds)} streams of each family, and 150 features, in other processes")
    for name, environment in machines.items():
        found = digest_elsewhere(environment, seeds)
        kinds = ", ".join(found.architectures)
        print(
            f"{name:<20} {kinds:<20} {found.rounded[:16]}  (not rounded: {found.not_rounded[:16]})"
        )
        rounded.add(found.rounded)
        not_rounded.add(found.not_rounded)
    failed = [f"{len(rounded)} digests where there should be one"] if len(rounded) > 1 else []
    if len(not_rounded) == 1:
        failed.append("these machines are all the same: so are models that are not rounded")
    return failed


def _costs(rows: int) -> None:
    print("processor us of the deletion of one row, exact sums and without")
    for name, with_sums, without in cost.deletions():
        print(
            f"{name:<16} {with_sums:>9.0f} {without:>9.0f} {with_sums / without:>6.2f}", flush=True
        )
    print(f"processor s of a fit of {rows} x {cost.COLUMNS}, exact sums and without")
    for name, with_sums, without in cost.fits(rows):
        print(
            f"{name:<16} {with_sums:>9.2f} {without:>9.2f} {with_sums / without:>6.2f}", flush=True
        )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make exact", description=__doc__.splitlines()[0])
    streams = -(-_STREAMS // (len(FAMILIES) + 1))
    parser.add_argument("--seeds", type=int, default=streams, help=f"of each family ({streams})")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    families = (*FAMILIES, PIPELINES)
    parser.add_argument("--only", choices=families, help="one family, and no other machines")
    parser.add_argument("--cost", action="store_true", help="what it costs, and nothing else")
    parser.add_argument("--page", action="store_true", help="what the audit page takes")
    parser.add_argument("--rows", type=int, default=cost.ROWS, help="of a fit that is timed (1e6)")
    parser.add_argument("--mkl", type=Path, metavar="FILE", help="libmkl_rt.so: a second BLAS")
    parser.add_argument("--digest", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.digest:
        print(json.dumps(astuple(digest(range(given.seeds)))))
        return 0
    if given.cost:
        _costs(given.rows)
        return 0
    if given.page:
        for n, d, taken in page_costs():
            print(f"{n:>9,} rows of {d:>3} features: {taken}", flush=True)
        return 0
    begin = time.perf_counter()
    names = families if given.only is None else (given.only,)
    failed = _streams(names, given.seeds, given.jobs) if given.seeds else []
    if given.only is None:
        failed += _other_machines(given.seeds, given.mkl)
    print("\n".join(["not kept:", *failed[:20]]) if failed else "every promise was kept")
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return 1 if failed else 0


def _other_machines(seeds: int, library: Path | None) -> list[str]:
    with tempfile.TemporaryDirectory() as scratch:
        mkl = {"Intel's MKL": with_mkl(library, Path(scratch))} if library else {}
        return _machines(range(max(min(seeds, _OF_MACHINES), 1)), {**MACHINES, **mkl})


if __name__ == "__main__":
    sys.exit(main())
