"""What ``lethe register`` does with ``--preprocess``, and what it proposes without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from lethe.consumers.cli.terminal.output import Output
from lethe.consumers.registration.table.foreseen import Columns, Foreseen
from lethe.consumers.registration.table.frozen import FrozenFile, read_frozen_file
from lethe.consumers.registration.table.preprocess_file import proposal, read_preprocess_file
from lethe.consumers.registration.table.reader import (
    TableRead,
    proposed_steps,
    read_prepared_table,
    read_table,
)
from lethe.consumers.registration.table.source import Data
from lethe.consumers.registration.table.values import ColumnError
from lethe.consumers.service.telemetry.progress import Progress
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Column
from lethe.engine.preprocess.input.settings import Settings, check_outputs

Preprocess = dict[str, Column] | FrozenFile


def preprocess_asked(options: dict[str, Any], kind: Kind) -> Preprocess | None:
    """Return what --preprocess says is done to each column, or a transformer; None without it.

    Raises
    ------
    InvalidData
        The file cannot be used, or the model is one that has no preprocessing in the service.
    """
    path = options["preprocess"]
    if path is None:
        return None
    if options["features"] is not None:
        raise click.UsageError("--preprocess names the columns to learn from; leave out --features")
    if path.suffix.lower() == ".skops":
        if options["certify"] is not None:
            raise InvalidData(
                "a certificate would not cover a frozen transformer, which keeps what it learnt; "
                "certify a model without one"
            )
        return read_frozen_file(path)
    refused = {
        "--method influence": options["method"] == "influence",
        "a certified model": options["certify"] is not None,
    }
    unsupported = next((what for what, given in refused.items() if given), None)
    if unsupported is not None:
        raise InvalidData(
            "--preprocess with a TOML file needs --method pru or exact and no certificate, and "
            f"does not support {unsupported}; give a fitted transformer (.skops), which stays "
            "frozen, or use the library (docs/preprocessing.md)"
        )
    columns = read_preprocess_file(path)
    with_intercept = not options["no_intercept"]
    Settings(columns, kind, options["ridge"], with_intercept, penalise_intercept=False)
    if kind is Kind.LINEAR:  # classes are known once the table is read
        check_outputs(columns, kind, len(options["targets"]))
    return columns


def read_rows(
    data: Foreseen,
    columns: Columns,
    kind: Kind,
    preprocess: Preprocess | None,
    report: Progress,
    out: Output,
) -> TableRead:
    """Read the table; if numbers are missing, propose a file for --preprocess.

    Raises
    ------
    InvalidData
        The table cannot be used.
    """
    if isinstance(preprocess, FrozenFile):
        return read_table(data, columns, kind, report, preprocess)
    if preprocess is not None:
        return read_prepared_table(data, columns, kind, preprocess, report)
    with proposing(data.opened.data, columns, out):
        return read_table(data, columns, kind, report)


@contextmanager
def proposing(data: Data, columns: Columns, out: Output) -> Iterator[None]:
    """Propose a file for --preprocess if columns that nobody named cannot be used as they are."""
    try:
        yield
    except ColumnError:
        if columns.features is None:
            out.line(proposed_file(data, columns))
        raise


def proposed_file(data: Data, columns: Columns) -> str:
    """Return a file for --preprocess to start from."""
    return (
        "# To learn from every column: save this, remove what should not be learnt from, and\n"
        f"# pass it as --preprocess.\n\n{proposal(proposed_steps(data, columns))}"
    )
