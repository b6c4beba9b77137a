"""Requests that came while rows of their model were missing (DATA_LOST), once the rows are back.

While they are missing nobody can say which rows a subject has, nor whether the model ever had a row
that has no record. So such a request waits with what it names, and what that is, is looked up when
a rebuild resolves it: from a backup that was restored, or the file of a --replace.
"""

from __future__ import annotations

from collections.abc import Collection

from lethe.consumers.contract.commitment import rows_commitment
from lethe.engine.store.state import DeferredRequest, ModelState
from lethe.engine.store.store import ModelStore

DATA_LOST = "DATA_LOST"
"""Code of requests that wait because rows are missing."""


def settled(
    store: ModelStore, state: ModelState, names: Collection[str]
) -> dict[str, DeferredRequest]:
    """Return requests that wait, with the rows that the model had of those that they name.

    Cost O(n) ids where one of them came while rows were missing, else nothing.
    """
    waiting = {name: state.deferred[name] for name in names}
    doubtful = {name: one for name, one in waiting.items() if one.code == DATA_LOST}
    if not doubtful:
        return waiting
    members = store.row_ids(state)
    subjects = sorted({one.subject_id for one in doubtful.values() if one.subject_id is not None})
    [rows_of] = store.subjects([(state, subjects)]) if subjects else [{}]
    for name, one in doubtful.items():
        if one.subject_id is None:
            rows = tuple(row for row in one.row_ids if row in members)
            unknown = one.rows_unknown + len(one.row_ids) - len(rows)
            changes = {"row_ids": rows, "rows_unknown": unknown}
        else:
            rows = tuple(dict.fromkeys(rows_of.get(one.subject_id, ())))
            commitment = rows_commitment(state.secret, name, rows)
            changes = {"row_ids": rows, "rows_commitment": commitment}
        waiting[name] = one.model_copy(update=changes)
    return waiting
