"""Rows that are inserted into a library model, or corrected: validated, in the engine's form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from lethe.engine.errors import InvalidData, UnknownRows
from lethe.engine.fit.classes import encoded_as
from lethe.engine.fit.counts import check_counts
from lethe.engine.fit.objective import Array, Kind, Rows, with_intercept
from lethe.engine.ids import ids_of
from lethe.engine.rows import Membership, check_weights, numbers


def new_rows(
    kind: Kind,
    X: ArrayLike,
    y: ArrayLike,
    ids: Sequence[str],
    sample_weight: ArrayLike | None,
    *,
    intercept: bool,
    shape: tuple[int, int],
    classes: Sequence[str],
) -> tuple[tuple[str, ...], Rows]:
    """Return the ids and rows of a change.

    Parameters
    ----------
    kind, intercept, classes
        The model's; labels are those that it was fitted on.
    X, y, ids, sample_weight
        k x p, (k,) or (k, m), k, and (k,) at least 0 or None for 1.
    shape
        (p, m) of the model.

    Raises
    ------
    InvalidData
        Shapes, ids, labels or numbers cannot be used.
    """
    p, m = shape
    features = numbers(X, "X", (2,))
    if features.shape[1] != p:
        raise InvalidData(f"X has {features.shape[1]} columns; the model was fitted on {p}")
    labelled = kind.has_classes
    targets = encoded_as(y, classes) if labelled else numbers(y, "y", (1, 2))
    k = len(features)
    weight = np.ones(k) if sample_weight is None else numbers(sample_weight, "sample_weight", (1,))
    names = _names(ids)
    if not len(targets) == len(weight) == len(names) == k:
        raise InvalidData(
            f"{k} rows of X, {len(targets)} of y, {len(weight)} weights and {len(names)} ids"
        )
    targets = targets.reshape(k, -1) if k else np.empty((0, m))
    if targets.shape[1] != m:
        raise InvalidData(f"y has {targets.shape[1]} columns; the model was fitted on {m}")
    rows = Rows(with_intercept(features) if intercept else features, targets, weight)
    rows.check_finite()
    if kind is Kind.POISSON:
        check_counts(rows)
    check_weights(weight)
    return names, rows


def _names(ids: Iterable[str]) -> tuple[str, ...]:
    names = ids_of(ids)
    if len(set(names)) != len(names):
        raise InvalidData("ids are not distinct; give each row its own id")
    return names


def check_new(members: Membership, names: Sequence[str]) -> None:
    """Refuse ids that are rows of the model, or were: a deleted id never comes back.

    Raises
    ------
    InvalidData
        The first such id.
    """
    for name in names:
        if name in members.place:
            live = members.live[members.place[name]]
            what = (
                "is a row of this model already; correct it instead"
                if live
                else ("was deleted from this model, and a deleted id never comes back")
            )
            raise InvalidData(f"row {name!r} {what}; nothing was inserted")


def check_live(members: Membership, names: Sequence[str]) -> None:
    """Refuse ids that are not live rows of the model.

    Raises
    ------
    UnknownRows
        The first such id.
    """
    for name in names:
        if name not in members.place:
            raise UnknownRows(f"row {name!r} was never a row of this model; nothing was corrected")
        if not members.live[members.place[name]]:
            raise UnknownRows(f"row {name!r} was deleted from this model; nothing was corrected")


def kept_weights(members: Membership, names: Sequence[str]) -> Array:
    """Return the own weights of live rows, (k,): a correction without weights keeps them."""
    rows = members.rows.take(members.places(tuple(names)))
    if members.class_weights is None or not len(rows):
        return rows.weight
    return np.ones(len(rows)) if members.balanced else members.class_weights.own(rows)
