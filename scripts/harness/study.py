"""A study of several sections: its command line, its run, its results and its page."""

from __future__ import annotations

import argparse
import json
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
from harness.results import ROOT, as_json, relative, write
from harness.servers import NoKafka, kafka
from harness.tables import markdown, show

SEED = 20210413
FORMAT = 2

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
    name, note
        Its title, and how its figures came about, for the page.
    full, quick
        Sizes: the study's, and small ones for tests.
    measure
        Yields the records as they come.
    on_kafka
        Whether it is measured on Kafka as well.
    """

    name: str
    note: str
    full: Plan
    quick: Plan
    measure: Callable[[Plan, Setup], Iterable[Record]]
    on_kafka: bool = False


@dataclass(frozen=True, slots=True)
class Study:
    """Sections that one command measures into results/NAME.json and results/NAME.md."""

    name: str
    title: str
    preface: str
    sections: Sequence[Section[Any]]

    def main(self, description: str | None, arguments: Sequence[str]) -> int:
        """Measure, write and print; return the exit code."""
        chosen = self._options(description).parse_args(arguments)
        if chosen.render:
            run = json.loads(chosen.results.read_text(encoding="utf-8"))
        else:
            run = self._run(chosen)
            write(chosen.results, as_json(run))
        notes = {section.name: section.note for section in self.sections}
        made_from = relative(chosen.results)
        write(chosen.page, markdown(run, made_from, self.title, self.preface, notes))
        show(run)
        return 0

    def _options(self, description: str | None) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(description=description)
        add = parser.add_argument
        add("--quick", action="store_true", help="small sizes, for tests")
        add("--seed", type=int, default=SEED)
        names = [section.name for section in self.sections]
        add("--only", action="append", choices=names, help="measure this section (repeatable)")
        add("--results", type=Path, default=ROOT / "results" / f"{self.name}.json")
        add("--page", type=Path, default=ROOT / "results" / f"{self.name}.md")
        add("--render", action="store_true", help="measure nothing: write the page again")
        add("--keep", type=_empty, metavar="DIR", help="keep data and logs of the processes here")
        return parser

    def _run(self, chosen: argparse.Namespace) -> dict[str, Any]:
        wanted = [one for one in self.sections if not chosen.only or one.name in chosen.only]
        notes: list[str] = []
        records: list[dict[str, Any]] = []
        with threadpool_limits(1), ExitStack() as stack:
            machine = facts()  # the load is that of others: taken before this adds its own
            made = Path(stack.enter_context(self._directory(chosen.keep)))
            broker = None
            if any(section.on_kafka for section in wanted):
                say("starting Kafka")
                try:
                    broker = stack.enter_context(kafka(made / "kafka"))
                except NoKafka as missing:
                    notes.append(f"no Kafka here, so its part was not measured: {missing}")
                    say(notes[-1])
            setup = Setup(chosen.seed, made, broker)
            for section in wanted:
                records += _measured(section, setup, quick=chosen.quick)
        return {
            "format": FORMAT,
            "command": self._repeated_by(chosen),
            "seed": chosen.seed,
            "machine": machine,
            "notes": notes,
            "records": records,
        }

    def _directory(self, kept: Path | None) -> AbstractContextManager[str | Path]:
        if kept is None:
            return TemporaryDirectory(prefix=f"lethe-{self.name}-")
        kept.mkdir(parents=True, exist_ok=True)
        return nullcontext(kept)

    def _repeated_by(self, chosen: argparse.Namespace) -> str:
        """Return the command that measures the same again."""
        given = [
            *(["--quick"] if chosen.quick else []),
            *(f"--only '{section}'" for section in chosen.only or ()),
        ]
        if not given:
            return f"make {self.name}"
        return " ".join([f"python scripts/{self.name}.py", *given])


def _empty(given: str) -> Path:
    """Return the directory; refuse one with files: a server would go on with their data."""
    kept = Path(given).resolve()
    if kept.exists() and any(kept.iterdir()):
        raise argparse.ArgumentTypeError(f"{given} is not empty")
    return kept


def _measured(section: Section[Any], setup: Setup, *, quick: bool) -> list[dict[str, Any]]:
    records = []
    begin = time.monotonic()
    for record in section.measure(section.quick if quick else section.full, setup):
        records.append({"section": section.name, **record.plain()})
        setting = " ".join(f"{name}={value}" for name, value in record.setting.items())
        say(f"{section.name}: {setting}: {record.metric} {record.value:.4g} {record.unit}")
    say(f"{section.name}: {time.monotonic() - begin:.1f} s")
    return records
