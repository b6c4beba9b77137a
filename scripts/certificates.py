"""Measure how tight the certificates and the sentinels' estimate are, and what a polish costs.

Writes results/certificates.json, docs/certificates.md and its figure. Progress goes to stderr.
``--quick`` does the same small, in under a minute, and writes nothing; its figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from harness.machine import facts
from harness.progress import reporting
from harness.results import ROOT, as_json, rounded, write

sys.path.insert(0, str(ROOT))  # the families and the oracles are the tests' own

from threadpoolctl import threadpool_limits

from certification import page, polishes, sentinels
from tests.support.certified import State, many

PARTS = ("certificates", "sentinels", "polish")
_REPEATS = 30  # timings of a polish, each family
Item = TypeVar("Item")


def _shown(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """Yield the items; show how many of them are done."""
    with reporting(total) as reporter:
        for done, item in enumerate(items):
            reporter.within(what, total, done / total)
            yield item


def _record(state: State) -> dict[str, Any]:
    certificate = state.certificate
    return rounded(
        {
            "family": state.family,
            "how": state.how,
            "argument": certificate.argument,
            "bound": certificate.bound,
            "true": state.true,
            "below": state.below,  # before both are rounded
            "size": state.size,
            "above_rounding": state.above_rounding,
            "passes": state.passes,
        }
    )


def measure(wanted: Iterable[str], *, quick: bool) -> dict[str, Any]:
    """Measure the parts that are wanted."""
    n, d, repeats = (600, 120, 3) if quick else (5000, 1000, _REPEATS)
    states: list[dict[str, Any]] = []
    estimates: list[dict[str, Any]] = []
    polished: list[dict[str, Any]] = []
    with threadpool_limits(1):
        machine = facts()
        if "certificates" in wanted:
            drawn, named = (6, 1) if quick else (100, 5)
            found = _shown(many(1, drawn, named, 9), "certificates", 24 * (4 * drawn + 13))
            states = [_record(state) for state in found]
        if "sentinels" in wanted:
            families = [*sentinels.FAMILIES, *sentinels.LARGER]
            sets = [(family, i) for family in families for i in range(1 if quick else 4)]
            for family, number in _shown(sets, "sentinels", len(sets)):
                estimates += map(asdict, sentinels.measure(family, number, 2 if quick else 6))
        if "polish" in wanted:
            for family in _shown(polishes.FAMILIES, "polish", len(polishes.FAMILIES)):
                polished.append(asdict(polishes.measure(family, n, d - 1, n // 50, repeats)))
    return {
        "machine": machine,
        "certificates": {
            "columns": list(states[0]) if states else [],
            "rows": [list(state.values()) for state in states],
        },
        "sentinels": estimates,
        "polish": polished,
    }


def main(arguments: list[str]) -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written")
    parser.add_argument("--only", choices=PARTS, help="print one part, write nothing")
    parser.add_argument("--render", action="store_true", help="measure nothing: write the page")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "certificates.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "certificates.md")
    chosen = parser.parse_args(arguments)
    if chosen.render:
        run = json.loads(chosen.results.read_text(encoding="utf-8"))
    else:
        run = measure([chosen.only] if chosen.only else PARTS, quick=chosen.quick)
    text = page.page(run)
    print(text)
    if not (chosen.quick or chosen.only):
        page.draw(run, chosen.page.parent / "images" / "certificates.png")
        write(chosen.page, text)
        if not chosen.render:
            write(chosen.results, as_json(run))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
