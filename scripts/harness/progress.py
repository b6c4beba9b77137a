"""Progress to stderr: a bar with an estimate of the time left, and a line for each part."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_LINE_EVERY = 60.0  # seconds
_WINDOW = 3600.0  # seconds of past work that the estimate of the time left rests on


def say(line: str) -> None:
    """Report progress where there is no bar."""
    print(line, file=sys.stderr, flush=True)


class Reporter:
    """Shows how far a run is: its parts weigh what they are estimated to cost."""

    def __init__(self, bars: Progress, task: TaskID, total: float) -> None:
        self._bars = bars
        self._task = task
        self._done = 0.0
        self._begin = self._last_line = time.monotonic()
        self._total = total

    def within(self, name: str, cost: float, share: float) -> None:
        """Show the share of a part that is done."""
        completed = self._done + min(max(share, 0.0), 1.0) * cost
        self._bars.update(self._task, completed=completed, description=name)
        if self._bars.disable and completed > 0:
            self._line(name, completed)

    def _line(self, name: str, completed: float) -> None:
        """Print a line a minute where there is no terminal to draw a bar on."""
        now = time.monotonic()
        if now - self._last_line >= _LINE_EVERY:
            self._last_line = now
            left = (now - self._begin) * (self._total / completed - 1)
            share = 100 * completed / self._total
            self.say(f"{name}: {share:.0f} %, left about {left / 60:.0f} min")

    def finished(self, name: str, cost: float, how: str) -> None:
        """Show that a part is done: ``how`` is its time, or where it was taken from."""
        self._done += cost
        self._bars.update(self._task, completed=self._done)
        self.say(f"{name}: {how}")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bars.console.print(line, markup=False, highlight=False)


@contextmanager
def reporting(total_cost: float) -> Iterator[Reporter]:
    """Show progress to stderr while the block runs."""
    console = Console(stderr=True, soft_wrap=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left about"),
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=_WINDOW,
        disable=not console.is_terminal,
    ) as bars:
        total = max(total_cost, 1e-9)
        yield Reporter(bars, bars.add_task("", total=total), total)
