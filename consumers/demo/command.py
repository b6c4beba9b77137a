"""The command ``lethe demo``."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from rich.console import Console

from consumers.demo import conductor
from consumers.demo.checks import all_checks
from consumers.demo.live import Lines, LiveTable, Silent, View
from consumers.demo.plot import save_plot
from consumers.demo.report import document, exit_code, print_report
from consumers.telemetry import configure_logging
from engine.errors import InvalidData

_PACE = 0.4
"""Seconds a wave takes at the least on a terminal, so that a person can follow."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where lethe-demo.svg and .png are saved; the current directory by default.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Keep the data here, to look at afterwards; by default they are removed.",
)
def demo(as_json: bool, out: Path, data_dir: Path | None) -> None:
    """Forget real patients, live.

    Starts a private Valkey, registers a linear and a logistic model, and sends deletion requests
    through the real workers. Every version is compared with retraining from scratch, refreshes
    happen when the error passes its budget, and at the end every promise is checked. Exits with
    1 if a check fails.
    """
    configure_logging("WARNING")
    console = Console(highlight=False)
    with _ends_cleanly(), ExitStack() as stack:
        directory = data_dir
        if directory is None:
            made = tempfile.TemporaryDirectory(prefix="lethe-demo-")
            directory = Path(stack.enter_context(made))
        on_terminal = not as_json and console.is_terminal and not console.is_dumb_terminal
        view = _view(console, as_json=as_json, on_terminal=on_terminal)
        if isinstance(view, LiveTable):
            with view:
                outcome = conductor.run(directory, view, pace=_PACE)
        else:
            outcome = conductor.run(directory, view)
    checks = all_checks(outcome)
    try:
        svg, png = save_plot(outcome, out)
    except OSError as error:
        raise InvalidData(f"the plot cannot be saved in {out}: {error}; use --out") from None
    if as_json:
        found = document(outcome, checks) | {"plots": [str(svg), str(png)]}
        click.echo(json.dumps(found, indent=2))
    else:
        print_report(console, outcome, checks)
        console.print(f"\n  {outcome.seconds:.1f} s in all; {svg} and {png} show the errors")
        if data_dir is not None:
            console.print(f"  data kept: lethe status --data-dir {data_dir}")
    sys.exit(exit_code(checks))


def _view(console: Console, *, as_json: bool, on_terminal: bool) -> View:
    if as_json:
        return Silent()
    return LiveTable(console) if on_terminal else Lines(console)


@contextmanager
def _ends_cleanly() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the private Valkey is stopped and removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
