"""The tables of docs/evaluation.md, and their place in the page; all else there is by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from evaluation.deletions import METHODS
from harness.results import where
from harness.tables import table, two_digits

Record: TypeAlias = Mapping[str, Any]

GOAL = 0.05
"""How far from one half the interval of the polished model may reach, on every data set."""

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(page: str, records: Sequence[Record]) -> str:
    """Return the page with the tables of a run between their marks."""
    made = tables(records)
    return _MARKED.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}", page)


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names that their marks have."""
    return {"attacks": _attacks(records), "compared": _compared(records)}


def verdicts(records: Sequence[Record]) -> list[str]:
    """Return lines for each data set and kind of rows: the goal, and whether it is met."""
    lines = []
    for one in where(records, part="shadows", method="polished"):
        for against in ("paired", "other_half"):
            low, high = one[f"{against}_low"], one[f"{against}_high"]
            met = low >= 0.5 - GOAL and high <= 0.5 + GOAL
            lines.append(
                f"{'met' if met else 'NOT MET'}: U-LiRA, polished, {one['data']}, {one['rows']} "
                f"rows, {against.replace('_', ' ')}: {one[against]:.3f} ({low:.3f} to {high:.3f})"
            )
    return lines


def _attacks(records: Sequence[Record]) -> str:
    """Return U-LiRA for each method and data set: deleted rows, retained rows."""
    found = where(records, part="shadows")
    names = list(dict.fromkeys(one["data"] for one in found))
    lines = []
    for method in METHODS:
        cells = []
        for name in names:
            of_name = where(found, data=name, method=method)
            pair = [where(of_name, rows=rows)[0] for rows in ("deleted", "retained")]
            cells.append(", ".join(f"{one['other_half']:.2f}" for one in pair))
        largest = max(_half_width(one) for one in where(found, method=method))
        lines.append([method, *cells, f"{largest:.3f}"])
    return table(["method", *names, "largest half-width"], lines)


def _half_width(one: Record) -> float:
    return float(one["other_half_high"] - one["other_half_low"]) / 2


def _compared(records: Sequence[Record]) -> str:
    """Return the figures of the last, largest data set, for the largest deletion."""
    found = where(records, part="comparison")
    last = where(found, data=found[-1]["data"], k=found[-1]["k"])
    head = ["method", "processor time", "to its own retraining", "to the minimum", "accuracy"]
    lines = [
        [
            one["method"],
            f"{1e3 * one['seconds']:.2g} ms",
            two_digits(one["to_own_retraining"]),
            two_digits(one["to_optimum"]),
            f"{one['accuracy']:.3f}",
            f"{one['bytes'] / 1e6:.2g} MB",
        ]
        for one in last
    ]
    return table([*head, "memory"], lines)
