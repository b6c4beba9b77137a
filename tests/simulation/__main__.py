"""`make simulate`: run many seeds, or repeat one; print the seed of any failure.

python -m tests.simulation --seeds 10000       seeds 0 to 9999
python -m tests.simulation --seed 4711         one seed, with what happened in it
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from threadpoolctl import threadpool_limits

from tests.servers import ValkeyProcess
from tests.simulation.world import World

_CHUNK = 25
_SHOWN = 5
_SILENT = logging.CRITICAL


@dataclass
class Sum:
    """What a number of seeds came to."""

    seeds: int = 0
    requests: int = 0
    versions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Sum) -> None:
        """Add another sum to this one."""
        self.seeds += other.seeds
        self.requests += other.requests
        self.versions += other.versions
        self.faults += other.faults
        self.failures |= other.failures


def run_seeds(url: str, seeds: range) -> Sum:
    """Run seeds one after another on one database."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_SILENT))
    total = Sum()
    with threadpool_limits(1):
        for seed in seeds:
            world = World(seed, url)
            total.seeds += 1
            try:
                world.run()
            except (Exception, AssertionError) as error:
                cause = f" ({error.__cause__!r})" if error.__cause__ else ""
                total.failures[seed] = f"{type(error).__name__}: {error}{cause}"
            total.requests += world.report.requests
            total.versions += world.report.versions
            total.faults += world.report.faults
    return total


def _repeat(url: str, seed: int) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_SILENT))
    world = World(seed, url)
    try:
        world.run()
    except (Exception, AssertionError):
        print("\n".join(world.report.trace))
        traceback.print_exc()
        return 1
    print("\n".join(world.report.trace))
    print(f"seed {seed}: nothing is wrong; {world.report.versions} versions")
    return 0


def _many(server: ValkeyProcess, first: int, count: int, jobs: int) -> int:
    total = Sum()
    begin = time.perf_counter()
    chunks = [
        range(start, min(start + _CHUNK, first + count))
        for start in range(first, first + count, _CHUNK)
    ]
    with ProcessPoolExecutor(jobs, initializer=_take_database, initargs=(server.url,)) as pool:
        for done in pool.map(_run_chunk, chunks):
            total.add(done)
            if total.seeds % (20 * _CHUNK) == 0 or done.failures:
                seconds = time.perf_counter() - begin
                failed = len(total.failures)
                print(
                    f"{total.seeds} of {count} seeds, {failed} failed, {seconds:.0f} s",
                    file=sys.stderr,
                )
    seconds = time.perf_counter() - begin
    print(
        f"{total.seeds} seeds in {seconds:.0f} s: {total.requests} requests, {total.versions} "
        f"versions, {sum(total.faults.values())} faults, {len(total.failures)} failures"
    )
    for name, times in sorted(_kinds(total.faults).items(), key=lambda pair: -pair[1]):
        print(f"  {times:7d}  {name}")
    for seed, what in list(total.failures.items())[:_SHOWN]:
        print(f"seed {seed}: {what}\n  repeat it: make simulate SEED={seed}")
    return 1 if total.failures else 0


def _kinds(faults: Counter[str]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for name, times in faults.items():
        kinds[
            "killed between turns" if name in ("killed at turn", "killed at start") else name
        ] += times
    return kinds


_DATABASE: dict[str, str] = {}


def _take_database(url: str) -> None:
    """Give this process a database of its own."""
    number = multiprocessing.current_process()._identity[0] % 16
    _DATABASE["url"] = f"{url}/{number}"


def _run_chunk(seeds: range) -> Sum:
    return run_seeds(_DATABASE["url"], seeds)


def main() -> int:
    """Run the command."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names are iterated here and there: the same seed must be the same run.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment
        )
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="repeat this one, and show what happens")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = ValkeyProcess(Path(directory) / "valkey", {"appendonly": "no"})
        server.start()
        try:
            if given.seed is not None:
                return _repeat(f"{server.url}/0", given.seed)
            return _many(server, given.first, given.seeds, given.jobs)
        finally:
            server.close()


if __name__ == "__main__":
    sys.exit(main())
