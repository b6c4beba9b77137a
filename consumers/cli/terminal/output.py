"""What a command prints: text or one JSON document on stdout, progress on stderr.

On a terminal, rich draws tables and bars; elsewhere a table is plain aligned text and progress is
one log line per stage. Commands pass the `Output` to the functions that print.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress as Bars, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lethe.consumers.cli.terminal.options import Flags
from lethe.consumers.service.configuration.credentials import store_access
from lethe.consumers.service.configuration.settings import (
    Settings,
    load_settings,
    unknown_variables,
)
from lethe.consumers.service.telemetry.logs import configure_logging, logger
from lethe.consumers.service.telemetry.progress import Progress
from lethe.engine.store.layout.records import Certificate, OutputCertificateRecord
from lethe.engine.store.server.connection import connect

_LOG_AFTER = 1.0  # seconds before a stage gets a log line where there is no terminal
_LOG_EVERY = 5.0  # seconds between such lines
_CLASSES_SHOWN = 12


class Output:
    """Prints text or JSON, as requested."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def line(self, text: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            click.echo(text)

    def document(self, value: Any) -> None:
        """Print the JSON document."""
        if self.as_json:
            click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))

    def json_line(self, value: Any) -> None:
        """Print one of a stream of JSON documents, on a line of its own."""
        if self.as_json:
            click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table for people. Columns whose name ends in ``>`` are right-aligned."""
        if self.as_json:
            return
        lines = plain_table(columns, rows)
        console = Console()
        drawn_width = len(max(lines, key=len)) + len(columns) + 1
        if console.is_terminal and drawn_width <= console.width:
            console.print(_drawn(columns, rows))
        else:  # the terminal wraps lines better than a table wraps cells
            for text in lines:
                click.echo(text)

    def facts(self, facts: Mapping[str, str]) -> None:
        """Print names and values, one pair per line."""
        width = max(len(name) for name in facts)
        for name, value in facts.items():
            self.line(f"{name:<{width}}  {value}")

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show progress on stderr."""
        if sys.stderr.isatty() and not self.as_json:
            with _bars() as report:
                yield report
        else:
            with _log_lines() as report:
                yield report


def _drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as aligned lines, two spaces between columns."""
    cells = [[name.rstrip(">") for name in columns], *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return [aligned(columns, row, widths) for row in cells]


def aligned(columns: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line of a table, with columns of these widths."""
    return "  ".join(
        cell.rjust(width) if name.endswith(">") else cell.ljust(width)
        for name, cell, width in zip(columns, cells, widths, strict=True)
    ).rstrip()


@contextmanager
def _bars() -> Iterator[Progress]:
    counts = TextColumn("{task.fields[counts]}")
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    progress.update(task, visible=False)
                tasks[what] = progress.add_task(what, total=total or None, counts="")
            shown = f"{done}/{total}" if total else (str(done) if done else "")
            progress.update(tasks[what], completed=done, total=total or None, counts=shown)

        yield report


@contextmanager
def _log_lines() -> Iterator[Progress]:
    """Log a stage once it has taken a second, and every few seconds from then on."""
    log = logger("cli")
    stage: dict[str, Any] = {}
    lock = threading.Lock()
    ended = threading.Event()

    def report(what: str, done: int, total: int) -> None:
        with lock:
            since = stage["since"] if stage.get("what") == what else time.monotonic()
            counts = {"done": done, "of": total} if total else {}
            stage.update(what=what, since=since, counts=counts)

    def log_stages() -> None:
        pause = _LOG_AFTER
        while not ended.wait(pause):
            with lock:
                if stage and time.monotonic() - stage["since"] >= _LOG_AFTER:
                    log.info(stage["what"], action="progress", **stage["counts"])
                    pause = _LOG_EVERY

    thread = threading.Thread(target=log_stages, name="progress", daemon=True)
    thread.start()
    try:
        yield report
    finally:
        ended.set()
        thread.join()


def prepare(ctx: click.Context) -> tuple[Settings, Output]:
    """Return the settings and the output of a command, and set up logging.

    Raises
    ------
    InvalidData
        A setting cannot be used.
    """
    flags = ctx.ensure_object(Flags)
    settings = load_settings(flags.settings)
    for name, remark in unknown_variables(os.environ).items():
        ignored = f"{name} is not a setting of Lethe and is ignored"
        click.echo("; ".join(filter(None, (f"lethe: warning: {ignored}", remark))), err=True)
    configure_logging(settings.log_level, settings.log_format)
    if settings.redis_url is not None:
        # Parses the address and reads the files; connects to nothing yet.
        connect(settings.redis_url.get_secret_value(), store_access(settings)).close()
    return settings, Output(as_json=flags.json)


def number(value: float | None) -> str:
    """Return a number for people: three significant digits, ``-`` for none."""
    return "-" if value is None else f"{value:.3g}"


def error_number(relative: float | None) -> str:
    """Return a relative error for people; None becomes ``unknown``."""
    return "unknown" if relative is None else number(relative)


def wrapped(value: str, begin: str) -> list[str]:
    """Wrap a text to the terminal's width; later lines are indented by the length of ``begin``."""
    width = min(shutil.get_terminal_size((80, 24)).columns, 120)
    return textwrap.wrap(
        value,
        max(width, len(begin) + 30),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )


def agreed(question: str, *, yes: bool) -> bool:
    """Return whether a person says yes; ``yes`` of the option --yes answers for them.

    Raises
    ------
    click.UsageError
        Nobody is there to answer.
    """
    try:
        return yes or click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.UsageError(
            "no answer, so nothing was changed; pass --yes to skip the question"
        ) from None


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural ends in s: 1 row, 2 rows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """Return a duration in the notation of options: 7d, 36h, 90s."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def classes_line(names: Sequence[str], counts: Sequence[int]) -> str:
    """Return the classes with their row counts, at most a dozen of them."""
    pairs = list(zip(names, counts, strict=True))
    shown = ", ".join(f"{name} ({counted(rows, 'row')})" for name, rows in pairs[:_CLASSES_SHOWN])
    more = ", ..." if len(pairs) > _CLASSES_SHOWN else ""
    return f"{len(pairs)} classes: {shown}{more}"


def certificate_line(certificate: Certificate, *, name: bool = True) -> str:
    """Return what a certificate promises, and how much of its budget is spent."""
    what = (
        f"({certificate.epsilon:g}, {certificate.delta:g})-certified removal, sigma "
        f"{number(certificate.sigma)}: "
    )
    if isinstance(certificate, OutputCertificateRecord):
        what += (
            f"{certificate.noised} of {counted(certificate.versions, 'version')} published, "
            f"epsilon {number(certificate.epsilon_spent)} so far"
        )
    else:
        what += f"{number(certificate.spent)} of {number(certificate.budget)} spent"
    return f"certificate: {what}" if name else what
