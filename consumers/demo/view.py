"""Shows a run as it happens: plain lines, or on a terminal a live table."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # these import scikit-learn, for which the first line should not wait
    from lethe.consumers.contract.events import RefreshInfo, RefreshRequested
    from lethe.consumers.contract.receipt import Receipt
    from lethe.consumers.deletions.dead_letters import DeadLetter
    from lethe.consumers.demo.observer import Observed
    from lethe.consumers.demo.scenario import Request

_EVENTS = 24
_BAR = 10
_NAME = 14
_INDENT = _NAME + 5  # of a line's text, after the model and the version
_OTHER_LINES = 9  # lines of the terminal not used for events
_SIZE_STYLE = {"complete": "cyan", "polish": "magenta", "compact": "blue", "rebuild": "yellow"}
_MEANING = {
    "complete": "publishes the exact answer, not its projection",
    "polish": "audits the exact answer, then iterates on live rows",
    "compact": "folds deleted rows into the factor and dual rows",
    "rebuild": "refits and factorises again, on the live rows",
}
_TRIGGER = {
    "error_budget": "the error budget was exceeded",
    "generation": "the generation has reached a limit",
    "deferred": "deferred requests need it",
}
_COMPLETED = (
    "* completed: the error of its projection was over the budget or unknown, so the exact answer "
    "is published"
)
_LEGEND = (
    f"{'model':<{_NAME}}{'ver.':<{_INDENT - _NAME}}live rows (newly deleted), published error "
    "(% of its budget), true error (distance to retraining), kind of published error"
)


class View:
    """Prints a line per version, per refresh, and per request that is not applied.

    Lines are folded to the console's width. What appears for the first time is explained.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._explained: set[str] = set()

    def status(self, what: str) -> None:
        """Show the current activity."""
        self._line(Text(what))

    def sent(self, request: Request) -> None:
        """Show that a request was sent; here nothing, as the version or the receipt follows."""

    def receipt(self, receipt: Receipt) -> None:
        """Show a receipt that is not APPLIED."""
        if receipt.status != "APPLIED":
            line = _about(receipt.model_id)
            line.append(f"{receipt.request_id}: {receipt.status}", "yellow")
            if receipt.code is not None:
                line.append(f" {receipt.code}", "yellow")
            if receipt.detail is not None:
                line.append(f"  {receipt.detail}", "dim")
            self._line(line)

    def dead_letter(self, letter: DeadLetter) -> None:
        """Show a record that could not be read."""
        line = _about("dead letter").append(letter.code, "yellow")
        self._line(line.append(f"  {letter.detail}", "dim"))

    def ordered(self, order: RefreshRequested) -> None:
        """Show that a refresh was scheduled."""
        trigger = _TRIGGER.get(order.reason, order.reason)
        self._line(_about(order.model_id).append(f"refresh scheduled: {trigger}"))

    def version(self, seen: Observed) -> None:
        """Show a version next to its retrained counterpart; before it, its refresh."""
        if not self._explained:
            self._explained.add("legend")
            self._line(Text(_LEGEND, "dim"))
        refresh = seen.event.refresh
        if refresh is not None:
            line = _about(seen.event.model_id).append(refresh.size, _SIZE_STYLE[refresh.size])
            self._line(line.append(f" in {_milliseconds(refresh)}: {refresh.reason}"))
            if refresh.size not in self._explained:
                self._explained.add(refresh.size)
                meaning = f"{refresh.size}: {_MEANING[refresh.size]}"
                self._line(Text(" " * _INDENT + meaning, "dim"))
        self._line(version_line(seen))
        if seen.event.completed and _COMPLETED not in self._explained:
            self._explained.add(_COMPLETED)
            self._line(Text(" " * _INDENT + _COMPLETED, "dim"))

    def _line(self, line: Text) -> None:
        """Print a line, folded; continuation lines are indented."""
        width = self._console.width
        if line.cell_len <= width:
            self._print(line)
            return
        beginning, text = line.divide([_INDENT])
        for part in text.wrap(self._console, max(width - _INDENT, 1)):
            part.rstrip()
            self._print(beginning.append_text(part))
            beginning = Text(" " * _INDENT)

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class LiveView(View):
    """A table with a row per model, and the newest lines below it; redrawn in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._now: RenderableType = Text("")
        self._newest: dict[str, Observed] = {}
        self._refreshes: dict[str, RefreshInfo] = {}
        self._events: deque[Text] = deque(maxlen=_EVENTS)
        self._live = Live(console=console, refresh_per_second=12, get_renderable=self._draw)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave the last picture on the screen."""
        self._now = Text("")
        self._live.stop()

    def status(self, what: str) -> None:
        """Show a spinner with the current activity."""
        self._now = Spinner("dots", Text(what, style="dim"))

    def sent(self, request: Request) -> None:
        """Show the request."""
        self.status(f"{request.model_id}: {request.what}")

    def version(self, seen: Observed) -> None:
        """Update the model's row, and add the version to the lines."""
        self._newest[seen.event.model_id] = seen
        if seen.event.refresh is not None:
            self._refreshes[seen.event.model_id] = seen.event.refresh
        super().version(seen)

    def _print(self, line: Text) -> None:
        line.no_wrap, line.overflow = True, "ellipsis"
        self._events.append(line)

    def _draw(self) -> RenderableType:
        if not self._newest:
            return self._now
        shown = max(1, self._console.height - _OTHER_LINES)
        return Group(self._table(), Text(""), *list(self._events)[-shown:], Text(""), self._now)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("model", style="bold", no_wrap=True, min_width=_NAME - 1)
        for name in ("version", "live", "deleted"):
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        table.add_column("error, budget", no_wrap=True, min_width=_BAR + 5)
        table.add_column("true error", justify="right", no_wrap=True, min_width=10)
        table.add_column("last refresh", no_wrap=True)
        for model, seen in list(self._newest.items()):
            event, refresh = seen.event, self._refreshes.get(model)
            counts = event.version, event.rows_live, event.rows_deleted
            last = Text("none yet", "dim")
            if refresh is not None:
                last = Text(refresh.size, _SIZE_STYLE[refresh.size])
                last.append(f" {_milliseconds(refresh)}", "dim")
            bar = budget_bar(seen.error, seen.budget)
            table.add_row(model, *map(str, counts), bar, f"{seen.true_error:.1e}", last)
        return table


def budget_bar(error: float | None, budget: float) -> Text:
    """Return the error's share of the budget as a bar that is full at the budget."""
    if error is None:
        return Text("━" * _BAR + "  ?  ", "red")
    share = error / budget if budget > 0 else 1.0
    full = min(_BAR, round(share * _BAR))
    style = "red" if share > 1 else "yellow" if share > 0.6 else "green"
    bar = Text("━" * full, style).append("━" * (_BAR - full), "bright_black")
    return bar.append(f"{share:5.0%}", style)


def version_line(seen: Observed) -> Text:
    """Return a line about a version and its distance to retraining."""
    event = seen.event
    line = _about(event.model_id, f"v{event.version}")
    deleted = f" (-{seen.newly_deleted})" if seen.newly_deleted else ""
    line.append(f"{f'{event.rows_live} live{deleted}':<15}")
    if seen.error is None:
        line.append("error unknown".ljust(13 + 8), "red")
    else:
        line.append(f"error {seen.error:.1e}", "red" if event.error.over else "green")
        share = f" ({seen.error / seen.budget:.0%})"
        line.append(share.ljust(8), "red" if event.error.over else "dim")
    line.append(f"true {seen.true_error:.1e}").append(f" {event.error.kind}", "dim")
    return line.append(" *", "cyan") if event.completed else line


def _about(model_id: str, what: str = "") -> Text:
    """Return the beginning of a line: the model, and ``what`` of it."""
    return Text().append(f"{model_id:<{_NAME}}{what:<{_INDENT - _NAME}}", "bold")


def _milliseconds(refresh: RefreshInfo) -> str:
    return f"{refresh.seconds * 1000:.1f} ms"
