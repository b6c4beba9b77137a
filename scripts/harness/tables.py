"""Tables: Markdown ones, and a study's report, on the terminal and as the page of its run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

_PIPED_WIDTH = 150
_OPTIONAL = ("iqr", "p99", "wall")
"""Columns that a section has if one of its records does."""


def table(head: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a Markdown table: the first ``left`` columns to the left, the others to the right."""
    rule = "|".join("---" if column < left else "---:" for column in range(len(head)))
    rows = [f"| {' | '.join(line)} |" for line in (head, *lines)]
    return "\n".join([rows[0], f"|{rule}|", *rows[1:]])


def machine_table(machine: Mapping[str, str]) -> str:
    """Return the facts about the machine (`harness.machine`)."""
    return table(["machine", ""], machine.items(), left=2)


def three_digits(value: float | None) -> str:
    """Return three or four digits; nothing for None."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def two_digits(value: float) -> str:
    """Return two digits, with an exponent for what is very small or large."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.2g}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def show(run: Mapping[str, Any]) -> None:
    """Print the tables of a run, its verdicts and its notes."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    for section, records in _sections(run):
        shown = Table(title=section, title_justify="left")
        names, lines = _lines(records)
        for name in names:
            text = name in {"metric", "method"}
            shown.add_column(name, justify="left" if text else "right", no_wrap=name == "metric")
        for line in lines:
            shown.add_row(*line)
        console.print(shown)
    for verdict in verdicts(run):
        console.print(verdict, markup=False)
    for note in run["notes"]:
        console.print(f"note: {note}", markup=False)


def markdown(
    run: Mapping[str, Any], made_from: str, title: str, preface: str, notes: Mapping[str, str]
) -> str:
    """Return the page of a run.

    ``made_from`` is its results file; ``notes`` say by section how its figures came about.
    """
    parts = [
        f"# {title}",
        f"Made by `{run['command']}` (seed {run['seed']}); rendered from `{made_from}`. " + preface,
        machine_table(run["machine"]),
        *(f"Note: {note}" for note in run["notes"]),
    ]
    if goals := verdicts(run):
        parts += ["## Goals", "\n".join(f"- {line}" for line in goals)]
    for section, records in _sections(run):
        head, lines = _lines(records)
        parts += [f"## {section.capitalize()}", " ".join(notes[section].split())]
        parts.append(table(head, lines, left=head.index("value")))
    return "\n\n".join(parts) + "\n"


def verdicts(run: Mapping[str, Any]) -> list[str]:
    """Return a line for each number that has a goal: the worst of its figures, and the verdict."""
    lines = []
    asked = sorted((record for record in run["records"] if "goal" in record), key=_number)
    for (section, metric, which, goal), group in groupby(asked, key=_number):
        records = list(group)
        values = [record["value"] for record in records]
        worst = min(values) if goal.startswith(">=") else max(values)
        met = sum(record["met"] for record in records)
        verdict = "met" if met == len(records) else "NOT MET"
        what = f"{section}: {metric}" + (f", {which}" if which else "")
        lines.append(
            f"{verdict}: {what}: worst {three_digits(worst)}, goal {goal}, "
            f"{met} of {len(records)} cells"
        )
    return lines


def _number(record: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return what the figures of one number have in common."""
    setting = record["setting"]
    which = str(setting.get("method", setting.get("kind", "")))
    return record["section"], record["metric"], which, record["goal"]


def _sections(run: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    grouped = groupby(run["records"], key=lambda record: record["section"])
    return [(section, list(records)) for section, records in grouped]


def _lines(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return column names and lines of one section."""
    setting = list(dict.fromkeys(name for record in records for name in record["setting"]))
    optional = [name for name in _OPTIONAL if any(name in record for record in records)]
    ranged = any("low" in record for record in records)
    asked = any("goal" in record for record in records)
    names = ["metric", *setting, "value", *(name.replace("iqr", "IQR") for name in optional)]
    names += ["range"] * ranged + ["samples", "unit"] + ["goal", "met"] * asked
    return names, [_line(record, setting, optional, ranged, asked) for record in records]


def _line(
    record: Mapping[str, Any],
    setting: Sequence[str],
    optional: Sequence[str],
    ranged: bool,
    asked: bool,
) -> list[str]:
    cells = [record["metric"], *(str(record["setting"].get(name, "")) for name in setting)]
    cells += [three_digits(record.get(name)) for name in ("value", *optional)]
    if ranged:
        ends = (three_digits(record[end]) for end in ("low", "high") if end in record)
        cells.append(" to ".join(ends))
    cells += [str(record["samples"]), record["unit"]]
    if asked:
        cells += [record.get("goal", ""), {None: "", True: "yes", False: "NO"}[record.get("met")]]
    return cells
