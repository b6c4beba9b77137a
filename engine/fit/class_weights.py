"""Weights of classes: a row counts as much as its class does, times its own weight.

scikit-learn's ``class_weight``, as a factor of the weights of rows. Given weights are numbers, one
a class. Balanced ones are n / (C n_c), with n_c of the n live rows in class c, and C classes that
have any: they follow each change, for all rows of a class at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import name_of
from lethe.engine.fit.objective import Array, Kind, Rows

ClassWeight: TypeAlias = Mapping[Any, float] | Literal["balanced"]
"""What a model is given: a weight for each label, 1 for those that are not named; or balanced."""


@dataclass(frozen=True, slots=True)
class ClassWeights:
    """The weights of a model's classes.

    Attributes
    ----------
    kind
        The model's. The classes of a linear model are its targets -1 and 1; with several targets,
        the one that is 1 in a row of -1, as in scikit-learn's ``RidgeClassifier``.
    values
        (C,) weights above 0, in the order of the classes; None for balanced ones.
    """

    kind: Kind
    values: tuple[float, ...] | None

    @classmethod
    def of(cls, kind: Kind, asked: ClassWeight, names: Sequence[str]) -> Self:
        """Return what is asked for, of classes with these names.

        Raises
        ------
        InvalidData
            A label is none of the classes, a weight is not a number above 0, or it is neither a
            mapping nor "balanced".
        """
        if kind is Kind.POISSON:
            raise InvalidData("class_weight is of classes; a Poisson model has none")
        if isinstance(asked, str) and asked == "balanced":
            return cls(kind, None)
        if not isinstance(asked, Mapping):
            raise InvalidData(
                f"class_weight must be None, 'balanced', or a mapping from labels to weights, not "
                f"{asked!r}"
            )
        weights = dict.fromkeys(names, 1.0)
        for label, weight in asked.items():
            name = name_of(label)
            if name not in weights:
                raise InvalidData(
                    f"class_weight: {label!r} is none of the classes, {', '.join(names)}"
                )
            if not _above_zero(weight):
                raise InvalidData(
                    f"class_weight: the weight of {label!r} must be a finite number above 0, not "
                    f"{weight!r}; to leave a class out, leave out its rows"
                )
            weights[name] = float(weight)
        return cls(kind, tuple(weights.values()))

    @property
    def balanced(self) -> bool:
        """Whether the weights follow the rows."""
        return self.values is None

    def of_rows(self, y: Array) -> Array:
        """Return the weight of each row's class, (k,), of targets k x m; balanced: of these rows.

        Raises
        ------
        InvalidData
            A target of a linear model is no class.
        """
        place = class_of(self.kind, y)
        values = balanced_weights(np.bincount(place)) if self.values is None else self.values
        return np.asarray(values)[place]

    def weighed(self, rows: Rows) -> Rows:
        """Return rows whose weights are their own with those of their classes. O(k m)."""
        return replace(rows, weight=rows.weight * self.of_rows(rows.y))

    def own(self, rows: Rows) -> Array:
        """Return the rows' own weights, of rows that `weighed` has returned; (k,)."""
        return rows.weight / self.of_rows(rows.y)


def class_names(kind: Kind, classes: Sequence[str], m: int) -> tuple[str, ...]:
    """Return the names that class weights are given by, in the order of `class_of`.

    Parameters
    ----------
    classes
        Names of the classes, or of a linear model's targets; there may be none.
    m
        Number of outputs.
    """
    if kind is not Kind.LINEAR:
        return tuple(classes) or ("0", "1")
    if m == 1:
        return ("-1", "1")
    return tuple(classes) or tuple(str(c) for c in range(m))


def class_of(kind: Kind, y: Array) -> NDArray[np.intp]:
    """Return the place of each row's class, (k,), of targets k x m.

    Raises
    ------
    InvalidData
        A target of a linear model is no class.
    """
    if kind is Kind.LINEAR:
        signs = np.abs(y) == 1.0
        single = (y > 0).sum(axis=1) == 1 if y.shape[1] > 1 else np.True_
        wrong = ~(signs.all(axis=1) & single)
        if wrong.any():
            what = "-1 or 1" if y.shape[1] == 1 else "1 in one column and -1 in the others"
            raise InvalidData(
                f"the target of row {int(np.argmax(wrong))} is no class: with class_weight, the "
                f"targets of a linear model are {what}, as RidgeClassifier fits them"
            )
    if y.shape[1] == 1:
        return (y[:, 0] > 0).astype(np.intp)
    place: NDArray[np.intp] = np.argmax(y, axis=1)
    return place


def _above_zero(weight: Any) -> bool:
    number = isinstance(weight, Real) and not isinstance(weight, bool)
    return number and 0.0 < float(weight) < np.inf


def balanced_weights(counts: NDArray[np.intp]) -> Array:
    """Return n / (C n_c) of each class, 0 of one without rows: as scikit-learn computes them."""
    weights, present = np.zeros(len(counts)), counts > 0
    weights[present] = counts.sum() / (np.count_nonzero(present) * counts[present])
    return weights
