"""Size a load: tables, calibration, and predictions beside measured runs."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from capacity.against import against, compared
from capacity.calibration import WHERE, Calibrated, calibrate, in_files
from capacity.sizing import Load, sizes, table
from harness.machine import facts
from harness.results import Row, note, rounded, write_table


def main(options: list[str]) -> int:
    """Do what the options say; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrate", action="store_true", help="measure service times, 4 minutes")
    parser.add_argument(
        "--measure", action="store_true", help="predicted beside measured, 1 minute"
    )
    parser.add_argument("--seed", type=int, default=20210413)
    parser.add_argument("--users", type=float, help="size this load in place of the table")
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--erasures", type=float, default=1_000.0, help="a day")
    parser.add_argument("--reach", type=int, default=10, help="models that a user has a row in")
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--peak", type=float, default=10.0, help="busiest second over the mean")
    parser.add_argument("--kind", choices=("linear", "logistic"), default="linear")
    given = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        if given.calibrate:
            machine = facts() | {"seed": str(given.seed)}
            keep(calibrate(place, given.seed))
            keep(in_files(place))
            note(WHERE, ["calibration"], machine)
        if given.measure:
            machine = facts() | {"seed": str(given.seed + 1)}
            keep(against(place, given.seed + 1, Calibrated()))
            note(WHERE, ["against"], machine)
    calibrated = Calibrated()
    loads = None
    if given.users is not None:
        loads = [
            Load(
                given.users, given.models, given.erasures, given.reach,
                given.features, given.peak, given.kind,
            )
        ]  # fmt: skip
    print(table(calibrated, loads))
    print()
    print(sizes(calibrated))
    print()
    print(compared())
    return 0


def keep(measured: Iterable[tuple[str, Row]]) -> None:
    """Print rows as they come; write each table once all are there."""
    tables: dict[str, list[Row]] = {}
    for name, row in measured:
        tables.setdefault(name, []).append(rounded(row))
        if name != "spread":
            print(name, *(f"{key}={value}" for key, value in rounded(row).items()), flush=True)
    for name, rows in tables.items():
        write_table(WHERE / f"{name}.csv", rows)
