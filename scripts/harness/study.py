"""A study of sections: each measures, and becomes a table of results/NAME/."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from harness.machine import facts
from harness.progress import say
from harness.records import Record
from harness.results import RESULTS, note, rounded, write_table
from harness.servers import NoKafka, kafka
from harness.tables import show

SEED = 20210413

Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a section runs with.

    Attributes
    ----------
    seed
        Of everything that is drawn.
    directory
        For data of servers and files; it goes with the run, unless ``--keep`` named it.
    kafka
        The address of a broker; None where no section asks for one, or there is none.
    """

    seed: int
    directory: Path
    kafka: str | None = None

    @property
    def logs(self) -> list[str | None]:
        """The logs to measure on: Redis Streams (None), and Kafka where there is one."""
        return [None] if self.kafka is None else [None, self.kafka]


@dataclass(frozen=True, slots=True)
class Section(Generic[Plan]):
    """One subject: its sizes, and what measures it.

    Attributes
    ----------
    name
        For ``--only``, and of its table.
    full, quick
        Sizes: the study's, and small ones for tests.
    measure
        Yields the records as they come.
    on_kafka
        Whether it is measured on Kafka as well.
    """

    name: str
    full: Plan
    quick: Plan
    measure: Callable[[Plan, Setup], Iterable[Record]]
    on_kafka: bool = False

    @property
    def file(self) -> str:
        """Its table."""
        return f"{self.name.replace(' ', '-')}.csv"


@dataclass(frozen=True, slots=True)
class Study:
    """Sections that one command measures into results/NAME/."""

    name: str
    sections: Sequence[Section[Any]]

    def main(self, description: str | None, arguments: Sequence[str]) -> int:
        """Measure, print and write; return the exit code.

        A section's table is replaced, with its line of machine.csv; those of others stay.
        """
        chosen = self._options(description).parse_args(arguments)
        wanted = [one for one in self.sections if not chosen.only or one.name in chosen.only]
        to: Path | None = chosen.results or (None if chosen.quick else RESULTS / self.name)
        with threadpool_limits(1), ExitStack() as stack:
            machine = facts()  # the load is that of others: taken before this adds its own
            made = Path(stack.enter_context(self._directory(chosen.keep)))
            broker = None
            if any(section.on_kafka for section in wanted):
                say("starting Kafka")
                try:
                    broker = stack.enter_context(kafka(made / "kafka"))
                except NoKafka as missing:
                    say(f"no Kafka here, so its part is not measured: {missing}")
            setup = Setup(chosen.seed, made, broker)
            for section in wanted:
                records = _measured(section, setup, quick=chosen.quick)
                show(section.name, records)
                if to is not None:
                    rows = [rounded(record.plain()) for record in records]
                    write_table(to / section.file, rows)
                    note(to, [section.name], machine | {"seed": str(chosen.seed)})
        return 0

    def _options(self, description: str | None) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(prog=f"study.py {self.name}", description=description)
        add = parser.add_argument
        add("--quick", action="store_true", help="small sizes, for tests")
        add("--seed", type=int, default=SEED)
        names = [section.name for section in self.sections]
        add("--only", action="append", choices=names, help="measure this section (repeatable)")
        add(
            "--results",
            type=Path,
            help=f"a directory of tables: results/{self.name}, or none with --quick",
        )
        add("--keep", type=_empty, metavar="DIR", help="keep data and logs of the processes here")
        return parser

    def _directory(self, kept: Path | None) -> AbstractContextManager[str | Path]:
        if kept is None:
            return TemporaryDirectory(prefix=f"lethe-{self.name}-")
        kept.mkdir(parents=True, exist_ok=True)
        return nullcontext(kept)


def _empty(given: str) -> Path:
    """Return the directory; refuse one with files: a server would go on with their data."""
    kept = Path(given).resolve()
    if kept.exists() and any(kept.iterdir()):
        raise argparse.ArgumentTypeError(f"{given} is not empty")
    return kept


def _measured(section: Section[Any], setup: Setup, *, quick: bool) -> list[Record]:
    records = []
    begin = time.monotonic()
    for record in section.measure(section.quick if quick else section.full, setup):
        records.append(record)
        setting = " ".join(f"{name}={value}" for name, value in record.setting.items())
        say(f"{section.name}: {setting}: {record.metric} {record.value:.4g} {record.unit}")
    say(f"{section.name}: {time.monotonic() - begin:.1f} s")
    return records
