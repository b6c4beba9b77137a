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
"""More are taken for a regression target. Dual rows take n d numbers a class."""

_SHOWN = 60  # characters of a label in a message

Labels = NDArray[Any]


def encoded(labels: ArrayLike) -> tuple[tuple[str, ...], Array]:
    """Return the class names and the targets, n x 1 (0 and 1) or n x C (one-hot).

    There are no names when the labels are 0 and 1 (or false and true), or one of them alone.

    Raises
    ------
    InvalidData
        Labels that are no classes: missing, fractions, one alone, or too many different ones.
    """
    found = np.asarray(labels)
    if found.ndim not in (1, 2):
        raise InvalidData(f"y must have 1 or 2 dimensions, not {found.ndim}")
    if found.ndim == 2 and found.shape[1] == 0:
        raise InvalidData("there is no feature or no target to fit")
    if found.ndim == 2 and found.shape[1] > 1:
        raise InvalidData("a logistic model has one target")
    found = found.reshape(-1)
    numeric = found.dtype.kind in "biuf"
    if found.dtype.kind == "O":
        numeric = not any(isinstance(label, str) for label in found)
        found = _plain(found, numeric=numeric)
    elif not numeric and found.dtype.kind != "U":
        raise InvalidData(f"labels must be text or whole numbers, not {found.dtype}")
    return _numeric(found.astype(np.float64)) if numeric else _named(found)


def _plain(found: Labels, *, numeric: bool) -> Labels:
    """Return an array of objects as numbers, or as text if all are text."""
    if not numeric:
        odd = next((label for label in found if not isinstance(label, str)), None)
        if odd is not None or any(label is None for label in found):
            raise InvalidData("labels are text and other things mixed; make them all text")
        return found.astype(np.str_)
    try:
        return found.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidData(f"labels must be text or whole numbers: {error}") from error


def _numeric(found: Array) -> tuple[tuple[str, ...], Array]:
    if np.isin(found, (0.0, 1.0)).all():
        return (), found[:, None].copy()
    whole = np.isfinite(found) & (found == np.floor(found)) & (np.abs(found) < 2.0**53)
    if not whole.all():
        odd = found[~whole][0]
        raise InvalidData(
            f"logistic targets must be 0 or 1, or classes: whole numbers or text; {odd:g} is none "
            "of these: is it a regression target?"
        )
    values, index = np.unique(found, return_inverse=True)
    return _one_hot([str(int(value)) for value in values], index)


def _named(found: Labels) -> tuple[tuple[str, ...], Array]:
    values, index = np.unique(found, return_inverse=True)
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
            f"the target has {len(names)} different values, and a logistic model at most "
            f"{MAX_CLASSES} classes: is it a regression target?"
        )
    if len(names) == 2:
        return tuple(names), index.reshape(-1, 1).astype(np.float64)
    return tuple(names), np.eye(len(names))[index.reshape(-1)]


def class_counts(y: Array) -> tuple[int, ...]:
    """Return the rows of each class: of targets 0 and 1, or of each column of one-hot ones."""
    ones = tuple(int(count) for count in y.sum(axis=0))
    return (len(y) - ones[0], ones[0]) if len(ones) == 1 else ones


def one_sided(kind: Kind, rows: Rows) -> bool:
    """Return whether some class of a logistic model has no rows, or all of them.

    Against the rest it has no finite intercept then.
    """
    if kind is Kind.LINEAR or len(rows) == 0:
        return False
    return bool((rows.y.min(axis=0) == rows.y.max(axis=0)).any())


def probabilities(margin: Array) -> Array:
    """Return probabilities of class 1 from (..., 1) margins, or of each class from (..., C).

    Of several classes, the sigmoids divided by their sum, as scikit-learn's OneVsRestClassifier
    does; here by logarithms, so that they sum to 1 also where every sigmoid underflows.
    """
    if margin.shape[-1] == 1:
        return np.asarray(expit(margin))
    return np.asarray(softmax(log_expit(margin), axis=-1))
