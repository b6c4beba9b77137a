"""``lethe sample``: data to try the commands with."""

from __future__ import annotations

import csv
import io
import math
import random
from pathlib import Path
from typing import Any

import click

from lethe.consumers.cli.terminal.options import Flags, global_options
from lethe.consumers.cli.terminal.output import Output
from lethe.engine.errors import InvalidData

_SEED = 7
_CUSTOMERS = 2_000
_COLUMNS = ("customer", "household", "months", "fee", "calls", "late_payments", "left")


@click.command(short_help="Write sample data to try the commands with.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@global_options
@click.pass_context
def sample(ctx: click.Context, /, *, file: Path, force: bool) -> None:
    """Write invented customers, and whether each left, to FILE (CSV).

    Columns: customer (u1, u2, ...), household (of one or more customers), months, fee, calls,
    late_payments, left (0 or 1). The same rows each time.

    \b
    Example:
      lethe sample churn.csv
      lethe register churn --data churn.csv --id customer --target left \\
        --subject household --kind logistic --ridge 1
    """  # noqa: D301 - click looks for the character
    if file.suffix.lower() != ".csv":
        raise InvalidData(f"{file}: the name must end in .csv")
    try:
        with file.open("w" if force else "x", encoding="utf-8", newline="") as text:
            text.write(_table())
    except FileExistsError:
        raise InvalidData(f"{file}: already exists; --force overwrites it") from None
    except OSError as error:
        raise InvalidData(f"{file}: cannot be written ({error.strerror})") from error
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"file": str(file), "rows": _CUSTOMERS})
    out.line(f"{file}: {_CUSTOMERS} customers, {', '.join(_COLUMNS)}")


def _table() -> str:
    """Return the rows as CSV."""
    dice, text = random.Random(_SEED), io.StringIO()  # noqa: S311 - the same every time
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    household = 0
    for number in range(1, _CUSTOMERS + 1):
        household += number == 1 or dice.random() < 0.6  # else one more customer in it
        writer.writerow(_customer(dice, number, household))
    return text.getvalue()


def _customer(dice: random.Random, number: int, household: int) -> tuple[Any, ...]:
    months = 1 + int(dice.expovariate(1 / 30))
    fee = round(dice.gauss(40.0, 12.0), 2)
    calls = int(dice.expovariate(1 / 1.5))
    late = int(dice.expovariate(1 / 0.8))
    score = -1.2 + 0.03 * (fee - 40.0) - 0.025 * (months - 30) + 0.35 * calls + 0.4 * late
    left = int(dice.random() < 1.0 / (1.0 + math.exp(-score)))
    return f"u{number}", f"h{household}", months, fee, calls, late, left
