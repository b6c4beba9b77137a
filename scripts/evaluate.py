"""Attack what a deletion leaves, and run published methods beside this project's.

Shadow models (U-LiRA and KLoM), reconstruction of a deleted row from two versions, what an owner of
many rows learns, and a comparison with HF-OCU, PrIU and SISA. Writes results/evaluation.json, the
tables of docs/evaluation.md and its picture. An interrupted run goes on where it was. ``--quick``
measures the same small, in seconds, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from evaluation import comparison, owner, reconstruction, shadows
from evaluation.figures import draw
from evaluation.page import filled, tables, verdicts
from harness.machine import facts
from harness.progress import say
from harness.results import ROOT, Unfinished, as_json, rounded, write
from harness.study import SEED


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes: shadow pairs, draws of deleted rows, and the data of each part."""

    pairs: int = 1000
    draws: int = 100
    attacked: Sequence[str] = ("breast cancer", "digits 3 and 8", "synthetic", "diabetes")
    owner: str = "diabetes"
    compared: Mapping[str, comparison.Plan] = field(
        default_factory=lambda: {
            "breast cancer": comparison.Plan(),
            "synthetic": comparison.Plan(),
            "synthetic, 5000 x 100": comparison.Plan(batch=256),
        }
    )


FULL = Plan()
QUICK = Plan(
    pairs=40,
    draws=5,
    attacked=("breast cancer", "diabetes"),
    compared={"breast cancer": comparison.Plan(epochs=20, rounds=1, draws=2)},
)


def measure(plan: Plan, seed: int, kept: Unfinished | None = None) -> dict[str, Any]:
    """Measure all parts; units that ``kept`` has are not measured again."""
    records = []
    with threadpool_limits(1):
        machine = facts()
        for name, unit in _units(plan, seed).items():
            found = kept.get(name) if kept else None
            if found is None:
                found = [rounded(record) for record in unit()]
                say(f"{name}: {len(found)} records")
                if kept:
                    kept.add(name, found)
            records += found
    return {
        "command": "make evaluate",
        "seed": seed,
        "machine": machine,
        "plan": {"pairs": plan.pairs, "draws": plan.draws},
        "records": records,
    }


def _units(plan: Plan, seed: int) -> dict[str, Callable[[], Iterable[dict[str, Any]]]]:
    return {
        **{f"shadows {d}": partial(shadows.measure, d, plan.pairs, seed) for d in plan.attacked},
        **{
            f"reconstruction {d}": partial(reconstruction.measure, d, plan.draws, seed)
            for d in plan.attacked
        },
        f"owner {plan.owner}": partial(owner.measure, plan.owner, seed),
        **{
            f"comparison {d}": partial(comparison.measure, d, one, seed)
            for d, one in plan.compared.items()
        },
    }


def main(arguments: list[str]) -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written")
    parser.add_argument("--render", action="store_true", help="measure nothing: write the page")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "evaluation.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "evaluation.md")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        run = measure(QUICK, chosen.seed)
    elif chosen.render:
        run = json.loads(chosen.results.read_text(encoding="utf-8"))
    else:
        plan = json.dumps({"plan": asdict(FULL), "seed": chosen.seed})
        kept = Unfinished(chosen.results.with_suffix(".unfinished.jsonl"), plan)
        run = measure(FULL, chosen.seed, kept)
        write(chosen.results, as_json(run))
        kept.finish()
    print("\n\n".join([*tables(run["records"]).values(), *verdicts(run["records"])]))
    if not chosen.quick:
        page = chosen.page.read_text(encoding="utf-8")
        write(chosen.page, filled(page, run["records"]))
        draw(run["records"], chosen.images / "evaluation.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
