"""The transformation that a generation begins with: a table's rows in *base units*.

It is the scikit-learn pipeline's transformation at the time of the fit. It stays as it is during a
generation, and the engine's rows are rows in base units; how far the live rows' own transformation
has moved from it is `engine.preprocess.transformation.statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, with_intercept
from lethe.engine.preprocess.input.columns import (
    Columns,
    TargetEncode,
    centres,
    scales,
    standardised,
)
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.transformation.categories import OneHotPart
from lethe.engine.preprocess.transformation.encoding import (
    TargetMoments,
    ordinal_codes,
    smoothed_means,
)
from lethe.engine.preprocess.transformation.layout import (
    Layout,
    NumericPart,
    Places,
    lay_out,
    looked_up,
)
from lethe.engine.preprocess.transformation.order import (
    Filled,
    Interval,
    Order,
    Scaling,
    Window,
    kept_quantiles,
)

ABSENT = -1
"""Stands for an entry or a category that is absent, or that the generation does not know."""

_FURTHEST = 1e6
"""How many deviations a column may be from 0 that is divided by these, and not centred: sums of
squares about 0 then lose 12 digits to the mean's square."""

_SMALLEST_VARIANCE = float(np.finfo(np.float64).tiny)
"""Least variance of values that differ: a smaller one has lost digits, or all of them."""


@dataclass(frozen=True, slots=True)
class BaseTransformation:
    """A transformation with fixed statistics.

    Attributes
    ----------
    layout
        Where the columns are.
    centre, scale
        (p,) of each feature: base units are (x - centre) / scale. The scale is 1 where a feature is
        not scaled, or was constant; the centre is 0 for one-hot features that are not standardised,
        and for all whose mean the pipeline does not subtract where no free intercept takes it up.
    constant
        (p,) whether a scaled feature had one value in all rows.
    left_out
        (p,) whether a one-hot feature is 0 in all rows: its category is left out (`OneHot.drop`),
        or is rare, or it is that of rare ones, and none is.
    rare
        (p,) whether a category's rows have the feature that rare ones share.
    mode
        (p,) whether it is the feature of the category that stands in for missing ones.
    value
        (q,) the entries' values in base units.
    target_mean
        Mean of the target, which `TargetEncode` measures from; 0 without such a column.
    intervals
        Of the window of each quantile that is kept (`Layout.order`), in base units.
    """

    layout: Layout
    centre: Array
    scale: Array
    constant: NDArray[np.bool_]
    left_out: NDArray[np.bool_]
    rare: NDArray[np.bool_]
    mode: NDArray[np.bool_]
    value: Array
    target_mean: float
    intervals: tuple[Interval, ...] = ()

    def rows(self, table: Table, *, intercept: bool = False) -> tuple[Array, Places]:
        """Return features in base units, n x p, and places (`Layout.places`), n x g.

        The place of a category is its feature. With ``intercept``, features have a last column of
        ones. A missing number in a column without an entry is NaN, a category that the generation
        does not know has the place `ABSENT` and the value 0. Cost O(n p).
        """
        layout, n = self.layout, len(table)
        Z, entries = np.zeros((n, layout.features)), np.full((n, layout.places), ABSENT)
        features = layout.numeric_features
        centred = table.numbers - self.centre[features]
        Z[:, features] = centred / self.scale[features]
        place = len(layout.gap_features)
        row, gap = np.nonzero(np.isnan(Z[:, layout.gap_features]))
        Z[row, layout.gap_features[gap]] = self.value[layout.gap_entries[gap]]
        entries[row, gap] = layout.gap_entries[gap]
        for coded in layout.coded:
            entry = looked_up(coded.entry_of, table.codes[:, coded.source])
            Z[:, coded.feature] = np.where(entry >= 0, self.value[entry], 0.0)
            entries[:, place] = entry
            place += 1
        for hot in layout.one_hot:
            feature, own = looked_up(hot.feature_of, table.codes[:, hot.source]), hot.features
            if standardised(hot.column):
                Z[:, own] -= self.centre[own] / self.scale[own]
            at = self.filled(hot, table)
            if hot.shared is not None:
                at = np.where((at >= 0) & self.rare[at], hot.shared, at)
            known = np.flatnonzero((at >= 0) & ~self.left_out[at])
            at = at[known]
            Z[known, at] = (1.0 - self.centre[at]) / self.scale[at]
            if hot in layout.counted:
                entries[:, place] = feature
                place += 1
        return with_intercept(Z) if intercept else Z, entries

    def filled(self, hot: OneHotPart, table: Table) -> Places:
        """Return the feature of each row's category, once missing ones are filled in; (n,)."""
        feature = looked_up(hot.feature_of, table.codes[:, hot.source])
        gap = hot.gap(table.vocabularies[hot.source])
        if gap is None:
            return feature
        return np.where(feature == gap, hot.first + np.argmax(self.mode[hot.features]), feature)

    def knows(self, table: Table) -> bool:
        """Return whether each row has a place in the layout: no new category, no new gap."""
        layout = self.layout
        gaps = any(
            part.entry < 0 and np.isnan(table.numbers[:, part.source]).any()
            for part in layout.numeric
        )
        backs = [(part.entry_of, part.source) for part in layout.coded]
        backs += [(part.feature_of, part.source) for part in layout.one_hot]
        return not gaps and all(
            bool((looked_up(back, table.codes[:, source]) >= 0).all()) for back, source in backs
        )


def is_constant(
    variance: Array | float, mean: Array | float, n: int | NDArray[np.int64]
) -> np.ndarray:
    """Return which columns count as constant: their scale is then 1, as in scikit-learn."""
    with np.errstate(over="ignore"):  # of a mean beyond 1e154: its square has no place in float64
        return np.asarray(variance <= n * EPS * variance + np.square(n * mean * EPS))


@np.errstate(over="ignore", invalid="ignore")  # what is not finite then is refused
def fit_base(
    columns: Columns, table: Table, y: Array, *, centred: bool, layout: Layout | None = None
) -> BaseTransformation:
    """Fit the transformation to rows; ``y`` (n,) is the target that is encoded. Cost O(n p).

    ``layout`` keeps features and entries where they are, with or without rows; None: the table's.
    With ``centred``, features whose mean the pipeline does not subtract are centred, too: it
    changes the intercept alone, and far fewer digits are lost.

    Raises
    ------
    InvalidData
        As `engine.preprocess.transformation.layout.lay_out`; or the numbers of a column, or the
        targets that encode one, are so large that their variance is not a finite number, or so
        small that it underflows.
    """
    layout = layout or lay_out(columns, table)
    encodes = any(isinstance(part.column, TargetEncode) for part in layout.coded)
    target_mean = float(np.mean(y)) if encodes else 0.0
    if encodes:
        check_target(target_mean, *_spread(y - target_mean))
    begun = BeginBase(layout, len(table), target_mean, centred=centred)

    def placed(feature: int, origin: float, row_values: Array, shared: Array) -> Array:
        moments = _mean(row_values), *_spread(row_values)
        return begun.placed(feature, origin, *moments, shared, len(row_values))

    for part in layout.numeric:
        column = table.numbers[:, part.source]
        known = ~np.isnan(column)
        origin = _mean(column[known])
        windows = [Window.of(column[known])] * len(kept_quantiles(part.column))
        seen = known if part.column.scaler_first and known.any() else np.full(len(table), True)
        filled = int(np.count_nonzero(seen & ~known))
        fill = begun.order(part, windows, filled, origin)
        column = column - origin
        mean = np.mean(column[known]) if known.any() else 0.0
        imputed = np.array([mean if fill is None else fill - origin])
        column = np.where(known, column, imputed)
        unit = placed(part.feature, origin, column[seen], imputed)
        if part.entry >= 0:
            begun.value[part.entry] = unit[0]
    for coded in layout.coded:
        entry = coded.entry_of[table.codes[:, coded.source]] - coded.first
        counts = np.bincount(entry, minlength=len(coded.codes))
        if isinstance(coded.column, TargetEncode):
            moments = TargetMoments.of(y - target_mean, entry, len(counts))
            origin, values = target_mean, smoothed_means(coded.column.smooth, counts, moments)
        else:
            values = ordinal_codes(coded, table.vocabularies[coded.source], counts)
            origin = 0.0
        begun.value[coded.entries] = placed(coded.feature, origin, values[entry], values)
    for hot in layout.counted:
        begun.categories(hot, category_counts(hot, table), table.vocabularies[hot.source])
    return begun.base()


def category_counts(hot: OneHotPart, table: Table) -> NDArray[np.int64]:
    """Return how many rows have each category of a one-hot column, (k,)."""
    feature = looked_up(hot.feature_of, table.codes[:, hot.source])
    return np.bincount(feature[feature >= 0] - hot.first, minlength=len(hot.codes))


def category_moments(
    rows: NDArray[np.int64], left_out: NDArray[np.bool_], n: int
) -> tuple[Array, Array]:
    """Return mean and variance of one-hot features that are 1 in so many of n rows, (k,) each.

    A feature that is left out is 0 throughout.
    """
    share = np.where(left_out, 0.0, rows / n)
    return share, np.where(left_out, 0.0, share * ((n - rows) / n))


class BeginBase:
    """The statistics of a base transformation of n rows, feature by feature."""

    def __init__(self, layout: Layout, n: int, target_mean: float, *, centred: bool) -> None:
        p = layout.features
        self._layout, self._n, self._centred = layout, n, centred
        self._target_mean = target_mean
        self._centre, self._scale = np.zeros(p), np.ones(p)
        self._constant = np.zeros(p, dtype=np.bool_)
        self._intervals: list[tuple[int, Interval]] = []
        self._scalings: dict[int, Scaling] = {}
        self._left_out, self._rare, self._mode = np.zeros((3, p), dtype=np.bool_)
        self.value = np.empty(layout.entries)

    def order(
        self, part: NumericPart, windows: Sequence[Window], missing: int, mean: float
    ) -> float | None:
        """Note the order statistics of a column that are kept, of windows of its known values.

        Returns what stands in for its missing ones, if it is one of these and not the ``mean``.
        Its scaler sees ``missing`` of them filled in.

        Raises
        ------
        InvalidData
            It has too many values for its most frequent one.
        """
        try:
            order = Order(part.column, windows).narrowed(missing, mean)
        except InvalidData as error:
            raise InvalidData(f"column {part.name!r} {error}") from None
        self._intervals += [(part.feature, window.interval) for window in order.windows]
        fill = order.imputed()
        scaling = order.scaling(Filled(mean if fill is None else fill, missing))
        if scaling is not None:
            self._scalings[part.feature] = scaling
        return fill

    def placed(
        self,
        feature: int,
        origin: float,
        mean: float,
        variance: float,
        differ: bool | np.bool_,
        shared: Array,
        rows: int,
    ) -> Array:
        """Note a feature's statistics, and whether its values ``differ``; return its entries'.

        ``shared`` are these as they are, less ``origin``, and so is the mean; of ``rows`` values.
        """
        scaled = self._layout.scaled[feature]
        must_show = bool(scaled and differ)
        name = repr(self._layout.names[feature])
        _check_variance(name, origin + mean, variance, must_show=must_show)
        by_order = self._scalings.get(feature)
        if by_order is not None:
            self._constant[feature], self._scale[feature] = by_order.constant, by_order.scale
            self._centre[feature] = origin + mean if self._centred else by_order.centre
        elif self._layout.centred[feature] or self._centred:
            self._centre[feature] = origin + mean
        if scaled and by_order is None:
            if self._centre[feature] == 0:
                _check_near_0(name, origin + mean, variance, must_show=must_show)
            constant = bool(is_constant(variance, origin + mean, rows))
            self._constant[feature] = constant
            self._scale[feature] = 1.0 if constant else np.sqrt(variance)
        unit: Array = (shared + (origin - self._centre[feature])) / self._scale[feature]
        return unit

    def categories(self, hot: OneHotPart, rows: NDArray[np.int64], vocabulary: Vocabulary) -> None:
        """Note the statistics of a one-hot column; ``rows`` (k,) have its categories."""
        own, found = hot.features, hot.found(rows, self._n, vocabulary)
        self._left_out[own], self._rare[own] = found.left_out, found.rare
        self._mode[own] = found.mode
        if not standardised(hot.column):
            return
        mean, variance = category_moments(found.rows, found.left_out, self._n)
        if self._centred or centres(hot.column.standardise):
            self._centre[own] = mean
        if scales(hot.column.standardise):
            self._constant[own] = variance == 0
            self._scale[own] = np.where(variance == 0, 1.0, np.sqrt(variance))

    def base(self) -> BaseTransformation:
        """Return the transformation, once every feature and value is noted."""
        return BaseTransformation(
            self._layout,
            self._centre,
            self._scale,
            self._constant,
            self._left_out,
            self._rare,
            self._mode,
            self.value,
            self._target_mean,
            tuple(self._in_base_units(*of) for of in self._intervals),
        )

    def _in_base_units(self, feature: int, interval: Interval) -> Interval:
        """Return an interval of a column in base units: as `BaseTransformation.rows` makes them."""
        centre, scale = self._centre[feature], self._scale[feature]
        return Interval(
            *(end if end in Interval() else float((end - centre) / scale) for end in interval)
        )


def _check_near_0(what: str, mean: float, variance: float, *, must_show: bool) -> None:
    """Refuse a column whose variance about 0 has no digit left of that about its mean."""
    if must_show and abs(mean) > _FURTHEST * np.sqrt(variance):
        raise InvalidData(
            f"column {what} is further than {_FURTHEST:,.0f} deviations from 0, and divided by its "
            "deviation as it is; subtract its mean as well (standardise=True)"
        )


def check_target(mean: float, variance: float, differ: bool | np.bool_) -> None:
    """Refuse a target that no column can be encoded by."""
    what = "the target, which encodes a column,"
    _check_variance(what, mean, variance, must_show=bool(differ))


def _mean(values: Array) -> float:
    """Return the mean; of equal values that value, and not a rounded mean away from it."""
    if (values == values[:1]).all():
        return float(values[0]) if len(values) else 0.0
    return float(np.mean(values))


def _spread(values: Array) -> tuple[float, bool]:
    """Return the variance, whatever rounding has made of the mean, and whether values differ."""
    off = values - np.mean(values)
    variance = max(float(np.mean(off * off) - np.mean(off) ** 2), 0.0)
    return variance, not (values == values[:1]).all()


def _check_variance(what: str, mean: float, variance: float, *, must_show: bool) -> None:
    """Refuse a variance that cannot be computed with.

    If it ``must_show``, one that underflows, too: what varies would pass for constant.
    """
    if not (np.isfinite(mean) and np.isfinite(variance)):
        size, why = "large", "is not a finite number"
    elif must_show and variance < _SMALLEST_VARIANCE:
        size, why = "small", "underflows"
    else:
        return
    raise InvalidData(
        f"{what} is too {size} to compute with: its variance {why}; "
        "rescale the column, or the target if it is encoded by it"
    )
