"""Shows a run as it happens: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # these import scikit-learn, for which the first line should not wait
    from lethe.consumers.contract.events import Receipt, RefreshInfo, RefreshRequested
    from lethe.consumers.demo.outcome import Observed
    from lethe.consumers.demo.scenario import Request
    from lethe.consumers.demo.subscriber import SeenDeadLetter

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
    "error_budget": "the error exceeds its budget",
    "generation": "the generation has reached a limit",
    "deferred": "deferred requests need it",
}
_LEGEND = (
    f"{'model':<{_NAME}}{'ver.':<{_INDENT - _NAME}}live rows (newly deleted), published error "
    "(% of its budget), true error (distance to retraining), kind of published error"
)


class View(Protocol):
    """What a run reports to its viewers."""

    def status(self, what: str) -> None:
        """Show the current activity."""

    def sent(self, request: Request) -> None:
        """Show that a request was sent."""

    def receipt(self, receipt: Receipt) -> None:
        """Show a receipt."""

    def dead_letter(self, letter: SeenDeadLetter) -> None:
        """Show a record that could not be read."""

    def ordered(self, order: RefreshRequested) -> None:
        """Show that a refresh was scheduled."""

    def version(self, seen: Observed) -> None:
        """Show a version next to its retrained counterpart."""


class Silent:
    """Shows nothing: with ``--json``, the document at the end has everything."""

    def status(self, what: str) -> None:
        """Show nothing."""

    def sent(self, request: Request) -> None:
        """Show nothing."""

    def receipt(self, receipt: Receipt) -> None:
        """Show nothing."""

    def dead_letter(self, letter: SeenDeadLetter) -> None:
        """Show nothing."""

    def ordered(self, order: RefreshRequested) -> None:
        """Show nothing."""

    def version(self, seen: Observed) -> None:
        """Show nothing."""


class Lines:
    """Prints a line per version, per refresh, and per request that is not applied."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._explained: set[str] = set()

    def status(self, what: str) -> None:
        """Print the current activity."""
        self._print(Text(what))

    def sent(self, request: Request) -> None:
        """Print nothing: the version or the receipt follows."""

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
        for line in explained_lines(seen, self._explained):
            self._print(line)

    def _print(self, line: Text) -> None:
        for part in folded(line, self._console):
            self._console.print(part, soft_wrap=True)


class LiveTable:
    """A table with a row per model, and the latest events below it; redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._now: RenderableType = Text("")
        self._newest: dict[str, Observed] = {}
        self._refreshes: dict[str, Observed] = {}
        self._events: deque[Text] = deque(maxlen=_EVENTS)
        self._explained: set[str] = set()
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
        """Show a spinner with the current activity."""
        self._now = Spinner("dots", Text(what, style="dim"))

    def sent(self, request: Request) -> None:
        """Show the request."""
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
        for line in explained_lines(seen, self._explained):
            self._add(line)

    def _add(self, line: Text) -> None:
        for part in folded(line, self._console):
            part.no_wrap, part.overflow = True, "ellipsis"
            self._events.append(part)

    def _draw(self) -> RenderableType:
        room = max(1, self._console.height - _OTHER_LINES)
        events = list(self._events)[-room:]
        if not self._newest:
            return self._now
        return Group(self._table(), Text(""), *events, Text(""), self._now)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
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
    """Return the error's share of the budget as a bar that is full at the budget."""
    if error is None:
        return Text("━" * _BAR + "  ?  ", style="red")
    share = error / budget if budget > 0 else 1.0
    full = min(_BAR, round(share * _BAR))
    style = "red" if share > 1 else "yellow" if share > 0.6 else "green"
    bar = Text("━" * full, style=style)
    bar.append("━" * (_BAR - full), style="bright_black")
    bar.append(f"{share:5.0%}", style=style)
    return bar


def explained_lines(seen: Observed, explained: set[str]) -> list[Text]:
    """Return `version_lines`, and explain what appears for the first time.

    ``explained`` holds what was explained before, and is updated.
    """
    lines = version_lines(seen)
    refresh = seen.version.refresh
    if refresh is not None and refresh.size not in explained:
        explained.add(refresh.size)
        lines.insert(1, Text(" " * _INDENT + f"{refresh.size}: {_MEANING[refresh.size]}", "dim"))
    if "legend" not in explained:
        explained.add("legend")
        lines.insert(0, Text(_LEGEND, "dim"))
    return lines


def folded(line: Text, console: Console) -> list[Text]:
    """Return a line folded to the console's width; continuation lines are indented."""
    if line.cell_len <= console.width:
        return [line]
    head, text = line.divide([_INDENT])
    parts = text.wrap(console, max(console.width - _INDENT, 1))
    for part in parts:
        part.rstrip()
    first, *others = parts
    return [head.append_text(first), *(Text(" " * _INDENT).append_text(part) for part in others)]


def version_lines(seen: Observed) -> list[Text]:
    """Return a line about a version and its distance to retraining; before it, its refresh."""
    version = seen.version
    lines = [] if version.refresh is None else [_refresh_line(version.model_id, version.refresh)]
    line = _about(version.model_id, f"v{version.version}")
    gone = f" (-{seen.newly_deleted})" if seen.newly_deleted else ""
    line.append(f"{f'{version.rows_live} live{gone}':<15}")
    if seen.error is None:
        line.append("error unknown".ljust(13 + 8), style="red")
    else:
        over = version.error.over
        line.append(f"error {seen.error:.1e}", style="red" if over else "green")
        share = seen.error / seen.budget
        line.append(f" ({share:.0%})".ljust(8), style="red" if over else "dim")
    line.append(f"true {seen.true_error:.1e}")
    line.append(f" {version.error.kind}", style="dim")
    return [*lines, line]


def _about(model_id: str, what: str = "") -> Text:
    """Return the beginning of a line: the model, and ``what`` of it."""
    line = Text()
    line.append(f"{model_id:<{_NAME}}", style="bold")
    line.append(f"{what:<{_INDENT - _NAME}}", style="bold")
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
    """Return a line about a record that could not be read."""
    line = _about("dead letter")
    line.append(f"{letter.code}", style="yellow")
    line.append(f"  {letter.detail}", style="dim")
    return line


def order_line(order: RefreshRequested) -> Text:
    """Return a line about a scheduled refresh."""
    line = _about(order.model_id)
    line.append(f"refresh scheduled: {_TRIGGER.get(order.reason, order.reason)}")
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
