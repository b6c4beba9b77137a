"""Rows that requests insert or correct: from the values of a request to records and to a step.

The worker takes the values from the request that it has just read. A fold reads them again, from
where the commit says that they lie (`read_changes`): no commit holds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.consumers.commits.commit import RowChange
from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import RowsChanged
from lethe.consumers.log.base import PartitionReset, Reader, Record
from lethe.consumers.log.scan import scan
from lethe.engine.changes import new_rows
from lethe.engine.deletion.insertion import base_dual_rows, insert
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Stream, delete
from lethe.engine.errors import InvalidData
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.store import codec
from lethe.engine.store.apply import RowsWritten
from lethe.engine.store.state import ModelConfig, ModelState


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The rows of one commit that inserts or corrects.

    Attributes
    ----------
    rows, W, dual_error
        k rows as they are afterwards, their base dual rows (k x (h d)), and the error of those.
    corrected
        Ids of those that replace a live row.
    written
        What the store keeps of them.
    """

    rows: Rows
    W: Array
    dual_error: float
    corrected: tuple[str, ...]
    written: RowsWritten


def read_changes(reader: Reader, changes: Sequence[RowChange]) -> list[RowsChanged | None]:
    """Return the requests of a commit, read again; None for one that the log no longer has.

    A record of other bytes, in a topic that was made again, is none of them either.
    """
    partitions = {str(p): p for p in reader.partitions(topics.ROW_CHANGES)}
    found: list[RowsChanged | None] = []
    for change in changes:
        partition = partitions.get(change.partition)
        record = None
        if partition is not None:
            try:
                bounds = reader.bounds(partition)
                if bounds.begin <= change.offset < bounds.end:
                    record = next(scan(reader, partition, change.offset, change.offset + 1), None)
            except PartitionReset:
                record = None
        found.append(None if record is None else _request_in(record, change))
    return found


def digest_of(record: Record) -> str:
    """Return what a commit keeps of a request's values: the SHA-256 of the record's value."""
    return hashlib.sha256(record.value or b"").hexdigest()


def _request_in(record: Record, change: RowChange) -> RowsChanged | None:
    if digest_of(record) != change.digest:
        return None
    incoming = cloudevents.parse(record)
    return RowsChanged.model_validate({"request_id": incoming.id, **incoming.data})


def rows_of(request: RowsChanged, config: ModelConfig, old_weights: Mapping[str, float]) -> Rows:
    """Return a request's rows as a model has them: features in its order, an intercept last.

    ``old_weights``: of rows that are corrected, which keep theirs if none is given.

    Raises
    ------
    InvalidData
        They do not fit the model.
    """
    names = config.feature_names
    X = np.array([_values(row.values, row.id, names) for row in request.rows], dtype=np.float64)
    targets = [
        row.target if isinstance(row.target, tuple) else (row.target,) for row in request.rows
    ]
    if any(len(target) != config.m for target in targets):
        raise InvalidData(f"a row has not the model's {config.m} targets")
    weights = [
        old_weights.get(row.id, 1.0) if row.weight is None else row.weight for row in request.rows
    ]
    _, rows = new_rows(
        config.kind,
        X,
        np.array(targets, dtype=np.float64),
        request.row_ids,
        weights,
        intercept=config.fit_intercept,
        shape=(len(names), config.m),
        classes=config.class_names,
    )
    return rows


def _values(
    values: Sequence[float] | Mapping[str, float], row_id: str, names: Sequence[str]
) -> Sequence[float]:
    """Return a row's features in the order of the model; its id is not put into the error."""
    del row_id
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


def old_weights(records: Mapping[str, bytes]) -> dict[str, float]:
    """Return the weights of stored rows."""
    return {row: codec.weight_of(record) for row, record in records.items()}


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
    weights = old_weights(records)
    d, m, h = config.d, config.m, config.blocks
    empty = Rows(np.empty((0, d)), np.empty((0, m)), np.empty(0))
    parts = [empty, *(rows_of(request, config, weights) for request in requests)]
    rows = Rows(
        np.vstack([part.X for part in parts]),
        np.vstack([part.y for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )
    W, dual_error = np.zeros((len(rows), h * d)), 0.0
    if factor is not None and len(rows):
        W, dual_error = base_dual_rows(state.generation, factor, rows.X)
    ids = [row for request in requests for row in request.row_ids]
    written = {
        row: codec.pack_row(
            rows.X[i], rows.y[i], float(rows.weight[i]), W[i], _next_incarnation(records.get(row))
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
        rows,
        W,
        dual_error,
        tuple(row for request in requests if request.op == "correct" for row in request.row_ids),
        RowsWritten(
            state.keys.dataset(state.meta.dataset_key),
            tuple(row for request in inserts for row in request.row_ids),
            written,
            subjects,
            tuple(ids),
        ),
    )


def _next_incarnation(record: bytes | None) -> int:
    return 0 if record is None else codec.incarnation_of(record) + 1


def changed_stream(state: ModelState, changed: ChangedRows, records: Mapping[str, bytes]) -> Stream:
    """Return the stream with rows inserted, and with those that they correct left out.

    New rows come first: they only lower leverages. ``records`` has the rows as they were.

    Raises
    ------
    IllConditioned
        The step or its error is not a finite number.

    Notes
    -----
    Cost O(K k d + k^2 d).
    """
    config = state.meta.config
    method = method_named(config.method)
    step = insert(
        state.generation, state.stream, changed.rows, changed.W, method, changed.dual_error
    )
    if not changed.corrected:
        return step.stream
    what = f"model {config.model_id!r}, rows that are corrected"
    packed = [records[row] for row in changed.corrected]
    old = codec.unpack_rows(packed, config.d, config.m, what, config.blocks)
    return delete(state.generation, step.stream, old.rows, old.W, method).stream
