"""Columns and targets at the ends of float64: computed with as others are, or refused by name.

What is refused here is where parameters are not rounded (docs/exact.md): with exact sums, no square
overflows or vanishes (`test_rounded.py`).
"""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.errors import InvalidData
from lethe.engine.models import LinearModel
from lethe.engine.preprocess.input.columns import Column, Numeric, TargetEncode

N = 40
Y = np.sin(np.arange(N))


def fitted(values: object, column: Column, y: np.ndarray = Y) -> LinearModel:
    columns: dict[str, Column] = {"a": column, "b": Numeric()}
    return LinearModel(preprocess=columns, rounded_features=0).fit(
        {"a": values, "b": np.arange(N) % 7}, y
    )


@pytest.mark.parametrize("largest", [1e160, 1e300, 1.7e308])
@pytest.mark.parametrize("standardise", [True, False])
def test_a_column_whose_variance_is_no_number_is_refused_by_name(
    largest: float, standardise: bool
) -> None:
    one_large = np.where(np.arange(N) == 3, largest, Y)
    all_large = largest * (1 - np.arange(N) / 100)
    for values in (one_large, all_large):
        with pytest.raises(InvalidData, match="'a' is too large to compute with"):
            fitted(values, Numeric(standardise=standardise))


@pytest.mark.parametrize("value", [1e300, 1.7e308])
def test_a_constant_column_may_be_as_large_as_a_number_is(value: float) -> None:
    assert fitted(np.full(N, value), Numeric()).theta[0] == 0.0


ENCODED = [TargetEncode(), TargetEncode(standardise=True), TargetEncode(1.0, standardise=True)]


@pytest.mark.parametrize("size", [1e155, 1e157, 1e160, 1e200, 1e300])
@pytest.mark.parametrize("column", ENCODED)
def test_targets_that_are_too_large_to_encode_by_are_refused(
    size: float, column: TargetEncode
) -> None:
    with pytest.raises(InvalidData, match="too large to compute with"):
        fitted(["u", "v"] * (N // 2), column, Y * size)


@pytest.mark.parametrize("size", [1e-160, 1e-170, 1e-200])
@pytest.mark.parametrize("column", ENCODED)
def test_targets_that_are_too_small_to_encode_by_are_refused(
    size: float, column: TargetEncode
) -> None:
    """Not taken for constant: the encoded column would silently be left out of the model."""
    with pytest.raises(InvalidData, match="the target, which encodes a column, is too small"):
        fitted(["u", "v"] * (N // 2), column, Y * size)


@pytest.mark.parametrize("size", [1e-160, 1e-170, 1e-300])
def test_a_column_that_is_too_small_to_standardise_is_refused_by_name(size: float) -> None:
    with pytest.raises(InvalidData, match="'a' is too small to compute with"):
        fitted(np.cos(Y) * size, Numeric())
    as_it_is = fitted(np.cos(Y) * size, Numeric(standardise=False))
    assert as_it_is.theta[0] == pytest.approx(0.0, abs=1e-100)  # the ridge leaves nothing of it


@pytest.mark.parametrize("size", [1e-150, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("column", ENCODED[1:])
def test_a_standardised_encoding_does_not_depend_on_the_unit_of_the_target(
    size: float, column: TargetEncode
) -> None:
    values = [*"uvw" * (N // 3), "u"]
    table = {"a": values, "b": np.arange(N) % 7}
    kept = [str(i) for i in range(N)][5:]
    plain, scaled = (fitted(values, column, Y * unit) for unit in (1.0, size))
    for _ in range(2):
        np.testing.assert_allclose(scaled.predict(table) / size, plain.predict(table), rtol=1e-12)
        for model in (plain, scaled):
            model.delete(kept[:4], method="exact")


def test_what_is_masked_in_an_array_of_features_is_not_learnt_from() -> None:
    X = np.ma.array(np.column_stack([Y, np.cos(Y)]), mask=False)
    model = LinearModel().fit(X, Y)
    X[1, 1] = np.ma.masked
    with pytest.raises(InvalidData, match="X has masked values"):
        LinearModel().fit(X, Y)
    with pytest.raises(InvalidData, match="X has masked values"):
        model.predict(X)
