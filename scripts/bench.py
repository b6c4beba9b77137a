"""Measure steps, end-to-end time, evidence, retraining, rebuilds, throughput, and the floor.

Results are printed as tables, and written to results/bench.json and results/bench.md. Progress goes
to stderr. ``--quick`` measures the same things small, in under a minute; its figures say nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks import (
    against_floor,
    costs,
    during_rebuild,
    end_to_end,
    evidence,
    retraining,
    steps,
    throughput,
)
from benchmarks.command import options, repeated_by, say, write
from benchmarks.machine import facts
from benchmarks.records import Record
from benchmarks.report import document, markdown, show
from benchmarks.servers import NoKafka, kafka

SECTIONS = (
    steps.SECTION,
    end_to_end.SECTION,
    evidence.SECTION,
    retraining.SECTION,
    during_rebuild.SECTION,
    throughput.SECTION,
    against_floor.SECTION,
    costs.SECTION,
)
_ON_A_LOG = {
    end_to_end.SECTION,
    evidence.SECTION,
    throughput.SECTION,
    against_floor.SECTION,
    costs.SECTION,
}
_PIPED_WIDTH = 140


class Bench:
    """One run: measures sections and collects records."""

    def __init__(
        self,
        *,
        quick: bool,
        seed: int,
        wanted: Iterable[str],
        directory: Path,
        floor: against_floor.Plan,
    ) -> None:
        self.quick = quick
        self.seed = seed
        self.wanted = frozenset(wanted)
        self.directory = directory
        self.floor = against_floor.QUICK if quick else floor
        self.records: list[Record] = []
        self.notes: list[str] = []

    def run(self) -> None:
        """Measure everything that is wanted."""
        quick, seed, directory = self.quick, self.seed, self.directory
        with ExitStack() as stack:
            broker = self._kafka(stack)
            self._take(
                steps.SECTION,
                lambda: steps.run(steps.QUICK if quick else steps.Plan(), seed),
            )
            for address in self._logs(broker):
                plan = end_to_end.QUICK if quick else end_to_end.Plan()
                self._take(
                    end_to_end.SECTION,
                    lambda: end_to_end.run(plan, seed, directory, address),  # noqa: B023
                )
            for address in self._logs(broker):
                pairs = evidence.QUICK if quick else evidence.PLANS
                self._take(
                    evidence.SECTION,
                    lambda: evidence.run(pairs, seed, directory, address),  # noqa: B023
                )
            self._take(
                retraining.SECTION,
                lambda: retraining.run(retraining.QUICK if quick else retraining.Plan(), seed),
            )
            rebuilds = during_rebuild.QUICK if quick else during_rebuild.Plan()
            self._take(
                during_rebuild.SECTION,
                lambda: during_rebuild.run(rebuilds, seed, directory / "rebuild"),
            )
            for address in self._logs(broker):
                load = throughput.QUICK if quick else throughput.Plan()
                self._take(
                    throughput.SECTION,
                    lambda: throughput.run(load, seed, directory, address),  # noqa: B023
                )
            for address in self._logs(broker):
                self._take(
                    against_floor.SECTION,
                    lambda: against_floor.run(self.floor, seed, directory, address),  # noqa: B023
                )
            self._take(
                costs.SECTION,
                lambda: costs.run(costs.QUICK if quick else costs.Plan(), seed, directory, broker),
            )

    def _kafka(self, stack: ExitStack) -> str | None:
        if not self.wanted & _ON_A_LOG:
            return None
        say("starting Kafka")
        try:
            return stack.enter_context(kafka(self.directory / "kafka"))
        except NoKafka as missing:
            self.notes.append(f"no Kafka here, so its part was not measured: {missing}")
            say(self.notes[-1])
            return None

    @staticmethod
    def _logs(broker: str | None) -> list[str | None]:
        return [None] if broker is None else [None, broker]

    def _take(self, section: str, measure: Callable[[], Iterable[Record]]) -> None:
        if section not in self.wanted:
            return
        begin = time.monotonic()
        for record in measure():
            self.records.append(record)
            setting = " ".join(f"{name}={value}" for name, value in record.parameters.items())
            say(f"{section}: {setting}: {record.metric} {record.median:.4g} {record.unit}")
        say(f"{section}: {time.monotonic() - begin:.1f} s")


@contextmanager
def working_directory(given: Path | None) -> Iterator[Path]:
    """Yield a directory for the servers' data: a temporary one, unless one is given to keep."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
    else:
        with tempfile.TemporaryDirectory(prefix="lethe-bench-") as made:
            yield Path(made)


def main(arguments: list[str]) -> int:
    """Run; return the exit code."""
    parser = options(__doc__, "bench", SECTIONS)
    parser.add_argument("--keep", type=Path, help="keep the servers' data and logs here")
    plan = against_floor.Plan()
    parser.add_argument("--runs", type=int, default=plan.runs, help="of the floor, each")
    parser.add_argument(
        "--loop-models", type=int, default=plan.loop_models, help="20 requests each, against it"
    )
    chosen = parser.parse_args(arguments)
    with threadpool_limits(1), working_directory(chosen.keep) as directory:
        bench = Bench(
            quick=chosen.quick,
            seed=chosen.seed,
            wanted=chosen.only or SECTIONS,
            directory=directory,
            floor=against_floor.Plan(runs=chosen.runs, loop_models=chosen.loop_models),
        )
        machine = facts()  # the load is that of others: taken before the bench adds its own
        bench.run()
    records = [record.plain() for record in bench.records]
    run = document(repeated_by(chosen, "bench"), chosen.seed, machine, records, bench.notes)
    write(chosen, run, markdown, show, _PIPED_WIDTH)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
