"""Measure how tight the certificates and the sentinels' estimate are.

Writes results/certificates/, docs/certificates.md and its figure. Progress goes to stderr.
``--quick`` does the same small, in under a minute; its figures say nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from harness.machine import facts
from harness.progress import reporting
from harness.results import RESULTS, ROOT, Row, note, noted, read_table, write, write_table

sys.path.insert(0, str(ROOT))  # the families and the oracles are the tests' own

from threadpoolctl import threadpool_limits

from certificates import page, sentinels, summary
from tests.support.certified import many

Item = TypeVar("Item")


def _shown(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """Yield the items; show how many of them are done."""
    with reporting(total) as reporter:
        for done, item in enumerate(items):
            reporter.within(what, total, done / total)
            yield item


def _certificates(quick: bool) -> dict[str, list[Row]]:
    drawn, named = (6, 1) if quick else (100, 5)
    found = _shown(many(1, drawn, named, 9), "certificates", 24 * (4 * drawn + 13))
    states = list(found)
    return {"certificates": summary.certificates(states), "errors": summary.errors(states)}


def _sentinels(quick: bool) -> dict[str, list[Row]]:
    families = [*sentinels.FAMILIES, *sentinels.LARGER]
    sets = [(family, i) for family in families for i in range(1 if quick else 4)]
    estimates = [
        estimate
        for family, number in _shown(sets, "sentinels", len(sets))
        for estimate in sentinels.measure(family, number, 2 if quick else 6)
    ]
    return {"sentinels": summary.sentinels(estimates)}


PARTS = {"certificates": _certificates, "sentinels": _sentinels}
TABLES = ("certificates", "errors", "sentinels")


def main(arguments: Sequence[str]) -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(prog="study.py certificates", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes; without --results nothing is written")
    add("--only", choices=PARTS, help="measure this part; the tables of others stay")
    add("--render", action="store_true", help="measure nothing: write the page again")
    add("--results", type=Path, help="a directory of tables: results/certificates")
    add("--page", type=Path, default=ROOT / "docs" / "certificates.md")
    chosen = parser.parse_args(arguments)
    results: Path = chosen.results or RESULTS / "certificates"
    tables: dict[str, list[Row]] = {}
    if not chosen.render:
        parts = [chosen.only] if chosen.only else list(PARTS)
        with threadpool_limits(1):
            machine = facts()
            for part in parts:
                tables |= PARTS[part](chosen.quick)
        if chosen.quick and chosen.results is None:
            print(page.page(tables, dict.fromkeys(parts, machine)))
            return 0
        for name, rows in tables.items():
            write_table(results / f"{name}.csv", rows)
        note(results, parts, machine)
    present = [name for name in TABLES if (results / f"{name}.csv").exists()]
    tables = {name: read_table(results / f"{name}.csv") for name in present}
    text = page.page(tables, noted(results))
    print(text)
    write(chosen.page, text)
    page.draw(tables, chosen.page.parent / "images" / "certificates.png")
    return 0
