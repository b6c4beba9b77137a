"""Training rows from a Parquet or CSV file.

Every number is checked before anything is fitted, and an error names the file's own line or row, so
that one bad line among a hundred thousand can be found. A CSV column that holds both numbers and
text is an error: if it were left out silently, one bad line would cost a feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from lethe.consumers.contract.events import RowValue
from lethe.consumers.registration.table.class_column import class_column
from lethe.consumers.registration.table.file import TableFile, column_names, open_file
from lethe.consumers.registration.table.frozen import FrozenFile
from lethe.consumers.registration.table.typed import json_values, typed_columns
from lethe.consumers.registration.table.values import (
    HELD,
    ColumnError,
    is_boolean,
    is_numeric,
    mixed,
    names_in,
    numbers,
    spells_number,
    what_it_holds,
)
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.preprocess.input import table as prepared
from lethe.engine.preprocess.input.columns import Column, Date, Numeric
from lethe.engine.preprocess.input.settings import check_outputs
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import columns_of, layout_of, recorded

MAX_FEATURES = 8_000
"""The factor is one Redis string, which holds 512 MB: 8 d^2 bytes allow d = 8,191; of C classes
8 C d^2."""

MAX_NUMBERS = 250_000_000
"""Features times rows: 2 GB of float64, and as much again for the dual rows; fewer of several
classes, which have dual rows each."""

_NAMES_SHOWN = 12

_ONE_HOT_CATEGORIES = 50
"""Number of categories up to which one-hot encoding is proposed."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The roles of the columns.

    Attributes
    ----------
    id
        Row ids (`engine.ids`), distinct.
    targets
        One column, or several for a linear model with several outputs. Of a logistic model, one
        that holds 0 and 1, or classes.
    features
        None: every numeric column that has no other role.
    subject
        Whose row it is; a row may have no subject.
    classes
        Names of the classes of the model that the rows are for, empty for 0 and 1; None if the rows
        are to make a model.
    """

    id: str
    targets: tuple[str, ...]
    features: tuple[str, ...] | None = None
    subject: str | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableRead:
    """The rows, and what each column that was left out holds instead of numbers."""

    data: TrainingData
    left_out: Mapping[str, str]


def read_table(
    path: Path,
    columns: Columns,
    kind: Kind,
    progress: Progress = no_progress,
    frozen: FrozenFile | None = None,
) -> TableRead:
    """Read and check training rows; a ``frozen`` transformer makes the features of its columns.

    Raises
    ------
    InvalidData
        The file, a column or a value cannot be used; the message says which and where. It names
        all features that cannot be used.

    Notes
    -----
    CSV: UTF-8, comma-separated, a header line, no line breaks within values.
    """
    progress(f"reading {path.name}", 0, 0)
    texts = () if frozen is None else frozen.categories
    file = open_file(path, {columns.id, columns.subject or columns.id, *texts})
    return rows_of(file, columns, kind, progress, frozen)


def rows_of(
    file: TableFile,
    columns: Columns,
    kind: Kind,
    progress: Progress = no_progress,
    frozen: FrozenFile | None = None,
) -> TableRead:
    """Return the rows of an open file, or of a block of one; raises `InvalidData`."""
    path, reading = file.path, f"reading {file.path.name}"
    if frozen is not None:
        columns = replace(columns, features=frozen.columns)
    _check_columns(file, columns, kind)
    rows = file.table.num_rows
    if rows == 0:
        raise InvalidData(f"{path}: the file has no rows; there is nothing to fit")
    ids = _ids(file, columns.id)
    special = {columns.id, columns.subject, *columns.targets}
    candidates = [name for name in file.table.column_names if name not in special]
    if columns.features is None:
        names = tuple(name for name in candidates if is_numeric(file, name))
        if not names:
            raise InvalidData(f"{path}: no numeric column is left to be a feature; see --features")
    else:
        names = columns.features
    _check_size(path, rows, len(names))
    classes, y = _targets(file, columns, kind)
    if kind is Kind.LOGISTIC:
        _check_size(path, rows, len(names), y.shape[1])
    if frozen is None:
        X = _features(file, names, reading, progress)
    else:
        names, X = frozen.features(file)
        _check_size(path, rows, len(names))
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    left_out = {
        name: what_it_holds(file, name)
        for name in candidates
        if columns.features is None and name not in names
    }
    data = TrainingData(ids, X, y, names, columns.targets, subjects, classes)
    digest = None if frozen is None else frozen.digest
    return TableRead(replace(data, frozen_transformer=digest), left_out)


def read_prepared_table(
    path: Path,
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
    progress(f"reading {path.name}", 0, 0)
    file = _opened(path, columns, kind, preprocess)
    ids = _ids(file, columns.id)
    classes, y = _targets(file, columns, kind)
    check_outputs(preprocess, kind, y.shape[1])
    given = prepared.read_table(preprocess, typed_columns(file, preprocess))
    records, table = recorded(preprocess, given)
    names = layout_of(records).names
    _check_size(path, len(ids), len(names))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidData(f"{path}: two features would be called {twice!r}; rename a column")
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    special = {columns.id, columns.subject, *columns.targets, *preprocess}
    left_out = {
        name: what_it_holds(file, name) for name in file.table.column_names if name not in special
    }
    data = TrainingData(
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
    return TableRead(data, left_out)


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows of a file to insert or correct: values in the order of the model's columns, targets."""

    ids: tuple[str, ...]
    values: Sequence[tuple[RowValue, ...]]
    y: Array
    subjects: Mapping[str, Sequence[str]]


def read_given_rows(
    path: Path, columns: Columns, config: ModelConfig, progress: Progress = no_progress
) -> GivenRows:
    """Read rows for a registered model, as requests have them.

    Raises
    ------
    InvalidData
        As `read_table`.
    """
    if not config.preprocess:
        data = read_table(path, columns, config.kind, progress).data
        return GivenRows(data.ids, [tuple(row) for row in data.X.tolist()], data.y, data.subjects)
    preprocess = columns_of(config.preprocess)
    named = {str(name): column for name, column in preprocess.items()}
    file = _opened(path, columns, config.kind, named)
    ids = _ids(file, columns.id)
    known = {record.name: record.categories for record in config.preprocess}
    typed = typed_columns(file, named, known, complete=False)
    _, y = _targets(file, columns, config.kind)
    subjects = {} if columns.subject is None else _subjects(file, columns.subject, ids)
    listed = [json_values(values) for values in typed.values()]
    return GivenRows(ids, list(zip(*listed, strict=True)), y, subjects)


def _opened(
    path: Path, columns: Columns, kind: Kind, preprocess: Mapping[str, Column]
) -> TableFile:
    """Open a file of a model with preprocessing; categories and dates of a CSV file are text."""
    texts = {
        name
        for name, column in preprocess.items()
        if isinstance(column, Date) or not isinstance(column, Numeric)
    }
    file = open_file(path, {columns.id, columns.subject or columns.id} | texts)
    _check_columns(file, replace(columns, features=tuple(preprocess)), kind)
    if file.table.num_rows == 0:
        raise InvalidData(f"{path}: the file has no rows")
    return file


def _targets(file: TableFile, columns: Columns, kind: Kind) -> tuple[tuple[str, ...], Array]:
    """Return the classes of a logistic model, and the targets, n x m."""
    if kind is Kind.LOGISTIC:
        return class_column(file, columns.targets[0], columns.classes)
    return (), np.column_stack([numbers(file, name) for name in columns.targets])


def proposed_steps(path: Path, columns: Columns) -> dict[str, str | None]:
    """Return a step for each column that could be a feature: what its values suggest.

    Of text, and of true and false: one-hot, or target-encode if there are many categories; None if
    most values have a row of their own, as names and numbers of people do. A column of which no
    step can learn, such as one of lists, has none.
    """
    file = open_file(path, {columns.id, columns.subject or columns.id})
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


def _check_columns(file: TableFile, columns: Columns, kind: Kind) -> None:
    wanted = [columns.id, *columns.targets, *(columns.features or ())]
    wanted += [columns.subject] if columns.subject is not None else []
    _check_present(file.path, file.table.column_names, wanted)
    twice = next((name for name in wanted if wanted.count(name) > 1), None)
    if twice is not None:
        raise InvalidData(f"column {twice!r} is named twice; each column has one role")
    if columns.features is not None and not columns.features:
        raise InvalidData("--features names no column")
    if kind is Kind.LOGISTIC and len(columns.targets) != 1:
        raise InvalidData("a logistic model has one target")


def _check_present(path: Path, present: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a file that has two columns of one name, or lacks one."""
    repeated = next((name for name in present if present.count(name) > 1), None)
    if repeated is not None:
        headless = "; is its header line missing?" if spells_number(repeated) else "; rename one"
        raise InvalidData(f"{path}: has more than one column {repeated!r}{headless}")
    absent = [name for name in dict.fromkeys(wanted) if name not in present]
    if absent:
        missing = [repr(name) for name in absent]
        near = get_close_matches(absent[0], present, n=1) if len(absent) == 1 else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if any(map(spells_number, present)):
            hint = hint or "; is its header line missing?"
        more = ", ..." if len(present) > _NAMES_SHOWN else ""
        shown = ", ".join(repr(name) for name in present[:_NAMES_SHOWN])
        what = f"column{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise InvalidData(f"{path}: has no {what}; it has {shown}{more}{hint}")


def _check_size(path: Path, rows: int, features: int, blocks: int = 1) -> None:
    size = f"{features} features" + (f" and {blocks} classes" if blocks > 1 else "")
    if features * blocks**0.5 > MAX_FEATURES:
        most = int(MAX_FEATURES / blocks**0.5)
        raise InvalidData(f"{path}: {size}; a model has at most {most} features")
    if rows * features * (1 + blocks) > 2 * MAX_NUMBERS:
        raise InvalidData(
            f"{path}: {rows} rows of {size} are more than {MAX_NUMBERS} numbers; name fewer "
            "--features"
        )


def _features(file: TableFile, names: Sequence[str], reading: str, progress: Progress) -> Array:
    """Return the features, n x len(names); one error reports all columns that cannot be used."""
    X = np.empty((file.table.num_rows, len(names)))
    errors: list[ColumnError] = []
    for index, name in enumerate(names):
        try:
            X[:, index] = numbers(file, name)
        except ColumnError as error:
            errors.append(mixed(file, name) or error)
        progress(reading, index + 1, len(names))
    if len(errors) > 1:
        more = f"; and {len(errors) - _NAMES_SHOWN} more" if len(errors) > _NAMES_SHOWN else ""
        shown = "; ".join(error.short for error in errors[:_NAMES_SHOWN])
        raise ColumnError(
            f"{file.path}: {len(errors)} columns cannot be used: {shown}{more}. Fill in or remove "
            "what is missing, encode text and dates as numbers, or name the columns to learn from "
            "with --features",
            f"{len(errors)} columns",
        )
    if errors:
        raise errors[0]
    return X


# -- ids ----------------------------------------------------------------------------------------


def read_ids(path: Path, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the values of the columns that make the ids of a table's rows, row by row.

    No other column is read.

    Raises
    ------
    InvalidData
        The file cannot be read, lacks a column, or has a row without an id.
    """
    _check_present(path, column_names(path), columns)
    file = open_file(path, columns, columns)
    values = [names_in(file, name, "ids") for name in columns]
    for row, blank in enumerate(None in each for each in zip(*values, strict=True)):
        if blank:
            raise InvalidData(f"{path}, {file.place(row)}: the id is empty; every row needs one")
    return tuple(tuple(str(one) for one in each) for each in zip(*values, strict=True))


def _ids(file: TableFile, name: str) -> tuple[str, ...]:
    """Return the row ids. Messages name places, never ids: those are personal data."""
    names = names_in(file, name, "ids")
    first: dict[str, int] = {}
    ids: list[str] = []
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
        ids.append(value)
    return tuple(ids)


def _subjects(file: TableFile, name: str, ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    subjects: dict[str, list[str]] = {}
    for row_id, subject in zip(ids, names_in(file, name, "subjects"), strict=True):
        if subject is not None:
            subjects.setdefault(subject, []).append(row_id)
    return subjects
