"""Markdown tables out of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reproduction.records import Record


def select(records: Iterable[Record], **fields: Any) -> list[Record]:
    """Return the records whose fields have these values."""
    return [r for r in records if all(getattr(r, name) == v for name, v in fields.items())]


def find(records: Iterable[Record], **fields: Any) -> Record | None:
    """Return the one record whose fields have these values; None if it was not measured.

    Two such records are a defect of the experiment: ValueError.
    """
    found = select(records, **fields)
    if len(found) > 1:
        raise ValueError(f"{len(found)} records for {fields}")
    return found[0] if found else None


def distinct(records: Iterable[Record], field: str) -> list[Any]:
    """Return the values of a field, each once, sorted as they first appear."""
    return list(dict.fromkeys(getattr(record, field) for record in records))


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table: first column to the left, the others to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    rows = [header, rule, *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def two_decimals(value: float | None) -> str:
    """Return a ratio as the paper prints it; a dash where there is none."""
    return "-" if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def with_quartiles(record: Record | None) -> str:
    """Return ``0.82 (0.79 - 0.84)``, or ``0.00`` if all three print so; a dash for no record."""
    if record is None:
        return "-"
    if record.spread is None:
        return two_decimals(record.value)
    value = two_decimals(record.value)
    low, high = (two_decimals(limit) for limit in record.spread)
    return value if low == value == high else f"{value} ({low} - {high})"


def scientific(value: float | None) -> str:
    """Return two digits and an exponent, for errors."""
    return "-" if value is None else f"{value:.1e}"
