"""Changes of a model whose transformers are fitted anew (`engine.preprocess.refitted`).

A change fits them to the rows that are there then. Rows whose features are other numbers afterwards
are corrected in the same step. If those are many, or there are other features, the model is fitted
to all rows. Either way the version is that of the Pipeline, within the error that is stated.
"""

from __future__ import annotations

import numpy as np

from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.fit.objective import Array, Rows, with_intercept
from lethe.engine.fitted import Fitted
from lethe.engine.preprocess.refitted import RawRows, RefittedRows


def changed(
    before: Fitted,
    held: RefittedRows,
    names: tuple[str, ...],
    new: Rows | None,
    old: tuple[str, ...],
    method: str,
) -> Fitted:
    """Return the state after rows ``new`` arrive and live rows ``old`` leave.

    Parameters
    ----------
    before, held
        The state, which stays as it is, and its rows as they were given.
    names, new
        Ids of rows that are inserted or corrected, and these (`RawRows`), if there are any.
    old
        Ids of the rows that are deleted or corrected.
    method
        The deletion method of a step.

    Raises
    ------
    InvalidData
        The transformers cannot be fitted to the rows that are left, or these have no weight.

    Notes
    -----
    Cost a fit of the transformers, and that of the step for the rows deleted, inserted, corrected
    and moved, if these are no more than the features; else of a fit of the model, O(n d^2).
    """
    raw = new if isinstance(new, RawRows) else None
    after, features = held.changed(names, raw, old)
    rows = _rows_of(before, after, features, names, raw)
    if not rows.weight.any():
        raise InvalidData(
            "no row with a weight would be left, so nothing was changed; discard the model, or "
            "insert another row before"
        )
    state = _by_step(before, held, after, rows, names, old, method)
    if state is None:
        state = after.refit(after.ids, rows, before.classes, before.columns)
        gone = tuple(name for name in before.members.place if name not in state.members.place)
        state.members = state.members.with_deleted(gone)
        state.members.class_weights = before.members.class_weights
    state.refitted = after
    return state


def _rows_of(
    before: Fitted,
    after: RefittedRows,
    features: Array,
    names: tuple[str, ...],
    raw: RawRows | None,
) -> Rows:
    """Return the rows that are there then, in the engine's form."""
    members, arriving = before.members, {name: i for i, name in enumerate(names)}
    m = members.rows.outputs
    y, weight = np.empty((len(after.ids), m)), np.empty(len(after.ids))
    arrived = np.array([name in arriving for name in after.ids], dtype=np.bool_)
    stayed = tuple(name for name in after.ids if name not in arriving)
    held = members.rows.take(members.places(stayed))
    y[~arrived], weight[~arrived] = held.y, held.weight
    if raw is not None:
        order = [arriving[name] for name in after.ids if name in arriving]
        y[arrived], weight[arrived] = raw.y[order], raw.weight[order]
    if members.balanced and members.class_weights is not None:
        weight = members.class_weights.of_rows(y)
    rows = Rows(with_intercept(features) if before.intercept else features, y, weight)
    rows.check_finite()
    return rows


def _by_step(
    before: Fitted,
    held: RefittedRows,
    after: RefittedRows,
    rows: Rows,
    names: tuple[str, ...],
    old: tuple[str, ...],
    method: str,
) -> Fitted | None:
    """Return the state after a step, in which rows with other features are corrected.

    None if the features are others, or those of too many rows, or there is no such step.
    """
    members = before.members
    d = rows.X.shape[1]
    if d != members.rows.X.shape[1] or held.names(d) != after.names(d):
        return None
    arriving = set(names)
    there = np.array([i for i, name in enumerate(after.ids) if name not in arriving], dtype=np.intp)
    made = members.rows.X[members.places(tuple(after.ids[i] for i in there))]
    moved = there[(rows.X[there] != made).any(axis=1)]
    if len(moved) > d:
        return None
    place = {name: i for i, name in enumerate(after.ids)}
    others = tuple(after.ids[i] for i in moved)
    coming = rows.take(np.array([place[name] for name in (*names, *others)], dtype=np.intp))
    going, state = (*old, *others), before.draft()
    try:
        if len(coming):
            if state.needs_refit_for(coming, going):
                return None
            state.change((*names, *others), coming, going, method)
        elif state.needs_refit(going):
            return None
        else:
            state.delete(going, method)
        _ = state.error
    except IllConditioned:
        return None
    return state
