"""Showing a run as it happens: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # they import scikit-learn: the first line should not wait for that
    from lethe.consumers.contract.events import Receipt, RefreshInfo, RefreshRequested
    from lethe.consumers.demo.outcome import Observed
    from lethe.consumers.demo.scenario import Request
    from lethe.consumers.demo.subscriber import SeenDeadLetter

_EVENTS = 24
_BAR = 12
_NAME = 14
_OTHER_LINES = 9  # of a terminal, beside the events
_SIZE_STYLE = {"complete": "cyan", "polish": "magenta", "compact": "blue", "rebuild": "yellow"}
_ORDER = {
    "error_budget": "the error is over its budget",
    "generation": "the generation is used up",
    "deferred": "requests wait for it",
}


class View(Protocol):
    """What a run tells those who watch."""

    def status(self, what: str) -> None:
        """Say what is being done now."""

    def sent(self, request: Request) -> None:
        """Say that a request was sent."""

    def receipt(self, receipt: Receipt) -> None:
        """Show a receipt."""

    def dead_letter(self, letter: SeenDeadLetter) -> None:
        """Show a record that nobody could read."""

    def ordered(self, order: RefreshRequested) -> None:
        """Show that a refresh was ordered."""

    def version(self, seen: Observed) -> None:
        """Show a version next to retraining."""


class Silent:
    """Shows nothing: with ``--json`` the document at the end says it all."""

    def status(self, what: str) -> None:
        """Say nothing."""

    def sent(self, request: Request) -> None:
        """Say nothing."""

    def receipt(self, receipt: Receipt) -> None:
        """Say nothing."""

    def dead_letter(self, letter: SeenDeadLetter) -> None:
        """Say nothing."""

    def ordered(self, order: RefreshRequested) -> None:
        """Say nothing."""

    def version(self, seen: Observed) -> None:
        """Say nothing."""


class Lines:
    """One line a version and a refresh, and for what goes wrong."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def status(self, what: str) -> None:
        """Print what is being done now."""
        self._print(Text(what))

    def sent(self, request: Request) -> None:
        """Say nothing: the version or the receipt will."""

    def receipt(self, receipt: Receipt) -> None:
        """Print a receipt that is not APPLIED."""
        if receipt.status != "APPLIED":
            self._print(receipt_line(receipt))

    def dead_letter(self, letter: SeenDeadLetter) -> None:
        """Print it."""
        self._print(dead_letter_line(letter))

    def ordered(self, order: RefreshRequested) -> None:
        """Print it."""
        self._print(order_line(order))

    def version(self, seen: Observed) -> None:
        """Print it."""
        for line in version_lines(seen):
            self._print(line)

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class LiveTable:
    """A table with a row a model, and the last events under it; redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._now: RenderableType = Text("")
        self._newest: dict[str, Observed] = {}
        self._refreshes: dict[str, Observed] = {}
        self._events: deque[Text] = deque(maxlen=_EVENTS)
        self._live = Live(console=console, refresh_per_second=12, get_renderable=self._draw)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last picture on the screen."""
        self._now = Text("")
        self._live.stop()

    def status(self, what: str) -> None:
        """Show a spinner with what is being done now."""
        self._now = Spinner("dots", Text(what, style="dim"))

    def sent(self, request: Request) -> None:
        """Show what is asked for."""
        self._now = Spinner("dots", Text(f"{request.model_id}: {request.what}", style="dim"))

    def receipt(self, receipt: Receipt) -> None:
        """Add a receipt that is not APPLIED to the events."""
        if receipt.status != "APPLIED":
            self._add(receipt_line(receipt))

    def dead_letter(self, letter: SeenDeadLetter) -> None:
        """Add it to the events."""
        self._add(dead_letter_line(letter))

    def ordered(self, order: RefreshRequested) -> None:
        """Add it to the events."""
        self._add(order_line(order))

    def version(self, seen: Observed) -> None:
        """Update the model's row, and add the version to the events."""
        self._newest[seen.version.model_id] = seen
        if seen.version.refresh is not None:
            self._refreshes[seen.version.model_id] = seen
        for line in version_lines(seen):
            self._add(line)

    def _add(self, line: Text) -> None:
        line.no_wrap, line.overflow = True, "ellipsis"
        self._events.append(line)

    def _draw(self) -> RenderableType:
        room = max(1, self._console.height - _OTHER_LINES)
        events = list(self._events)[-room:]
        if not self._newest:
            return self._now
        return Group(self._table(), Text(""), *events, Text(""), self._now)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("model", style="bold", no_wrap=True, min_width=_NAME - 1)
        for name in ("version", "live", "deleted"):
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        table.add_column("error, budget", no_wrap=True, min_width=_BAR + 5)
        table.add_column("true error", justify="right", no_wrap=True, min_width=10)
        table.add_column("last refresh", no_wrap=True)
        for model, seen in self._newest.items():
            version = seen.version
            table.add_row(
                model,
                str(version.version),
                str(version.rows_live),
                str(version.rows_deleted),
                budget_bar(seen.error, seen.budget),
                f"{seen.true_error:.1e}",
                _last_refresh(self._refreshes.get(model)),
            )
        return table


def budget_bar(error: float | None, budget: float) -> Text:
    """Return error against budget as a bar that is full at the budget."""
    if error is None:
        return Text("━" * _BAR + "  ?  ", style="red")
    share = error / budget if budget > 0 else 1.0
    full = min(_BAR, round(share * _BAR))
    style = "red" if share > 1 else "yellow" if share > 0.6 else "green"
    bar = Text("━" * full, style=style)
    bar.append("━" * (_BAR - full), style="bright_black")
    bar.append(f"{share:5.0%}", style=style)
    return bar


def version_lines(seen: Observed) -> list[Text]:
    """Return a line about a version and its distance to retraining; one before for a refresh."""
    version = seen.version
    lines = [] if version.refresh is None else [_refresh_line(version.model_id, version.refresh)]
    line = _about(version.model_id, f"v{version.version}")
    gone = f" (-{seen.newly_deleted})" if seen.newly_deleted else ""
    line.append(f"{f'{version.rows_live} live{gone}':<15}")
    if seen.error is None:
        line.append("error unknown".ljust(13 + 18), style="red")
    else:
        over = version.error.over
        line.append(f"error {seen.error:.1e}", style="red" if over else "green")
        share = seen.error / seen.budget
        line.append(f" ({share:.0%} of budget)".ljust(18), style="red" if over else "dim")
    line.append(f"true {seen.true_error:.1e}")
    line.append(f"  {version.error.kind}", style="dim")
    if version.error.kind == "certificate" and seen.bound is not None:
        line.append(f", bound {seen.bound:.1e}", style="dim")
    return [*lines, line]


def _about(model_id: str, what: str = "") -> Text:
    """Return the beginning of a line: whom it is about."""
    line = Text()
    line.append(f"{model_id:<{_NAME}}", style="bold")
    line.append(f"{what:<5}", style="bold")
    return line


def _refresh_line(model_id: str, refresh: RefreshInfo) -> Text:
    line = _about(model_id)
    line.append(f"{refresh.size}", style=_SIZE_STYLE[refresh.size])
    line.append(f" in {_milliseconds(refresh.seconds)}: {refresh.reason}")
    return line


def receipt_line(receipt: Receipt) -> Text:
    """Return a line about a receipt."""
    line = _about(receipt.model_id)
    line.append(f"{receipt.request_id}: {receipt.status}", style="yellow")
    if receipt.code is not None:
        line.append(f" {receipt.code}", style="yellow")
    if receipt.detail is not None:
        line.append(f"  {receipt.detail}", style="dim")
    return line


def dead_letter_line(letter: SeenDeadLetter) -> Text:
    """Return a line about a record that nobody could read."""
    line = _about("dead letter")
    line.append(f"{letter.code}", style="yellow")
    line.append(f"  {letter.detail}", style="dim")
    return line


def order_line(order: RefreshRequested) -> Text:
    """Return a line about a refresh that was ordered."""
    line = _about(order.model_id)
    line.append(f"refresh ordered: {_ORDER.get(order.reason, order.reason)}")
    return line


def _last_refresh(seen: Observed | None) -> Text:
    if seen is None or seen.version.refresh is None:
        return Text("none yet", style="dim")
    refresh = seen.version.refresh
    text = Text(refresh.size, style=_SIZE_STYLE[refresh.size])
    text.append(f" {_milliseconds(refresh.seconds)}", style="dim")
    return text


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
