"""Training rows from Parquet or CSV files.

Every number is checked before anything is fitted, and an error names the file's own line or row, so
that one bad line among a hundred thousand can be found. A CSV column that holds both numbers and
text is an error: if it were left out silently, one bad line would cost a feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from lethe.consumers.contract.events import RowValue
from lethe.consumers.registration.coding import Coding
from lethe.consumers.registration.table.class_column import class_column
from lethe.consumers.registration.table.file import Opened, TableFile, column_names, open_file
from lethe.consumers.registration.table.foreseen import (
    NAMES_SHOWN,
    Columns,
    Foreseen,
    check_present,
    check_size,
    foresee,
    named_columns,
    with_preprocessing,
)
from lethe.consumers.registration.table.frozen import FrozenFile
from lethe.consumers.registration.table.numeric import Streamed, stream
from lethe.consumers.registration.table.parquet import changed
from lethe.consumers.registration.table.source import Data
from lethe.consumers.registration.table.typed import json_values, typed_columns
from lethe.consumers.registration.table.values import (
    HELD,
    ColumnError,
    is_boolean,
    is_numeric,
    mixed,
    names_in,
    numbers,
    what_it_holds,
)
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.preprocess.input import table as prepared
from lethe.engine.preprocess.input.columns import Column
from lethe.engine.preprocess.input.derived import (
    Same,
)
from lethe.engine.preprocess.input.settings import check_outputs
from lethe.engine.preprocess.input.sources import sources
from lethe.engine.store.layout.columns import NUMERIC
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import columns_of, layout_of, recorded

__all__ = [
    "Columns",
    "GivenRows",
    "TableRead",
    "foresee",
    "proposed_steps",
    "read_given_rows",
    "read_ids",
    "read_prepared_table",
    "read_rows",
    "read_table",
]

_ONE_HOT_CATEGORIES = 50
"""Number of categories up to which one-hot encoding is proposed."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """The rows, and what each column that was left out holds instead of numbers."""

    data: TrainingData
    left_out: Mapping[str, str]


def read_table(
    data: Data | Foreseen,
    columns: Columns,
    kind: Kind,
    progress: Progress = no_progress,
    frozen: FrozenFile | None = None,
) -> TableRead:
    """Read and check training rows; a ``frozen`` transformer makes the features of its columns.

    Raises
    ------
    InvalidData
        The table, a column or a value cannot be used; the message says which and where. It names
        all features that cannot be used.

    Notes
    -----
    CSV: UTF-8, comma-separated, a header line, no line breaks within values. Cost O(n p): the
    features are in memory once.
    """
    foreseen = data if isinstance(data, Foreseen) else foresee(data, columns, kind, frozen)
    columns, texts = with_preprocessing(columns, frozen)
    path = foreseen.opened.path
    streamed = None
    if frozen is None:
        streamed = _streamed(foreseen, columns, progress)
        file = streamed.rest
    else:
        progress(f"reading {foreseen.opened.source.name}", 0, 0)
        file = foreseen.opened.whole(texts)
    rows = file.table.num_rows
    if rows == 0:
        raise InvalidData(f"{path}: the file has no rows; there is nothing to fit")
    ids = _ids(file, columns.id)
    names = columns.features or tuple(
        name for name in foreseen.candidates if name in foreseen.numeric or is_numeric(file, name)
    )
    if not names:
        raise InvalidData(f"{path}: no numeric column is left to be a feature; see --features")
    check_size(path, rows, len(names))
    classes, y = _targets(file, columns, kind)
    if kind.has_classes:
        check_size(path, rows, len(names), y.shape[1])
    design = None
    if streamed is not None:
        design = _design(streamed, foreseen.opened, names)
        X = design[:, :-1]
    elif frozen is not None:
        names, X = frozen.features(file)
        check_size(path, rows, len(names))
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    left_out = {
        name: what_it_holds(file, name)
        for name in foreseen.candidates
        if columns.features is None and name not in names
    }
    digest = None if frozen is None else frozen.digest
    data_read = TrainingData(
        ids, X, y, names, columns.targets, subjects, classes,
        frozen_transformer=digest, design=design,
    )  # fmt: skip
    return TableRead(data_read, left_out)


def read_rows(
    data: Foreseen,
    columns: Columns,
    kind: Kind,
    preprocess: Mapping[str, Column] | FrozenFile | None,
    progress: Progress = no_progress,
) -> TableRead:
    """Read and check training rows, whatever is done to their columns; see the two functions."""
    if preprocess is None or isinstance(preprocess, FrozenFile):
        return read_table(data, columns, kind, progress, preprocess)
    return read_prepared_table(data, columns, kind, preprocess, progress)


def rows_in(
    file: TableFile,
    columns: Columns,
    coding: Coding | None = None,
    frozen: FrozenFile | None = None,
) -> TrainingData:
    """Return the rows of a block of a table, with the named features.

    Of a logistic model, the classes are known, and of others there are none.

    With preprocessing, ``coding`` makes of its columns what X then has; a ``frozen`` transformer
    makes the features.

    Raises
    ------
    InvalidData
        A value cannot be used; the message says which and where.
    """
    ids, names = _ids(file, columns.id), columns.features or ()
    if frozen is not None:
        names, X = frozen.features(file)
    elif coding is None:
        X = np.column_stack([numbers(file, name) for name in names])
    else:
        X = coding.coded(typed_columns(file, coding.given, complete=False, as_written=True))
    kind = Kind.LINEAR if columns.classes is None else Kind.LOGISTIC
    classes, y = _targets(file, columns, kind)
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    return TrainingData(ids, X, y, names, columns.targets, subjects, classes, coding=coding)


def _streamed(foreseen: Foreseen, columns: Columns, progress: Progress) -> Streamed:
    """Read a table: what is numbers by its type into an array, the rest as it is."""
    opened, numeric = foreseen.opened, foreseen.numeric
    reading = f"reading {opened.source.name}"
    progress(reading, 0, 0)
    wanted = foreseen.candidates if columns.features is None else columns.features
    others = {columns.id, *columns.targets, *wanted} - set(numeric)
    others |= set() if columns.subject is None else {columns.subject}
    if foreseen.kinds:
        with suppress(pa.ArrowInvalid):  # of CSV only: Parquet has types
            return stream(
                opened,
                foreseen.kinds,
                numeric,
                others,
                foreseen.rows,
                lambda done: progress(reading, done, foreseen.rows),
            )
    rest = opened.as_text()
    return Streamed(rest, (), np.ones((rest.table.num_rows, 1)), ())


def read_prepared_table(
    data: Data | Foreseen,
    columns: Columns,
    kind: Kind,
    preprocess: Mapping[str, Column],
    progress: Progress = no_progress,
) -> TableRead:
    """Read and check training rows of a model with preprocessing, as they are given.

    What a column of categories holds in a CSV file follows from its text
    (`engine.preprocess.input.spelling`).

    Raises
    ------
    InvalidData
        As `read_table`.
    """
    file = _opened(data, columns, kind, preprocess, progress)
    path = file.path
    ids = _ids(file, columns.id)
    classes, y = _targets(file, columns, kind)
    check_outputs(preprocess, y.shape[1])
    read = named_columns(preprocess)
    given = prepared.read_table(preprocess, typed_columns(file, read))
    records, table = recorded(preprocess, given)
    names = layout_of(records).names
    check_size(path, len(ids), len(names))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidData(f"{path}: two features would be called {twice!r}; rename a column")
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    special = {columns.id, columns.subject, *columns.targets, *read}
    left_out = {
        name: what_it_holds(file, name) for name in file.table.column_names if name not in special
    }
    rows = TrainingData(
        ids,
        np.empty((len(ids), 0)),
        y,
        names,
        columns.targets,
        subjects,
        classes,
        preprocess=records,
        table=table,
    )
    return TableRead(rows, left_out)


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows of a file to insert or correct: values in the order of the table's columns, targets."""

    ids: tuple[str, ...]
    values: Sequence[tuple[RowValue, ...]]
    y: Array
    subjects: Mapping[str, Sequence[str]]

    def take(self, places: Sequence[int]) -> GivenRows:
        """Return the rows at these places."""
        return GivenRows(
            tuple(self.ids[i] for i in places),
            [self.values[i] for i in places],
            self.y[list(places)],
            self.subjects,
        )


def read_given_rows(
    path: Data, columns: Columns, config: ModelConfig, progress: Progress = no_progress
) -> GivenRows:
    """Read rows for a registered model, as requests have them.

    Raises
    ------
    InvalidData
        As `read_table`; or a frozen transformer makes the model's features, and has not made these.
    """
    if not config.preprocess:
        there = column_names(path) if config.frozen_transformer is not None else ()
        absent = [name for name in config.feature_names if there and name not in there]
        if absent:
            raise InvalidData(
                f"{path}: has no column {absent[0]!r}, which the frozen transformer makes; give "
                "the rows as it transforms them, with their ids and targets"
            )
        data = read_table(path, columns, config.kind, progress).data
        return GivenRows(data.ids, [tuple(row) for row in data.X.tolist()], data.y, data.subjects)
    preprocess = columns_of(config.preprocess)
    named = {str(name): column for name, column in preprocess.items()}
    file = _opened(path, columns, config.kind, named, progress)
    ids = _ids(file, columns.id)
    known = {
        str(name): record.categories
        for record in config.preprocess
        if record.step not in NUMERIC
        for name in sources(named[record.name].of or Same(record.name))
    }
    typed = typed_columns(file, named_columns(named), known, complete=False)
    _, y = _targets(file, columns, config.kind)
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    listed = [json_values(values) for values in typed.values()]
    return GivenRows(ids, list(zip(*listed, strict=True)), y, subjects)


def _opened(
    data: Data | Foreseen,
    columns: Columns,
    kind: Kind,
    preprocess: Mapping[str, Column],
    progress: Progress,
) -> TableFile:
    """Read a table of a model with preprocessing; categories and dates of CSV files are text."""
    foreseen = data if isinstance(data, Foreseen) else foresee(data, columns, kind, preprocess)
    progress(f"reading {foreseen.opened.source.name}", 0, 0)
    file = foreseen.opened.whole(with_preprocessing(columns, preprocess)[1])
    if file.table.num_rows == 0:
        raise InvalidData(f"{file.path}: the file has no rows")
    return file


def _targets(file: TableFile, columns: Columns, kind: Kind) -> tuple[tuple[str, ...], Array]:
    """Return the classes of a classifier, and the targets, n x m."""
    if kind.has_classes:
        return class_column(file, columns.targets[0], columns.classes)
    return (), np.column_stack([numbers(file, name) for name in columns.targets])


def proposed_steps(path: Data, columns: Columns) -> dict[str, str | None]:
    """Return a step for each column that could be a feature: what its first values suggest.

    Of text, and of true and false: one-hot, or target-encode if there are many categories; None if
    most values have a row of their own, as names and numbers of people do. A column of which no
    step can learn, such as one of lists, has none.
    """
    file = Opened(path).head({columns.id, columns.subject or columns.id})
    special = {columns.id, columns.subject, *columns.targets}
    held = {name: what_it_holds(file, name) for name in file.table.column_names}
    return {
        name: _proposed(file, name, what)
        for name, what in held.items()
        if name not in special and what in HELD
    }


def _proposed(file: TableFile, name: str, what: str) -> str | None:
    if is_boolean(file, name):
        return "one-hot"
    if is_numeric(file, name) or what.startswith("numbers"):
        return "numeric"
    if what == "dates":
        return "date"
    distinct = len(file.table.column(name).unique())
    if distinct <= _ONE_HOT_CATEGORIES:
        return "one-hot"
    return "target-encode" if distinct <= file.table.num_rows / 2 else None


# -- which columns ------------------------------------------------------------------------------


def _design(streamed: Streamed, opened: Opened, names: Sequence[str]) -> Array:
    """Return the features and a column of ones, n x (p + 1).

    One error reports all columns that cannot be used.
    """
    if names == streamed.names and not streamed.bad:
        return streamed.design
    # Numbers that a CSV file has as text, or something wrong: both are rare, and cost a copy.
    places = {name: place for place, name in enumerate(streamed.names)}
    again = opened.whole((), streamed.bad) if streamed.bad else streamed.rest
    design = np.ones((len(streamed.design), len(names) + 1))
    errors: list[ColumnError] = []
    for index, name in enumerate(names):
        if name in places and name not in streamed.bad:
            design[:, index] = streamed.design[:, places[name]]
            continue
        file = again if name in streamed.bad else streamed.rest
        try:
            design[:, index] = numbers(file, name)
        except ColumnError as error:
            errors.append(mixed(file, name) or error)
    if len(errors) > 1:
        more = f"; and {len(errors) - NAMES_SHOWN} more" if len(errors) > NAMES_SHOWN else ""
        shown = "; ".join(error.short for error in errors[:NAMES_SHOWN])
        raise ColumnError(
            f"{opened.path}: {len(errors)} columns cannot be used: {shown}{more}. Fill in or "
            "remove what is missing, encode text and dates as numbers, or name the columns to "
            "learn from with --features",
            f"{len(errors)} columns",
        )
    if errors:
        raise errors[0]
    if streamed.bad:
        raise changed(opened.path)
    return design


# -- ids ----------------------------------------------------------------------------------------


def read_ids(path: Data, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the values of the columns that make the ids of a table's rows, row by row.

    No other column is read.

    Raises
    ------
    InvalidData
        The file cannot be read, lacks a column, or has a row without an id.
    """
    check_present(path, column_names(path), columns)
    file = open_file(path, columns, columns)
    values = [names_in(file, name, "ids") for name in columns]
    for row, blank in enumerate(None in each for each in zip(*values, strict=True)):
        if blank:
            raise InvalidData(f"{path}, {file.place(row)}: the id is empty; every row needs one")
    return tuple(tuple(str(one) for one in each) for each in zip(*values, strict=True))


def _ids(file: TableFile, name: str) -> tuple[str, ...]:
    """Return the row ids. Messages name places, never ids: those are personal data."""
    names = names_in(file, name, "ids")
    distinct = set(names)
    if len(distinct) == len(names) and None not in distinct:
        return tuple(cast("list[str]", names))
    first: dict[str, int] = {}
    for row, value in enumerate(names):
        if value is None:
            raise InvalidData(
                f"{file.path}, {file.place(row)}: the id is empty; every row needs one"
            )
        if value in first:
            places = f"{file.place(first[value])} and {file.place(row)}"
            raise InvalidData(
                f"{file.path}: {places} have the same id in column {name!r}; each row needs its "
                f"own. If {name!r} says whose a row is, give it with --subject, and with --id a "
                "column that differs in each row"
            )
        first[value] = row
    raise AssertionError("some id is empty or there twice")


def _subjects(file: TableFile, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    subjects: dict[str, list[str]] = {}
    for row_id, subject in zip(ids, names_in(file, name, "subjects"), strict=True):
        if subject is not None:
            subjects.setdefault(subject, []).append(row_id)
    return subjects
