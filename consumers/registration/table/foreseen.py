"""What is known of a table before its rows are read, and what is refused for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches

import pyarrow as pa

from lethe.consumers.registration.table.file import Opened
from lethe.consumers.registration.table.frozen import FrozenFile
from lethe.consumers.registration.table.source import IN_FILES, Data, TableTooLarge
from lethe.consumers.registration.table.values import numeric_type, spells_number
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import Column, Date, Numeric

MAX_FEATURES = 8_000
"""The factor is one Redis string, which holds 512 MB: 8 d^2 bytes allow d = 8,191; of C classes
8 C d^2."""

MAX_NUMBERS = 250_000_000
"""Features times rows: 2 GB of float64, and as much again for the dual rows; fewer of several
classes, which have dual rows each."""

NAMES_SHOWN = 12
"""Columns that a message lists."""


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
class Foreseen:
    """What is known of a table before its rows are read.

    Attributes
    ----------
    opened
        Its files, with their footers or headers.
    rows
        How many it has; of CSV files one for each line, blank lines included.
    kinds
        The types of its columns; none if CSV files have to be read as text.
    numeric
        The features that are numbers by their type.
    candidates
        The columns that have no other role.
    asked
        The features that were named, or by preprocessing; the candidates if none was.
    """

    opened: Opened
    rows: int
    kinds: dict[str, pa.DataType]
    numeric: tuple[str, ...]
    candidates: tuple[str, ...]
    asked: tuple[str, ...]


def foresee(
    data: Data,
    columns: Columns,
    kind: Kind,
    preprocess: Mapping[str, Column] | FrozenFile | None = None,
    *,
    limited: bool = True,
) -> Foreseen:
    """Judge a table by its files, footers and header: no row is read, but CSV lines are counted.

    Not ``limited``: it may have any number of rows, for they are read in blocks.

    Raises
    ------
    InvalidData
        It cannot be read, lacks a column, or has more rows or features than a model can have.
    """
    columns, texts = with_preprocessing(columns, preprocess)
    opened = Opened(data)
    _check_columns(opened.path, opened.names, columns, kind)
    special = {columns.id, columns.subject, *columns.targets}
    candidates = tuple(name for name in opened.names if name not in special)
    names = candidates if columns.features is None else columns.features
    needed = [name for name in special if name is not None]
    if limited:
        opened.check_claims(None if columns.features is None else [*needed, *names])
    kinds: dict[str, pa.DataType] = {}
    with suppress(pa.ArrowInvalid):
        kinds = opened.kinds(texts)
    numeric = tuple(name for name in names if name in kinds and numeric_type(kinds[name]))
    most = MAX_NUMBERS // max(1, len(numeric)) if limited else sys.maxsize
    rows = opened.rows(most)
    counted = rows <= most or not opened.source.is_csv
    check_size(opened.path, rows if limited else 0, len(numeric), counted=counted)
    return Foreseen(opened, rows, kinds, numeric, candidates, names)


def with_preprocessing(
    columns: Columns, preprocess: Mapping[str, Column] | FrozenFile | None
) -> tuple[Columns, set[str]]:
    """Return the roles of columns, and which are text even if a CSV file has numbers there."""
    texts = {columns.id, columns.subject or columns.id}
    if isinstance(preprocess, FrozenFile):
        return replace(columns, features=preprocess.columns), texts | {*preprocess.categories}
    if preprocess is None:
        return columns, texts
    given = named_columns(preprocess)
    texts |= {
        name
        for name, column in given.items()
        if isinstance(column, Date) or not isinstance(column, Numeric)
    }
    return replace(columns, features=tuple(given)), texts


def named_columns(preprocess: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns of a table that preprocessing reads, by name."""
    return {str(name): column for name, column in given_columns(preprocess).items()}


def _check_columns(path: str, present: Sequence[str], columns: Columns, kind: Kind) -> None:
    wanted = [columns.id, *columns.targets, *(columns.features or ())]
    wanted += [columns.subject] if columns.subject is not None else []
    check_present(path, present, wanted)
    twice = next((name for name in wanted if wanted.count(name) > 1), None)
    if twice is not None:
        raise InvalidData(f"column {twice!r} is named twice; each column has one role")
    if columns.features is not None and not columns.features:
        raise InvalidData("--features names no column")
    if kind is not Kind.LINEAR and len(columns.targets) != 1:
        raise InvalidData(f"a {kind} model has one target")


def check_present(path: Data, present: Sequence[str], wanted: Sequence[str]) -> None:
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
        more = ", ..." if len(present) > NAMES_SHOWN else ""
        shown = ", ".join(repr(name) for name in present[:NAMES_SHOWN])
        what = f"column{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise InvalidData(f"{path}: has no {what}; it has {shown}{more}{hint}")


def check_size(
    path: Data, rows: int, features: int, blocks: int = 1, *, counted: bool = True
) -> None:
    """Refuse what no model can have; ``counted``: there are so many rows, else there are more."""
    size = f"{features} features" + (f" and {blocks} classes" if blocks > 1 else "")
    if features * blocks**0.5 > MAX_FEATURES:
        most = int(MAX_FEATURES / blocks**0.5)
        raise InvalidData(f"{path}: {size}; a model has at most {most} features")
    if rows * max(1, features) * (1 + blocks) > 2 * MAX_NUMBERS:
        least = "" if counted else "at least "
        raise TableTooLarge(
            f"{path}: {least}{rows} rows of {size} are more than {MAX_NUMBERS} numbers, the most "
            f"that the store takes; {IN_FILES}, name fewer --features, or register fewer rows"
        )
