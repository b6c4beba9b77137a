"""The command ``lethe demo``."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from rich.console import Console

from lethe.consumers.cli.run.serve import check_extra, serve_runtime
from lethe.consumers.cli.terminal.options import Flags
from lethe.consumers.cli.terminal.output import Output
from lethe.consumers.cli.terminal.stopping import stopped_by
from lethe.consumers.demo.view import LiveView, View
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.telemetry.logs import configure_logging
from lethe.engine.errors import InvalidData

_PACE = 0.4
"""Minimum seconds per wave on a terminal, so that a person can follow."""

_LOOPBACK = "127.0.0.1"
_WIDTH = 80
"""Columns if the output is not a terminal."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Directory for lethe-demo.svg and .png; by default the current one.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Keep the data in this directory; by default they are removed.",
)
@click.option(
    "--serve", "serving", is_flag=True,
    help="Afterwards, keep the data up and serve the console on them, until Ctrl-C.",
)  # fmt: skip
@click.pass_context
def demo(
    ctx: click.Context, /, *, as_json: bool, out: Path, data_dir: Path | None, serving: bool
) -> int:
    """Forget real patients, live.

    Starts a private Valkey, registers a linear and a logistic model, and sends deletion requests
    through the real workers. Compares every version with retraining from scratch, refreshes when
    the error exceeds its budget, and checks every promise at the end. Exits with 1 if a check
    fails.
    """
    before = ctx.ensure_object(Flags)  # options before the command's name
    for setting, option in (("redis_url", "--redis"), ("kafka_bootstrap_servers", "--kafka")):
        if setting in before.settings:
            raise click.UsageError(f"the demo runs on servers of its own; leave out {option}")
    as_json = as_json or before.json
    data_dir = data_dir or before.settings.get("data_dir")
    level, style = before.settings.get("log_level"), before.settings.get("log_format")
    configure_logging(level or "ERROR", style or "console")  # the demo shows dead letters
    _check_writable(out)
    if serving:
        check_extra("lethe demo --serve")
    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(highlight=False, width=width, quiet=as_json)
    with _sigterm_exits(), ExitStack() as stack:
        directory = data_dir
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="lethe-demo-")
            directory = Path(stack.enter_context(temporary))
        failed = _perform(console, directory, out, as_json=as_json)
        if serving:
            _serve(console, directory)
    if data_dir is not None:
        console.print(f"data kept: lethe status --data-dir {data_dir}", soft_wrap=True)
        console.print(f"in a browser: lethe serve --data-dir {data_dir}", soft_wrap=True)
    elif not serving:
        console.print("to look at it in a browser: lethe demo --serve", soft_wrap=True)
    return failed


def _serve(console: Console, directory: Path) -> None:
    """Serve the console on the demo's data, with workers that process what is sent from it."""
    from lethe.consumers.demo.run import settings_of  # noqa: PLC0415 - imports as in `_perform`
    from lethe.consumers.server.guard import Access  # noqa: PLC0415
    from lethe.consumers.server.serving import listen  # noqa: PLC0415
    from lethe.consumers.workers.supervisor import WORKERS, Supervisor  # noqa: PLC0415

    def ready(url: str) -> None:
        console.print(f"the console: {url}/console/  (Ctrl-C ends it)", soft_wrap=True)

    stop = threading.Event()
    supervisor = Supervisor(list(WORKERS))
    with (
        stopped_by(stop, signal.SIGTERM, signal.SIGINT),
        listen(_LOOPBACK, 0) as listening,
        open_runtime(settings_of(directory)) as runtime,
        supervisor.running(runtime),
    ):
        serve_runtime(runtime, listening, Access(hosts=frozenset({_LOOPBACK})), stop, ready)


def _check_writable(out: Path) -> None:
    """Create the directory of the plot; fail now, not after the run, if it cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise InvalidData(
            f"the plot cannot be saved in {out} ({error.strerror}); name another one with --out"
        ) from None


@contextmanager
def _sigterm_exits() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the private Valkey is stopped and removed."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _perform(console: Console, directory: Path, out: Path, *, as_json: bool) -> int:
    """Run, check, plot and report; return the exit code."""
    with ExitStack() as stack:
        view, pace = View(console), 0.0
        if console.is_terminal and not console.is_dumb_terminal and not as_json:
            view, pace = stack.enter_context(LiveView(console)), _PACE
        view.status("loading scikit-learn")
        # Two seconds of imports, for which --help need not wait.
        from lethe.consumers.demo import checks, plot, report, run  # noqa: PLC0415

        outcome = run.run(directory, view, pace=pace)
    results = checks.all_checks(outcome)
    svg, png = plot.save_plot(outcome, out)
    report.print_report(console, outcome, results)
    console.print(f"\n{outcome.seconds:.1f} s; plot in {svg} and {png}", soft_wrap=True)
    document = report.document(outcome, results)
    Output(as_json=as_json).document(document | {"plots": [str(svg), str(png)]})
    return 0 if document["ok"] else 1
