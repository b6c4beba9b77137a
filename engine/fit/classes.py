"""Classes: from labels to targets, and from margins to probabilities.

Labels 0 and 1 are targets as they are. Any other two are classes by name, of which the second
(in numeric or alphabetical order, as scikit-learn sorts) is target 1. More than two make a
one-vs-rest problem: targets are n x C and one-hot, and each class is fitted against the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, softmax

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind, Rows

MAX_CLASSES = 100
"""More distinct labels are taken for a regression target. Dual rows take n d numbers a class."""

_SHOWN = 60  # characters of a label in a message

Labels = NDArray[Any]


class UnknownLabel(InvalidData):
    """A label that is none of a model's classes; ``row`` is the row that has it, from 0.

    The label itself is not in the message: in the service, it is the detail of a receipt, which
    everybody may read.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(f"the label of row {row} {what}")
        self.row, self.what = row, what


def encoded(labels: ArrayLike) -> tuple[tuple[str, ...], Array]:
    """Return the class names and the targets, n x 1 (0 and 1) or n x C (one-hot).

    There are no names if the labels are 0 and 1 (or false and true), or one of them alone.

    Raises
    ------
    InvalidData
        The labels are not classes: missing, fractions, all the same, or too many.
    """
    try:
        array = np.asarray(labels)
    except (ValueError, NotImplementedError) as error:  # lists, or what only Arrow has
        raise InvalidData(f"labels must be text or whole numbers: {error}") from error
    if array.ndim not in (1, 2):
        raise InvalidData(f"y must have 1 or 2 dimensions, not {array.ndim}")
    if array.ndim == 2 and array.shape[1] == 0:
        raise InvalidData("there is no feature or no target to fit")
    if array.ndim == 2 and array.shape[1] > 1:
        raise InvalidData("a logistic model has one target")
    array = array.reshape(-1)
    numeric = array.dtype.kind in "biuf"
    if array.dtype.kind == "O":
        numeric = not any(isinstance(label, str) for label in array)
        array = _plain(array, numeric=numeric)
    elif not numeric and array.dtype.kind != "U":
        raise InvalidData(f"labels must be text or whole numbers, not {array.dtype}")
    return _numeric(array.astype(np.float64)) if numeric else _named(array)


def encoded_as(labels: ArrayLike, classes: Sequence[str]) -> Array:
    """Return the targets of more rows of a model with these class names, as `encoded` made them.

    Raises
    ------
    UnknownLabel
        The first label that is none of the classes.
    """
    array = np.asarray(labels).reshape(-1)
    if not classes:
        return _zeros_and_ones(array)
    known = {name: index for index, name in enumerate(classes)}
    index = np.empty(len(array), dtype=np.intp)
    for i, label in enumerate(array):
        name = name_of(label)
        if name not in known:
            raise UnknownLabel(i, "is none of the classes that the model was fitted on")
        index[i] = known[name]
    return index[:, None].astype(np.float64) if len(classes) == 2 else np.eye(len(classes))[index]


def _zeros_and_ones(labels: Labels) -> Array:
    try:
        values = labels.astype(np.float64)
    except (TypeError, ValueError):
        values = np.array([_number_of(label) for label in labels])
    unknown = ~np.isin(values, (0.0, 1.0))
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        raise UnknownLabel(row, "must be 0 or 1, as those that the model knows")
    return np.asarray(values[:, None])


def _number_of(label: Any) -> float:
    """Return a label as a number; NaN if it is none."""
    try:
        return float(label)
    except (TypeError, ValueError):
        return np.nan


def name_of(label: Any) -> str:
    """Return the class name of a label: text, or a whole number without a fraction."""
    if isinstance(label, str):
        return str(label)
    try:
        return str(int(label)) if float(label) == int(label) else str(label)
    except (TypeError, ValueError, OverflowError):
        return str(label)


def _plain(labels: Labels, *, numeric: bool) -> Labels:
    """Return an array of objects as numbers, or as text if all are text."""
    if not numeric:
        other = next((label for label in labels if not isinstance(label, str)), None)
        if other is not None or any(label is None for label in labels):
            raise InvalidData("text labels and others are mixed; make them all text")
        return labels.astype(np.str_)
    try:
        return labels.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidData(f"labels must be text or whole numbers: {error}") from error


def _numeric(labels: Array) -> tuple[tuple[str, ...], Array]:
    if np.isin(labels, (0.0, 1.0)).all():
        return (), labels[:, None].copy()
    whole = np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < 2.0**53)
    if not whole.all():
        invalid = labels[~whole][0]
        raise InvalidData(
            "Unknown label type: logistic targets must be 0 or 1, or classes: whole numbers or "
            f"text; {invalid:g} is none of these: is it a regression target?"
        )
    values, index = np.unique(labels, return_inverse=True)
    return _one_hot([str(int(value)) for value in values], index)


def _named(labels: Labels) -> tuple[tuple[str, ...], Array]:
    values, index = np.unique(labels, return_inverse=True)
    if any(not name.strip() for name in values):
        raise InvalidData("a label is empty; every row needs one")
    return _one_hot([str(name) for name in values], index)


def _one_hot(names: Sequence[str], index: NDArray[np.intp]) -> tuple[tuple[str, ...], Array]:
    if len(names) == 1:
        raise InvalidData(
            f"all labels are {names[0][:_SHOWN]!r}: there is nothing to tell apart; give rows of "
            "at least two classes, or label them 0 and 1"
        )
    if len(names) > MAX_CLASSES:
        raise InvalidData(
            f"the target has {len(names)} different values; a logistic model takes at most "
            f"{MAX_CLASSES} classes. If it is a number, fit a linear model"
        )
    if len(names) == 2:
        return tuple(names), index.reshape(-1, 1).astype(np.float64)
    return tuple(names), np.eye(len(names))[index.reshape(-1)]


def class_counts(y: Array) -> tuple[int, ...]:
    """Return the number of rows of each class: of targets 0 and 1, or of each one-hot column.

    Of counts, the number of those that are 0, and of those above it.
    """
    ones = tuple(int(count) for count in np.count_nonzero(y, axis=0))
    return (len(y) - ones[0], ones[0]) if len(ones) == 1 else ones


def weighted_counts(kind: Kind, rows: Rows) -> tuple[int, ...]:
    """Count the rows with a weight in each group that a minimiser needs. Cost O(n m).

    For a linear model, all rows; for a Poisson model, those with a count of 0 and those above it;
    otherwise those of each class (`class_counts`). A row of weight 0 adds nothing to the loss.
    """
    weighted = rows.weight > 0
    y = rows.y if weighted.all() else rows.y[weighted]
    return (len(y),) if kind is Kind.LINEAR else class_counts(y)


def unbounded(kind: Kind, counts: Sequence[int]) -> bool:
    """Return whether a free intercept has no finite value, by `weighted_counts`.

    A class without rows has none against the rest, and neither do counts that are all 0.
    """
    match kind:
        case Kind.LINEAR:
            return False
        case Kind.POISSON:
            return counts[1] == 0
        case Kind.LOGISTIC | Kind.SOFTMAX:
            return 0 in counts


def one_sided(kind: Kind, rows: Rows) -> bool:
    """Return whether no finite intercept minimises the loss of these rows; False without any."""
    return len(rows) > 0 and unbounded(kind, weighted_counts(kind, rows))


def probabilities(margin: Array) -> Array:
    """Return probabilities of class 1 from (..., 1) margins, or of each class from (..., C).

    For several classes, the sigmoids divided by their sum, as scikit-learn's OneVsRestClassifier
    does; here by logarithms, so that they sum to 1 also where every sigmoid underflows.
    """
    if margin.shape[-1] == 1:
        return np.asarray(expit(margin))
    return np.asarray(softmax(log_expit(margin), axis=-1))
