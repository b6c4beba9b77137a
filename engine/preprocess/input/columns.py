"""What is done to each column of a table: the user's side of preprocessing inside a model.

LinearModel(preprocess={"age": Numeric(), "town": OneHot(), "joined": Date()})
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.derived import (
    Expression,
    Name,
)

Category: TypeAlias = str | int | float | bool | None
"""A value of a column of categories; None stands for a missing one."""

__all__ = [
    "Category",
    "Column",
    "Columns",
    "Date",
    "Dropped",
    "GivenColumns",
    "Impute",
    "Name",
    "Numeric",
    "OneHot",
    "Ordinal",
    "TargetEncode",
    "Unknown",
    "passthrough",
    "standardised",
]

Unknown: TypeAlias = Literal["error", "ignore", "infrequent_if_exist"]

MAX_PLACES = 2_000
"""Categories of a model that are encoded as numbers, at most."""

Drop: TypeAlias = Literal["first", "if_binary"] | tuple[Category] | None

Standardise: TypeAlias = (
    bool | Literal["centre", "scale", "max-abs", "robust"] | tuple[float, float]
)
"""Whether a feature's mean and standard deviation are brought to 0 and 1, or one of them alone; or
its largest absolute value to 1, its median and the distance of its quartiles to 0 and 1, or its
least and its largest value to two numbers."""

Impute: TypeAlias = Literal["mean", "median", "most_frequent"] | None
"""Which statistic of a column's known values stands in for a missing one."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """Numbers.

    Attributes
    ----------
    impute
        ``"mean"``, ``"median"`` or ``"most_frequent"`` puts that of the column's known values in
        the place of missing ones, as ``SimpleImputer(strategy=...)`` does; None refuses missing
        values.
    standardise
        Whether mean and standard deviation are then brought to 0 and 1, as by ``StandardScaler()``.
        ``"centre"`` subtracts the mean alone, as with ``with_std=False``; ``"scale"`` divides by
        the deviation alone, as with ``with_mean=False``. ``(0, 1)`` brings the least and the
        largest value to these, as ``MinMaxScaler()``; ``"max-abs"`` scales as ``MaxAbsScaler()``,
        and ``"robust"`` as ``RobustScaler()``.
    scaler_first
        Whether what scales is learnt from the known values alone, as by a scaler that stands before
        ``SimpleImputer()``: it passes missing values on. What is imputed is the same: a mean,
        median or most frequent value of scaled values is that value, scaled.
    of
        What the numbers are computed from; None for the table's column of this name. Every kind of
        column has it; that of dates or categories is a `Same`.
    """

    impute: Impute = "mean"
    standardise: Standardise = True
    scaler_first: bool = field(default=False, kw_only=True)
    of: Expression | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse settings that there are not.

        Raises
        ------
        InvalidData
            Another way to impute, or to standardise, than those above; or ``scaler_first`` where
            one of these is not done.
        """
        standardise: object = self.standardise
        if isinstance(standardise, list | tuple):
            object.__setattr__(self, "standardise", _range(standardise))
        elif standardise not in ("max-abs", "robust"):
            _check_standardise(standardise)
        if self.impute not in ("mean", "median", "most_frequent", None):
            raise InvalidData(
                "impute must be 'mean', 'median', 'most_frequent' or None, not "
                f"{self.impute!r}; for a given number use of=Filled(column, number)"
            )
        scaler_first: object = self.scaler_first
        if not isinstance(scaler_first, bool):
            raise InvalidData(f"scaler_first must be True or False, not {scaler_first!r}")
        if scaler_first and (self.impute is None or self.standardise is False):
            raise InvalidData(
                "scaler_first is of a column that is both imputed and standardised; leave it out"
            )


@dataclass(frozen=True, slots=True)
class Date(Numeric):
    """Dates, as days since 1970-01-01 (UTC), and then as `Numeric`."""


@dataclass(frozen=True, slots=True)
class OneHot:
    """One column of 0 and 1 for each category, as ``OneHotEncoder()`` makes them.

    A missing value is a category of its own.

    Attributes
    ----------
    unknown
        What `predict` does with a category that no live row has: refuse it, give it 0 in every
        column, or take it for a rare one if there are any.
    drop
        The category whose feature is left out: ``"first"`` of those that live rows have,
        ``"if_binary"`` the first of two, or a named one, as in ``("Ulm",)``. It keeps its place
        among the parameters, with the weight 0.
    standardise
        As of `Numeric`, of each of these columns.
    min_frequency
        A category of fewer live rows is rare, and rare ones share one further column, the last. Of
        a number below 1, that share of all live rows.
    max_categories
        How many columns there are at most, the shared one included; the categories of fewest live
        rows are rare where there would be more.
    categories
        All of them in their order, each with a column, whether it has rows or not; others are not
        learnt from. None: those of the live rows, sorted.
    impute
        ``"most_frequent"`` takes a missing value for the category that most live rows have, and of
        several for the least, as ``SimpleImputer(strategy="most_frequent")`` does.
    """

    unknown: Unknown = "error"
    drop: Drop = None
    standardise: Standardise = False
    min_frequency: float | None = None
    max_categories: int | None = None
    categories: tuple[Category, ...] | None = None
    impute: Literal["most_frequent"] | None = field(default=None, kw_only=True)
    of: Expression | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse settings that there are not.

        Raises
        ------
        InvalidData
            A setting is none of the above.
        """
        _check_standardise(self.standardise)
        if self.impute not in ("most_frequent", None):
            raise InvalidData(
                f"impute must be 'most_frequent' or None, not {self.impute!r}; for a given "
                "category use of=Filled(column, category)"
            )
        if self.impute is not None and (self.categories is not None or self.standardise):
            raise InvalidData(
                "impute='most_frequent' of categories is not there beside categories or "
                "standardise; name a category that stands in for missing ones, "
                "of=Filled(column, category)"
            )
        drop: object = self.drop
        if isinstance(drop, list):
            drop = tuple(drop)
            object.__setattr__(self, "drop", drop)
        named = isinstance(drop, tuple) and len(drop) == 1 and drop[0] is not None
        if not (named or drop in (None, "first", "if_binary")):
            raise InvalidData(
                "drop must be None, 'first', 'if_binary' or one category, as in ('Ulm',), not "
                f"{drop!r}"
            )
        if self.unknown not in ("error", "ignore", "infrequent_if_exist"):
            raise InvalidData(
                f"unknown must be 'error', 'ignore' or 'infrequent_if_exist', not {self.unknown!r}"
            )
        least, most = self.min_frequency, self.max_categories
        if not (least is None or _is_count(least) or (type(least) is float and 0 < least < 1)):
            raise InvalidData(
                f"min_frequency must be a whole number from 1, or a share below 1, not {least!r}"
            )
        if not (most is None or _is_count(most)):
            raise InvalidData(f"max_categories must be a whole number from 1, not {most!r}")
        if named and self.shares:
            raise InvalidData(
                f"drop={drop!r} beside min_frequency or max_categories: scikit-learn drops no "
                "category that is rare, and this one may become so; set drop to 'first'"
            )

        if self.categories is not None:
            object.__setattr__(self, "categories", _checked_categories("OneHot", self.categories))
            if self.shares:
                raise InvalidData(
                    "categories beside min_frequency or max_categories: those without rows would "
                    "be rare ones; name the frequent ones, and use one of these settings alone"
                )

    @property
    def shares(self) -> bool:
        """Whether rare categories share a column."""
        return self.min_frequency is not None or self.max_categories is not None


@dataclass(frozen=True, slots=True)
class Ordinal:
    """The place of a category among all, from 0, as ``OrdinalEncoder()`` gives it.

    Attributes
    ----------
    categories
        All of them in their order. None: those of the live rows, sorted; when one has lost its last
        row, those after it move up.
    standardise
        As of `Numeric`.
    unknown
        The number that `predict` gives to a category that no live row has and that is not named:
        below 0, or 2,000 and more, which is no place; None refuses it.
    """

    categories: tuple[Category, ...] | None = None
    standardise: Standardise = False
    unknown: int | None = None
    of: Expression | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Take any sequence of categories.

        Raises
        ------
        InvalidData
            They are not distinct, or one of them is missing; or ``standardise`` is none of
            `Standardise`, or ``unknown`` is no number, or a place.
        """
        _check_standardise(self.standardise)
        number: object = self.unknown
        if not (number is None or (type(number) is int and not 0 <= number < MAX_PLACES)):
            raise InvalidData(
                f"unknown must be None or a whole number below 0, or from {MAX_PLACES}, not "
                f"{number!r}: others are the places of categories"
            )
        if self.categories is None:
            return
        categories = _checked_categories("Ordinal", self.categories)
        object.__setattr__(self, "categories", categories)


@dataclass(frozen=True, slots=True)
class TargetEncode:
    """The smoothed mean of the target over the live rows of the same category.

    The values are those of ``TargetEncoder(smooth=smooth).fit(X, y).transform(X)``, of a linear
    model with ``target_type="continuous"``: two values of a target are numbers and not classes.
    ``fit_transform`` of scikit-learn, and so a ``Pipeline``'s fit, encodes the training rows
    otherwise: each by the means of the other folds ("cross-fitting"). That is another estimator.

    Attributes
    ----------
    smooth
        Rows of the overall mean that are added to each category, or ``"auto"``: as many as the
        ratio of the target's variance within and between categories suggests (empirical Bayes).
    standardise
        As of `Numeric`.
    """

    smooth: float | Literal["auto"] = "auto"
    standardise: Standardise = False
    of: Expression | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse settings that there are not.

        Raises
        ------
        InvalidData
            ``smooth`` is neither "auto" nor a number of 0 or more, or ``standardise`` is none of
            `Standardise`.
        """
        _check_standardise(self.standardise)
        smooth: object = self.smooth
        if smooth == "auto" or (isinstance(smooth, (int, float)) and 0 <= smooth < math.inf):
            return
        raise InvalidData(f"smooth must be 'auto' or a number >= 0, not {smooth!r}")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A column of the table that the model does not learn from."""


Column: TypeAlias = Numeric | Date | OneHot | Ordinal | TargetEncode
Columns: TypeAlias = Mapping[Any, Column]
"""Names (`Name`) and what is done to each column, in the order of the features."""

GivenColumns: TypeAlias = Mapping[Any, Column | Dropped]
"""The same as a user gives it: some may be `Dropped`; `checked_columns` takes these out."""


def passthrough() -> Numeric:
    """Return a column of numbers that is used as it is."""
    return Numeric(impute=None, standardise=False)


def standardised(column: Column) -> bool:
    """Return whether anything of a column's features is brought to 0 or 1."""
    return column.standardise is not False


def centres(standardise: Standardise) -> bool:
    """Return whether a feature's mean, median or least value is subtracted."""
    return standardise in (True, "centre", "robust") or isinstance(standardise, tuple)


def scales(standardise: Standardise) -> bool:
    """Return whether a feature is divided by its standard deviation, or by what stands for it."""
    return standardise in (True, "scale", "max-abs", "robust") or isinstance(standardise, tuple)


def by_order(standardise: Standardise) -> bool:
    """Return whether a feature is scaled by order statistics, and not by moments."""
    return standardise in ("max-abs", "robust") or isinstance(standardise, tuple)


def keeps_order(column: Column) -> bool:
    """Return whether order statistics or modes of a column are kept: no sums of raw rows are."""
    if not isinstance(column, Numeric):
        return isinstance(column, OneHot) and column.impute is not None
    return column.impute in ("median", "most_frequent") or by_order(column.standardise)


def _checked_categories(kind: str, given: Iterable[Category]) -> tuple[Category, ...]:
    categories = tuple(given)
    if None in categories or len(set(categories)) != len(categories) or not categories:
        raise InvalidData(f"the categories of an {kind} must be distinct, and none missing")
    return categories


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _check_standardise(standardise: object) -> None:
    if not (isinstance(standardise, bool) or standardise in ("centre", "scale")):
        raise InvalidData(
            f"standardise must be True, False, 'centre' or 'scale', not {standardise!r}; columns "
            "of numbers have 'max-abs', 'robust' and (0, 1) as well"
        )


def _range(given: Sequence[object]) -> tuple[float, float]:
    """Return the numbers that the least and the largest value are brought to."""
    ends = [float(end) for end in given if isinstance(end, int | float) and math.isfinite(end)]
    if not (len(given) == len(ends) == len(("low", "high")) and ends[0] < ends[1]):
        raise InvalidData(
            f"standardise={given!r} must be two numbers, the lower one first, such as (0, 1)"
        )
    return ends[0], ends[1]
