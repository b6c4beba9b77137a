"""Changes of a model whose transformers are fitted anew (`engine.preprocess.refitted`).

A change fits them to the rows that are there then. Rows whose features are other numbers afterwards
are corrected in the same step. If those are many, or there are other features, the model is fitted
to all rows. Either way the version is that of the Pipeline, within the error that is stated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.fit.classes import one_sided
from lethe.engine.fit.objective import Array, Rows, with_intercept
from lethe.engine.fitted import Fitted
from lethe.engine.preprocess.refitted import RawRows, RefittedRows


def changed(
    before: Fitted,
    held: RefittedRows,
    names: tuple[str, ...],
    new: Rows | None,
    old: tuple[str, ...],
    method: str | None,
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
        The deletion method of a step; None for a fit.

    Raises
    ------
    InvalidData
        The transformers cannot be fitted to the rows that are left, or these have no weight.
    IllConditioned, NotConverged
        The model cannot be fitted to them.

    Notes
    -----
    Cost a fit of the transformers, and that of the step for the rows deleted, inserted, corrected
    and moved, if these are no more than the features; else of a fit of the model, O(n d^2).
    """
    n, raw = len(held.ids), new if isinstance(new, RawRows) else None
    after, features, origin = held.changed(names, raw, old)
    places = before.members.places(held.ids)
    rows = _rows_of(before, raw, features, origin, places)
    if not rows.weight.any():
        raise InvalidData(
            "no row with a weight would be left, so nothing was changed; discard the model, or "
            "insert another row before"
        )
    state, (d, p) = None, (rows.X.shape[1], features.shape[1])
    same = d == before.members.rows.X.shape[1] and held.names(p) == after.names(p)
    if method is not None and same and _allows_step(before, rows, places):
        stayed = np.flatnonzero(origin < n)
        made = before.members.rows.X[places[origin[stayed]]]
        moved = stayed[(rows.X[stayed] != made).any(axis=1)]
        if len(moved) <= d:
            arrived = np.flatnonzero(origin >= n)
            arrived = arrived[np.argsort(origin[arrived])]  # in the order of their names
            coming = rows.take(np.concatenate([arrived, moved]))
            also = tuple(after.ids[i] for i in moved)
            state = _by_step(before, (*names, *also), coming, (*old, *also), method)
    if state is None:
        state = after.refit(after.ids, rows, before.classes, before.columns)
        gone = tuple(name for name in before.members.place if name not in state.members.place)
        state.members = state.members.with_deleted(gone)
        state.members.class_weights = before.members.class_weights
    state.refitted = after
    return state


def _rows_of(
    before: Fitted,
    raw: RawRows | None,
    features: Array,
    origin: NDArray[np.intp],
    places: NDArray[np.intp],
) -> Rows:
    """Return the rows that are there then, in the engine's form; ``places`` are those they had."""
    members = before.members
    y, weight = members.rows.y[places], members.rows.weight[places]
    if raw is not None:
        y, weight = np.vstack([y, raw.y]), np.append(weight, raw.weight)
    y, weight = y[origin], weight[origin]
    if members.balanced and members.class_weights is not None:
        weight = members.class_weights.of_rows(y)
    rows = Rows(with_intercept(features) if before.intercept else features, y, weight)
    rows.check_finite()
    return rows


def _allows_step(before: Fitted, rows: Rows, places: NDArray[np.intp]) -> bool:
    """Return whether a step may lead to rows: not if an intercept is penalised before or after it.

    Nor once half of the places are those of rows that were corrected: a fit begins without them.
    """
    members = before.members
    kind, held = members.kind, members.rows.take(places)
    crowded = len(members.live) > 2 * len(members.place)
    return not (crowded or one_sided(kind, held) or one_sided(kind, rows))


def _by_step(
    before: Fitted, names: tuple[str, ...], coming: Rows, going: tuple[str, ...], method: str
) -> Fitted | None:
    """Return the state after a step; None if there is none, or its error could not be stated."""
    state = before.draft()
    try:
        if not len(coming):
            if state.needs_refit(going):
                return None
            state.delete(going, method)
        elif state.needs_refit_for(coming, going):
            return None
        else:
            state.change(names, coming, going, method)
        _ = state.error
    except (IllConditioned, InvalidData):  # a fit has units of its own, or says what is wrong
        return None
    return state
