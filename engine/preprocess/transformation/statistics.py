"""The live rows' own transformation, and how far it is from the base.

In base units the live rows are x'_i = x_i + sum over a row's entries of shift_e, in the entry's
feature; and scikit-learn's pipeline, fitted to the live rows, divides x' - mean by the standard
deviation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import StatisticsMoved
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import TargetEncode
from lethe.engine.preprocess.input.table import Vocabulary
from lethe.engine.preprocess.transformation.base import (
    BaseTransformation,
    category_moments,
    is_constant,
)
from lethe.engine.preprocess.transformation.categories import CategoryFeatures
from lethe.engine.preprocess.transformation.encoding import (
    TargetMoments,
    ordinal_codes,
    smoothed_means,
)
from lethe.engine.preprocess.transformation.layout import Layout, Places
from lethe.engine.preprocess.transformation.order import Filled, Order, Scaling
from lethe.engine.preprocess.transformation.sums import Sums

_DEVIATIONS = (0.1, 10.0)
_MEANS = 10.0
"""How far a standard deviation and a mean may move, in base units, before a rebuild: within that a
variance loses three digits at most to the subtraction of the mean's square, of twice as many as
float64 has."""

_READ_AGAIN = 1e-9
"""Share of a limit by which sums that are read may pass it: they were within it when they were
written, and are added up in another order now."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the live rows, in base units.

    Attributes
    ----------
    shift
        (q,) live value of each entry less its base value.
    mean
        (p,) of the features x' that are centred; for the others what gives them back as they
        were, less their centre.
    deviation
        (p,) the standard deviations of those that are scaled; 1 for the others, and where a
        feature is constant.
    unit
        (q,) what rounding in the entries' live values is proportional to.
    amplified
        (p,) what rounding in the deviations is proportional to: (variance + mean^2) / variance.
    mean_size
        (p,) what rounding in the means is proportional to.
    imputed
        (p,) what stands in for a missing number.
    target_mean
        Mean of the target.
    present
        (p,) as `CategoryFeatures.rows` of one-hot features; of the others as in `Sums.present`.
    rare
        (p,) as of `CategoryFeatures`.
    """

    shift: Array
    mean: Array
    deviation: Array
    unit: Array
    amplified: Array
    mean_size: Array
    imputed: Array
    target_mean: float
    present: NDArray[np.int64]
    rare: NDArray[np.bool_]


def live_statistics(
    base: BaseTransformation,
    vocabularies: tuple[Vocabulary, ...],
    sums: Sums,
    *,
    read: bool = False,
) -> Statistics:
    """Return the statistics of the live rows. Cost O(p + q).

    ``read``: the sums were stored by a step that had passed the limits, so that they are not judged
    to the last digit once more.

    Raises
    ------
    StatisticsMoved
        A mean or a deviation has moved past the limits, a feature has become constant or is so no
        longer, or another category is to be left out, or has become rare, or is so no longer.
    """
    layout, n = base.layout, sums.rows
    found = _categories(base, vocabularies, sums)
    _check_categories(base, found)
    shift, unit = np.zeros(layout.entries), np.zeros(layout.entries)
    imputed = np.zeros(layout.features)
    first, second = sums.first.high.copy(), sums.second.high.copy()
    j, gap, entry = layout.numeric_features, layout.gap_features, layout.gap_entries
    known = np.full(layout.features, n)
    known[gap] -= sums.counts[entry]
    rows = np.where(layout.scaler_first & (known > 0), known, n)  # that scalers learn from
    filled = rows - known  # values that they see in the place of missing ones
    nothing = -base.centre[j] / base.scale[j]  # a column without a value is 0 throughout
    imputed[j] = np.where(known[j] > 0, first[j] / np.maximum(known[j], 1), nothing)
    orders = dict(_orders(base, sums))
    for feature, order in orders.items():
        if (fill := order.imputed()) is not None:
            imputed[feature] = fill
    shift[entry] = imputed[gap] - base.value[entry]
    unit[entry] = np.sqrt(second[gap] / np.maximum(known[gap], 1))
    first[gap] += filled[gap] * imputed[gap]
    second[gap] += filled[gap] * imputed[gap] ** 2
    mean = first / rows
    variance = second / rows - mean**2
    target_sum, target_squares = sums.all_target.high
    for coded in layout.coded:
        at, own = coded.feature, coded.entries
        counts = sums.counts[own]
        if isinstance(coded.column, TargetEncode):
            sum_of, squares = sums.target.high[:, own]
            moments = TargetMoments(sum_of, squares, target_sum, target_squares, n)
            live = smoothed_means(coded.column.smooth, counts, moments)
            offset, size = base.target_mean - base.centre[at], np.sqrt(target_squares / n)
        else:
            live = ordinal_codes(coded, vocabularies[coded.source], counts)
            offset, size = -base.centre[at], 0.0
        unit[own] = (size + np.abs(live) + abs(offset)) / base.scale[at]
        live = (live + offset) / base.scale[at]
        shift[own] = np.where(counts > 0, live - base.value[own], 0.0)
        mean[at] = counts @ live / n
        variance[at] = counts @ (live - mean[at]) ** 2 / n
    for hot in layout.counted:
        own = hot.features
        share, spread = category_moments(found.rows[own], found.left_out[own], n)
        mean[own] = (share - base.centre[own]) / base.scale[own]
        variance[own] = spread / base.scale[own] ** 2
    unit += np.abs(base.value) + np.abs(shift)
    scalings = _scalings(layout, orders, imputed, filled, unit)
    return Statistics(
        shift,
        *_standardised(base, mean, variance, rows, scalings, read=read),
        unit,
        _amplified(base, mean, variance, scalings),
        _mean_size(base, mean, variance, unit, scalings),
        imputed,
        base.target_mean + target_sum / n,
        found.rows,
        found.rare,
    )


def _orders(base: BaseTransformation, sums: Sums) -> Iterator[tuple[int, Order]]:
    """Yield the order statistics of each feature whose column keeps some, in base units."""
    of_part = groupby(zip(base.layout.order, sums.windows, strict=True), lambda one: one[0].part)
    for part, found in of_part:
        j, windows = part.feature, [window for _, window in found]
        yield j, Order(part.column, windows, -base.centre[j] / base.scale[j], base.scale[j])


def _scalings(
    layout: Layout, orders: Mapping[int, Order], imputed: Array, filled: Places, unit: Array
) -> dict[int, Scaling]:
    """Return the scaling of each feature that is scaled by order statistics.

    ``filled`` (p,) are how many missing values a scaler sees filled in, by what is ``imputed``.
    """
    sizes = np.zeros(layout.features)  # what rounding in what is imputed is proportional to
    sizes[layout.gap_features] = unit[layout.gap_entries]
    found = {
        j: order.scaling(Filled(float(imputed[j]), int(filled[j]), float(sizes[j])))
        for j, order in orders.items()
    }
    return {j: scaling for j, scaling in found.items() if scaling is not None}


def _categories(
    base: BaseTransformation, vocabularies: tuple[Vocabulary, ...], sums: Sums
) -> CategoryFeatures:
    """Return what becomes of all features, (p,) each; of others than one-hot ones nothing."""
    nothing = np.zeros(base.layout.features, dtype=np.bool_)
    whole = CategoryFeatures(sums.present.copy(), nothing, nothing.copy(), nothing.copy())
    for hot in base.layout.counted:
        rows = sums.present[hot.categories]
        found = hot.found(rows, sums.rows, vocabularies[hot.source])
        for of_all, of_column in zip(whole, found, strict=True):
            of_all[hot.features] = of_column
    return whole


def _check_categories(base: BaseTransformation, found: CategoryFeatures) -> None:
    """Refuse where rows that are there have other features than in the base."""
    differ = (found.left_out != base.left_out) | (found.rare != base.rare)
    if differ[found.rows > 0].any():
        raise StatisticsMoved("another category of a column is to be left out, or is rare")
    if (found.mode != base.mode).any():
        raise StatisticsMoved("another category of a column is the most frequent one")


def _standardised(
    base: BaseTransformation,
    mean: Array,
    variance: Array,
    rows: NDArray[np.int64],
    scalings: Mapping[int, Scaling],
    *,
    read: bool,
) -> tuple[Array, Array]:
    """Return what is subtracted from each feature, and what it is then divided by."""
    flags = base.layout.scaled
    raw_mean = base.centre + base.scale * mean
    constant = flags & is_constant(variance * base.scale**2, raw_mean, rows)
    varied = flags & ~base.constant
    if read:  # as the step found them, unless they cannot be those of a model at all
        constant = np.where(varied, variance <= 0.0, base.constant)
    constant[[*scalings]] = [scaling.constant for scaling in scalings.values()]
    if (constant != base.constant)[flags].any():
        raise StatisticsMoved("a feature has become constant, or is so no longer")
    deviation = np.ones(len(mean))
    deviation[varied] = np.sqrt(variance[varied])
    deviation[[*scalings]] = [scaling.scale for scaling in scalings.values()]
    least, most = _DEVIATIONS
    slack = 1.0 + _READ_AGAIN if read else 1.0
    limited = varied & (base.layout.centred | (base.centre != 0))  # others are not from their mean
    limited[[*scalings]] = False  # no variance is taken about it
    if (
        (deviation[varied] * slack < least).any()
        or (deviation[varied] > most * slack).any()
        or (np.abs(mean[limited]) > _MEANS * slack).any()
    ):
        raise StatisticsMoved("the statistics of a feature have moved far from those of the fit")
    centre = np.where(base.layout.centred, mean, -base.centre / base.scale)
    centre[[*scalings]] = [scaling.centre for scaling in scalings.values()]
    return centre, deviation


def _amplified(
    base: BaseTransformation, mean: Array, variance: Array, scalings: Mapping[int, Scaling]
) -> Array:
    """Return (variance + mean^2) / variance of the features that are divided by a deviation."""
    varied = base.layout.scaled & ~base.constant & (variance > 0)
    amplified = 1.0 + np.divide(mean**2, variance, out=np.zeros(len(mean)), where=varied)
    amplified[[*scalings]] = [scaling.amplified for scaling in scalings.values()]
    return amplified


def _mean_size(
    base: BaseTransformation,
    mean: Array,
    variance: Array,
    unit: Array,
    scalings: Mapping[int, Scaling],
) -> Array:
    """Return the root mean square of each feature, and what rounding in its entries adds.

    A share of rows is taken in the column's own units. What is not centred has no mean but what
    gives the column back as it was.
    """
    layout = base.layout
    size = np.hypot(mean, np.sqrt(np.maximum(variance, 0.0)))
    np.maximum.at(size, layout.entry_feature, unit)
    for hot in layout.counted:
        size[hot.features] += (1.0 + np.abs(base.centre) / base.scale)[hot.features]
    size = np.where(layout.centred, size, np.abs(base.centre / base.scale))
    size[[*scalings]] = [scaling.centre_size for scaling in scalings.values()]
    return size
