"""Measure how tight the certificates and the sentinels' estimate are, and what a polish costs.

Writes results/certificates.json, docs/certificates.md and its figure. Progress goes to stderr.
``--quick`` does the same small, in under a minute; its figures say nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the families and the oracles are the tests' own

from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from benchmarks.machine import facts  # noqa: E402
from certification import page, polishes, sentinels  # noqa: E402
from one_a_line import one_a_line  # noqa: E402
from tests.support.certified import State, many  # noqa: E402

PARTS = ("certificates", "sentinels", "polish")
Item = TypeVar("Item")


def _shown(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    console = Console(stderr=True)
    yield from track(items, what, total=total, console=console, disable=not console.is_terminal)


COLUMNS = ("family", "how", "argument", "bound", "true", "size", "above_rounding", "passes")


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _record(state: State) -> list[object]:
    certificate = state.certificate
    numbers = [_short(value) for value in (certificate.bound, state.true, state.size)]
    names = [state.family, state.how, certificate.argument]
    return [*names, *numbers, state.above_rounding, state.passes]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written")
    parser.add_argument("--repeats", type=int, default=30, help="timings a family (30)")
    parser.add_argument("--only", choices=PARTS, help="print one part, write nothing")
    parser.add_argument("--out", type=Path, default=ROOT, help="where results/ and docs/ are")
    asked = parser.parse_args()
    quick, wanted = asked.quick, PARTS if asked.only is None else (asked.only,)
    n, d, repeats = (600, 120, 3) if quick else (5000, 1000, asked.repeats)
    states: list[State] = []
    estimates: list[sentinels.Estimated] = []
    polished: list[polishes.Polished] = []
    with threadpool_limits(1):
        if "certificates" in wanted:
            drawn, named = (6, 1) if quick else (100, 5)
            states = list(_shown(many(1, drawn, named, 9), "certificates", 24 * (4 * drawn + 13)))
        if "sentinels" in wanted:
            sets = [(f, i) for f in sentinels.FAMILIES for i in range(1 if quick else 4)]
            sets += [(f, i) for f in sentinels.LARGER for i in range(1 if quick else 4)]
            for family, number in _shown(sets, "sentinels"):
                estimates += sentinels.measure(family, number, 2 if quick else 6)
        if "polish" in wanted:
            for family in _shown(list(polishes.FAMILIES), "polish"):
                polished.append(polishes.measure(family, n, d - 1, n // 50, repeats))
    text = page.page(states, estimates, polished, facts())
    print(text)
    if quick or asked.only is not None:
        return
    figures = asked.out / "docs/images/certificates.png"
    page.draw(states, estimates, figures)
    (asked.out / "docs/certificates.md").write_text(text)
    results = {
        "machine": facts(),
        "certificates": {"columns": COLUMNS, "rows": [_record(state) for state in states]},
        "sentinels": [asdict(one) for one in estimates],
        "polish": [asdict(one) for one in polished],
    }
    (asked.out / "results/certificates.json").write_text(one_a_line(results))


if __name__ == "__main__":
    main()
