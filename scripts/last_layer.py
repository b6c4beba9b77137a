"""Delete rows from the last layer of a network, and measure what that leaves in the other layers.

Two kinds of features of scikit-learn's digits: a random layer, and the hidden layer of a network.
Writes results/last-layer.json and the tables of docs/last-layer.md. ``--quick`` measures the same
small, in seconds, and writes nothing. ``--features KIND --write FILE`` measures nothing either: it
writes the rows of the page's commands, and the ids to delete to forget.txt beside them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from harness.machine import facts
from harness.progress import say
from harness.results import ROOT, as_json, rounded, write
from harness.study import SEED
from heads import forgetting, service
from heads.features import EXTRACTORS, split, write_features
from heads.forgetting import Plan
from heads.page import filled, tables

FULL = Plan({"random": 300, "hidden": 100})
QUICK = Plan({"random": 20, "hidden": 30}, training=400, deleted=20, draws=2, served=("hidden",))


def measure(plan: Plan, seed: int) -> dict[str, Any]:
    """Measure both parts."""
    with threadpool_limits(1):
        machine = facts()
        heads = list(_shown("head", forgetting.measure(plan, seed)))
        commands = list(_shown("service", service.measure(plan, seed)))
    sizes = {"training": plan.training, "deleted": plan.deleted, "draws": plan.draws}
    return {
        "command": "make last-layer",
        "seed": seed,
        "machine": machine,
        "plan": {**sizes, **plan.units},
        "heads": heads,
        "service": commands,
    }


def _shown(part: str, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in records:
        say(f"{part}: {record['features']}: measured")
        yield rounded(record)


def write_rows(kind: str, path: Path, seed: int) -> None:
    """Write the rows that the page registers, and beside them the ids that it deletes."""
    train, _ = split(FULL.training, seed)
    units = FULL.units[kind]
    write_features(path, train, EXTRACTORS[kind](train, units, seed))
    ids = train.ids[: FULL.deleted]
    (path.parent / "forget.txt").write_text("".join(f"{one}\n" for one in ids), encoding="utf-8")
    print(f"{path}: {len(train.ids)} rows, {units} features; forget.txt: {len(ids)} ids")


def main(arguments: list[str]) -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written")
    parser.add_argument("--render", action="store_true", help="measure nothing: write the tables")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "last-layer.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "last-layer.md")
    parser.add_argument("--features", choices=EXTRACTORS, default="random", help="with --write")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write rows to register")
    chosen = parser.parse_args(arguments)
    if chosen.write is not None:
        write_rows(chosen.features, chosen.write, chosen.seed)
        return 0
    if chosen.render:
        run = json.loads(chosen.results.read_text(encoding="utf-8"))
    else:
        run = measure(QUICK if chosen.quick else FULL, chosen.seed)
    print("\n\n".join(tables(run).values()))
    if not chosen.quick:
        if not chosen.render:
            write(chosen.results, as_json(run))
        write(chosen.page, filled(chosen.page.read_text(encoding="utf-8"), run))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
