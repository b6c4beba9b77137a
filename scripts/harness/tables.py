"""Tables: Markdown ones, and a section's on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from harness.records import Record

_PIPED_WIDTH = 150


def table(head: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a Markdown table: the first ``left`` columns to the left, the others to the right."""
    rule = "|".join("---" if column < left else "---:" for column in range(len(head)))
    rows = [f"| {' | '.join(line)} |" for line in (head, *lines)]
    return "\n".join([rows[0], f"|{rule}|", *rows[1:]])


def machine_table(machine: Mapping[str, str]) -> str:
    """Return the facts about the machine (`harness.machine`)."""
    return table(["machine", ""], machine.items(), left=2)


def three_digits(value: float) -> str:
    """Return three or four digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def two_digits(value: float) -> str:
    """Return two digits, with an exponent for what is very small or large."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.2g}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def show(section: str, records: Sequence[Record]) -> None:
    """Print the table of a section and its verdicts."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    shown = Table(title=section, title_justify="left")
    rows = [record.plain() for record in records]
    for name in dict.fromkeys(name for row in rows for name in ("metric", *row)):
        text = name in {"metric", "method"}
        shown.add_column(name, justify="left" if text else "right", no_wrap=name == "metric")
    for row in rows:
        shown.add_row(*(_cell(row.get(str(column.header))) for column in shown.columns))
    console.print(shown)
    for verdict in verdicts(records):
        console.print(verdict, markup=False)


def _cell(value: object) -> str:
    return three_digits(value) if isinstance(value, float) else "" if value is None else str(value)


def verdicts(records: Sequence[Record]) -> list[str]:
    """Return a line for each number that has a goal: the worst of its figures, and the verdict."""
    lines = []
    asked = sorted((record for record in records if record.goal is not None), key=_number)
    for (metric, which, goal), group in groupby(asked, key=_number):
        values = [record.value for record in group]
        met = sum(value <= goal for value in values)
        verdict = "met" if met == len(values) else "NOT MET"
        what = metric + (f", {which}" if which else "")
        worst = three_digits(max(values))
        lines.append(
            f"{verdict}: {what}: worst {worst}, goal <= {goal:g}, {met} of {len(values)} cells"
        )
    return lines


def _number(record: Record) -> tuple[str, str, float]:
    """Return what the figures of one number have in common."""
    which = str(record.setting.get("method", record.setting.get("kind", "")))
    return record.metric, which, record.goal or 0.0
