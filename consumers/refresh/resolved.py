"""The requests that wait for a rebuild, and the rows that leave with it.

While rows of a model are missing (DATA_LOST), it is unknown which rows a subject has, and whether
the model ever had a row that has no record. Such a request is therefore stored with what it names,
and its rows are looked up when a rebuild resolves it: by then a backup was restored, or the model
replaced from a file.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from itertools import accumulate

from lethe.consumers.contract import codes
from lethe.consumers.contract.commitment import rows_commitment
from lethe.consumers.versions.refresh_schedule import in_turn, resolvable
from lethe.engine.store.layout.state import DeferredRequest, ModelState
from lethe.engine.store.store import ModelStore

RESOLVED_BYTES = 256 * 1024
"""Bytes of request ids that one rebuild resolves: its version event must fit into a message."""


def to_resolve(state: ModelState) -> tuple[str, ...]:
    """Return the first deferred requests, as many as one version event can name."""
    ordered = in_turn(resolvable(state).values())
    sizes = accumulate(len(json.dumps(request.request_id)) + 1 for request in ordered)
    return tuple(
        request.request_id
        for request, size in zip(ordered, sizes, strict=True)
        if size <= RESOLVED_BYTES
    )


def rows_resolved(store: ModelStore, state: ModelState, names: Collection[str]) -> frozenset[str]:
    """Return the rows that leave with deferred requests; costs as `with_rows_resolved`."""
    requests = with_rows_resolved(store, state, names)
    return frozenset(row for request in requests.values() for row in request.row_ids)


def with_rows_resolved(
    store: ModelStore, state: ModelState, names: Collection[str]
) -> dict[str, DeferredRequest]:
    """Return deferred requests, each with those rows it names that are in the model.

    Cost O(n) ids if one of them came while rows were missing, else nothing.
    """
    deferred = {name: state.deferred[name] for name in names}
    unresolved = {
        name: request for name, request in deferred.items() if request.code == codes.DATA_LOST
    }
    if not unresolved:
        return deferred
    members = store.row_ids(state)
    subjects = sorted(
        {request.subject_id for request in unresolved.values() if request.subject_id is not None}
    )
    [rows_of] = store.subjects([(state, subjects)]) if subjects else [{}]
    for name, request in unresolved.items():
        if request.subject_id is None:
            rows = tuple(row for row in request.row_ids if row in members)
            unknown = request.rows_unknown + len(request.row_ids) - len(rows)
            changes = {"row_ids": rows, "rows_unknown": unknown}
        else:
            rows = tuple(dict.fromkeys(rows_of.get(request.subject_id, ())))
            commitment = rows_commitment(state.secret, name, rows)
            changes = {"row_ids": rows, "rows_commitment": commitment}
        deferred[name] = request.model_copy(update=changes)
    return deferred
