"""What ``lethe register`` does with ``--preprocess``, and what it proposes without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from lethe.consumers.cli.terminal.output import Output
from lethe.consumers.registration.table.foreseen import Columns
from lethe.consumers.registration.table.frozen import FrozenFile, read_frozen_file
from lethe.consumers.registration.table.preprocess_file import proposal, read_preprocess_file
from lethe.consumers.registration.table.reader import proposed_steps
from lethe.consumers.registration.table.source import Data
from lethe.consumers.registration.table.values import ColumnError
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Column
from lethe.engine.preprocess.input.settings import Settings, check_outputs
from lethe.engine.store.layout.preprocessing import check_served

if TYPE_CHECKING:  # scikit-learn takes a second
    from lethe.consumers.registration.fitted_estimator import FittedEstimator

Preprocess = dict[str, Column] | FrozenFile

_UNCERTIFIED = (
    "a certificate would not cover a frozen transformer, which keeps what it learnt; certify a "
    "model without one"
)


def preprocess_asked(
    options: dict[str, Any], kind: Kind, fitted: FittedEstimator | None, out: Output
) -> Preprocess | None:
    """Return what is done to each column, or a transformer that stays as it is; None if nothing.

    It is what --preprocess says, or a ``fitted`` estimator.

    Raises
    ------
    InvalidData
        The file cannot be used, or the model is one that has no preprocessing in the service.
    """
    path = options["preprocess"]
    asked: Preprocess | None = None
    if path is not None:
        if options["features"] is not None:
            raise click.UsageError(
                "--preprocess names the columns to learn from; leave out --features"
            )
        frozen = path.suffix.lower() == ".skops"
        if frozen and options["certify"] is not None:
            raise InvalidData(_UNCERTIFIED)
        asked = read_frozen_file(path) if frozen else read_preprocess_file(path)
    elif fitted is not None:
        asked = fitted.preprocess
    if asked is None:
        return None
    if isinstance(asked, FrozenFile):
        if options["certify"] is not None:
            raise InvalidData(_UNCERTIFIED)
        if asked.dropped is not None:
            out.line(f"{asked.path}: the last step, {asked.dropped!r}, is left out")
        return asked
    refused = {
        "--method influence": options["method"] == "influence",
        "a certified model": options["certify"] is not None,
    }
    unsupported = next((what for what, given in refused.items() if given), None)
    if unsupported is not None:
        raise InvalidData(
            "preprocessing inside a model needs --method pru or exact and no certificate, and "
            f"does not support {unsupported}; give a fitted transformer (.skops), which stays "
            "frozen, or use the library (docs/preprocessing.md)"
        )
    check_served(kind)
    with_intercept = not options["no_intercept"]
    Settings(asked, kind, options["ridge"], with_intercept, penalise_intercept=False)
    if kind is Kind.LINEAR:  # classes are known once the table is read
        check_outputs(asked, len(options["targets"]))
    return asked


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
