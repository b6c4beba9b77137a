"""Rows that requests insert or correct: from the values of a request to records and to a step.

The worker takes the values from the request that it has just read; a fold reads them again
(`consumers.commits.recovery.change_requests`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.consumers.contract.events import RowsChanged, RowValue
from lethe.engine.changes import new_rows
from lethe.engine.deletion.change import RowMoves, RowsAndDuals
from lethe.engine.deletion.insertion import base_dual_rows
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import encoded_as
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.table import Table, read_table
from lethe.engine.preprocess.transformation.layout import Places
from lethe.engine.store.apply import RowsWritten
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.columns import Step
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import (
    columns_of,
    given_table,
    given_values,
    raw_columns,
    vocabularies_of,
)
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import read_rows

_KIND_OF: Mapping[Step, str] = {
    "numeric": "a number",
    "date": "a date",
    "one-hot": "a category: text, a whole number, or true or false, all of one kind",
    "ordinal": "a category: text, a whole number, or true or false, all of one kind",
    "target-encode": "a category: text, a whole number, or true or false, all of one kind",
}


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The rows of one commit that inserts or corrects.

    Attributes
    ----------
    arriving
        The rows as they are afterwards.
    corrected
        Ids of those that replace a live row.
    written
        What the store keeps of them.
    """

    arriving: RowsAndDuals
    corrected: tuple[str, ...]
    written: RowsWritten


def check_values(
    request: RowsChanged, config: ModelConfig, old_weights: Mapping[str, float]
) -> None:
    """Refuse a request whose values do not fit a model.

    Raises
    ------
    InvalidData
        They do not; the message has no value and no id.
    """
    if config.preprocess:
        table_of(request, config)
        config.weights_of(_encoded_targets(request, config))
    else:
        rows_of(request, config, old_weights)


def rows_of(request: RowsChanged, config: ModelConfig, old_weights: Mapping[str, float]) -> Rows:
    """Return a request's rows as a model has them: features in its order, an intercept last.

    ``old_weights``: of rows that are corrected, which keep theirs if none is given. The weights of
    the classes, if the model has any, come on top.

    Raises
    ------
    InvalidData
        They do not fit the model.
    """
    names = config.feature_names
    X = np.array(
        [_numbers(values_in_order(row.values, names)) for row in request.rows], dtype=np.float64
    )
    _, rows = new_rows(
        config.kind,
        X,
        _targets(request, config),
        request.row_ids,
        _own_weights(request, old_weights),
        intercept=config.fit_intercept,
        shape=(len(names), config.m),
        classes=config.class_names,
    )
    weights = config.weights_of_classes
    return rows if weights is None else weights.weighed(rows)


def _targets(request: RowsChanged, config: ModelConfig) -> ArrayLike:
    """Return the targets as the model's kind has them: numbers, or a class for each row."""
    targets = [
        row.target if isinstance(row.target, tuple) else (row.target,) for row in request.rows
    ]
    outputs = len(config.target_names)
    if any(len(target) != outputs for target in targets):
        raise InvalidData(f"a row does not have the model's {outputs} targets")
    if config.kind.has_classes:
        return [label for (label,) in targets]
    if any(isinstance(number, str) for target in targets for number in target):
        raise InvalidData("a row's target is text, and the model's targets are numbers")
    return np.array(targets, dtype=np.float64)


def _encoded_targets(request: RowsChanged, config: ModelConfig) -> Array:
    """Return the targets as rows of the model have them, k x m."""
    targets = _targets(request, config)
    if config.kind.has_classes:
        return encoded_as(targets, config.class_names)
    counts = np.asarray(targets)
    if config.kind is Kind.POISSON and (counts < 0).any():
        raise InvalidData("a row's target is below 0, and the model's targets are counts")
    return counts


def _own_weights(request: RowsChanged, old_weights: Mapping[str, float]) -> list[float]:
    return [
        old_weights.get(row.id, 1.0) if row.weight is None else row.weight for row in request.rows
    ]


def _numbers(values: Sequence[RowValue]) -> Sequence[RowValue]:
    if any(isinstance(value, str | bool | None) for value in values):
        raise InvalidData("a row has a value that is not a number")
    return values


def values_in_order(
    values: Sequence[RowValue] | Mapping[str, RowValue], names: Sequence[str]
) -> Sequence[RowValue]:
    """Return a row's values in the order of the model's features, or columns.

    Raises
    ------
    InvalidData
        It lacks one, or has another. Neither id nor values are in the error.
    """
    if isinstance(values, Mapping):
        if values.keys() != set(names):
            missing = [name for name in names if name not in values]
            extra = [name for name in values if name not in set(names)]
            which = f"lacks feature {missing[0]!r}" if missing else f"has no feature {extra[0]!r}"
            raise InvalidData(f"a row {which}" if missing else f"the model {which}")
        return [values[name] for name in names]
    if len(values) != len(names):
        raise InvalidData(f"a row has {len(values)} values; the model has {len(names)} features")
    return values


def old_weights(records: Mapping[str, bytes], config: ModelConfig) -> dict[str, float]:
    """Return the own weights of stored rows: without those of their classes, if there are any."""
    weights = {row: codec.weight_of(record) for row, record in records.items()}
    if not (config.class_weights and records):
        return weights
    y = [codec.target_of(record, config.row_width, config.m) for record in records.values()]
    of_classes = config.weights_of(np.array(y)).tolist()
    return {row: w / each for (row, w), each in zip(weights.items(), of_classes, strict=True)}


def changed_rows(
    state: ModelState,
    requests: Sequence[RowsChanged],
    records: Mapping[str, bytes],
    factor: Factor | None,
) -> ChangedRows:
    """Return the rows that requests insert or correct, with their records.

    Parameters
    ----------
    state
        The model before.
    requests
        No two of them name the same row.
    records
        The records of the rows that are corrected, as they were.
    factor
        L, for the base dual rows; None if the model waits for a rebuild, which computes them anew.

    Notes
    -----
    Cost O(k d^2) a block, two triangular solves a row.
    """
    config = state.meta.config
    weights = old_weights(records, config)
    d, h = config.d, config.blocks
    rows, given, entries = _rows_and_records(state, requests, weights)
    W, dual_error = np.zeros((len(rows), h * d)), 0.0
    if factor is not None and h and len(rows):
        W, dual_error = base_dual_rows(state.generation, factor, rows.X)
    ids = [row for request in requests for row in request.row_ids]
    written = {
        row: codec.pack_row(
            given[i], rows.y[i], float(rows.weight[i]), W[i], _next_incarnation(records.get(row))
        )
        for i, row in enumerate(ids)
    }
    inserts = [request for request in requests if request.op == "insert"]
    subjects = {
        row.id: row.subject
        for request in inserts
        for row in request.rows
        if row.subject is not None
    }
    return ChangedRows(
        RowsAndDuals(rows, W, dual_error, entries),
        tuple(row for request in requests if request.op == "correct" for row in request.row_ids),
        RowsWritten(
            tuple(row for request in inserts for row in request.row_ids),
            written,
            subjects,
            tuple(ids),
        ),
    )


def _rows_and_records(
    state: ModelState, requests: Sequence[RowsChanged], weights: Mapping[str, float]
) -> tuple[Rows, Array, Places | None]:
    """Return the rows of requests as the engine has them, as records keep them, and places."""
    config, pipeline = state.meta.config, state.pipeline
    d, m = config.d, config.m
    if not config.preprocess:
        empty = Rows(np.empty((0, d)), np.empty((0, m)), np.empty(0))
        parts = [empty, *(rows_of(request, config, weights) for request in requests)]
        X = np.vstack([part.X for part in parts])
        y = np.vstack([part.y for part in parts])
        return Rows(X, y, np.concatenate([part.weight for part in parts])), X, None
    width = len(config.preprocess)
    given = [np.empty((0, width)), *(given_values(table_of(one, config)) for one in requests)]
    values = np.vstack(given)
    y = np.vstack([np.empty((0, m)), *(_encoded_targets(one, config) for one in requests)])
    own = [w for one in requests for w in _own_weights(one, weights)]
    weight = np.array(own, dtype=np.float64) * config.weights_of(y)
    if config.exact_sums:
        table = given_table(config.preprocess, values, f"model {config.model_id!r}, changed rows")
        return raw_columns(config).rows(table, y, weight), values, None
    if pipeline is None:  # the model waits for a rebuild, which transforms them
        return Rows(np.zeros((len(y), d)), y, weight), values, None
    table = given_table(config.preprocess, values, f"model {config.model_id!r}, changed rows")
    rows, entries = pipeline.rows(table, y, weight)
    return rows, values, entries


def table_of(request: RowsChanged, config: ModelConfig) -> Table:
    """Return a request's rows as the table of a model with preprocessing.

    Raises
    ------
    InvalidData
        A value is not of its column's kind; or it is a category, or a gap, that no row had when the
        model was registered, so that it has no place. Values are not in the error.
    """
    records = config.preprocess
    columns, known = columns_of(records), iter(vocabularies_of(records))
    names = [str(name) for name in given_columns(columns)]
    listed = [values_in_order(row.values, names) for row in request.rows]
    given = dict(zip(names, zip(*listed, strict=True), strict=True))
    numbers: list[Array] = []
    codes: list[NDArray[np.int32]] = []
    for record in records:
        own = () if record.step in ("numeric", "date") else (next(known),)
        try:
            column = {record.name: columns[record.name]}
            values = {name: given[str(name)] for name in given_columns(column)}
            table = read_table(column, values, own, spelled=True)
        except InvalidData:
            raise InvalidData(
                f"column {record.name!r} has a value that is not {_KIND_OF[record.step]}"
            ) from None
        if own:
            codes.append(table.codes[:, 0])
            unplaced = bool((table.codes >= len(record.categories)).any())
        else:
            numbers.append(table.numbers[:, 0])
            unplaced = bool(np.isnan(table.numbers).any()) and not record.gaps
        if unplaced:
            raise InvalidData(
                f"column {record.name!r} has a {'category' if own else 'missing value'} that no "
                "row had when the model was registered; `lethe register --replace` makes room for "
                "it"
            )
    n = len(request.rows)
    return Table(
        np.column_stack(numbers) if numbers else np.empty((n, 0)),
        np.column_stack(codes) if codes else np.empty((n, 0), dtype=np.int32),
        vocabularies_of(records),
    )


def _next_incarnation(record: bytes | None) -> int:
    return 0 if record is None else codec.incarnation_of(record) + 1


def rows_moved(state: ModelState, changed: ChangedRows, records: Mapping[str, bytes]) -> RowMoves:
    """Return the rows as a change of the model: they arrive, and those they replace leave."""
    if not changed.corrected:
        return RowMoves(changed.arriving)
    config = state.meta.config
    what = f"model {config.model_id!r}, rows that are corrected"
    replaced = [records[row] for row in changed.corrected]
    return RowMoves(changed.arriving, read_rows(config, state.pipeline, replaced, what).moved)


def changed_sentinels(state: ModelState, changed: ChangedRows) -> Sentinels:
    """Return the live sentinels afterwards: all rows that were changed are among them."""
    names = tuple(changed.written.changed)
    kept = state.sentinels.without(frozenset(changed.corrected))
    return kept.with_rows(names, changed.arriving.rows, changed.arriving.W)
