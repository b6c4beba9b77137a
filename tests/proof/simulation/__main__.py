"""`make simulate`: run many seeds, or repeat one; print the seed of any failure.

python -m tests.proof.simulation --seeds 10000       seeds 0 to 9999
python -m tests.proof.simulation --seed 4711         one seed, with what happened in it
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from threadpoolctl import threadpool_limits

from tests.proof.simulation.tally import missing
from tests.proof.simulation.world import World
from tests.support.servers import ValkeyProcess

_CHUNK = 25
_SHOWN = 5


@dataclass
class Sum:
    """What a number of seeds came to."""

    seeds: int = 0
    requests: int = 0
    versions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Sum) -> None:
        """Add another sum to this one."""
        self.seeds += other.seeds
        self.requests += other.requests
        self.versions += other.versions
        self.faults += other.faults
        self.events += other.events
        self.failures |= other.failures


def run_seeds(url: str, seeds: range) -> Sum:
    """Run seeds one after another on one database."""
    total = Sum()
    with threadpool_limits(1), _rare_collections():
        for seed in seeds:
            world = World(seed, url)
            total.seeds += 1
            try:
                world.run()
            except (Exception, AssertionError) as error:
                cause = f" ({error.__cause__!r})" if error.__cause__ else ""
                total.failures[seed] = f"{type(error).__name__}: {error}{cause}"
            report = world.report
            total.requests += report.requests
            total.versions += report.versions
            total.faults += report.faults
            total.events += report.events
    return total


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Keep the collector of cycles from all that is there already: a sixth of the time."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _repeat(url: str, seed: int) -> int:
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


def _many(url: str, first: int, count: int, jobs: int, *, every_kind: bool) -> int:
    total = Sum()
    begin = time.perf_counter()
    chunks = [
        range(start, min(start + _CHUNK, first + count))
        for start in range(first, first + count, _CHUNK)
    ]
    with ProcessPoolExecutor(jobs, initializer=_take_database, initargs=(url,)) as pool:
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
    print("faults")
    for name, times in sorted(total.faults.items(), key=lambda pair: -pair[1]):
        print(f"  {times:7d}  {name}")
    print("events")
    for name, times in sorted(total.events.items(), key=lambda pair: -pair[1]):
        print(f"  {times:7d}  {name}")
    for seed, what in list(total.failures.items())[:_SHOWN]:
        print(f"seed {seed}: {what}\n  repeat it: make simulate SEED={seed}")
    unseen = missing(total.faults, total.events)
    if unseen:
        print("did not happen: " + ", ".join(unseen))
    return 1 if total.failures or (every_kind and unseen) else 0


def _until_failure(url: str, first: int, seconds: float) -> int:
    """Run seeds one after another until one fails (1), or the time is over (0).

    The time is this process's own, so that a busy machine looks as long as an idle one.
    """
    seed = first
    while time.process_time() < seconds:
        done = run_seeds(f"{url}?db=0", range(seed, seed + 1))
        if done.failures:
            print(f"seed {seed}: {done.failures[seed]}")
            return 1
        seed += 1
    print(f"seeds {first} to {seed - 1}: nothing is wrong")
    return 0


_DATABASE: dict[str, str] = {}


def _take_database(url: str) -> None:
    """Give this process a database of its own."""
    number = multiprocessing.current_process()._identity[0] % 16
    _DATABASE["url"] = f"{url}?db={number}"


def _run_chunk(seeds: range) -> Sum:
    return run_seeds(_DATABASE["url"], seeds)


def main() -> int:
    """Run the command."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names are iterated here and there: the same seed must be the same run.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.proof.simulation", *sys.argv[1:]],
            environment,
        )
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="repeat this one, and show what happens")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument(
        "--every-kind", action="store_true", help="fail if a kind of fault did not happen"
    )
    parser.add_argument(
        "--until-failure",
        type=float,
        metavar="S",
        help="stop at a failure, or after S seconds of CPU",
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "socket"
        settings = {"appendonly": "no", "unixsocket": str(path)}
        server = ValkeyProcess(Path(directory) / "valkey", settings)
        server.start()
        url = f"unix://{path}"
        try:
            if given.seed is not None:
                return _repeat(f"{url}?db=0", given.seed)
            if given.until_failure is not None:
                return _until_failure(url, given.first, given.until_failure)
            return _many(url, given.first, given.seeds, given.jobs, every_kind=given.every_kind)
        finally:
            server.close()


if __name__ == "__main__":
    sys.exit(main())
