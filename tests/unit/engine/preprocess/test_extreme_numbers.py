"""Columns and targets at the ends of float64: computed with as others are, or refused by name."""

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
    return LinearModel(preprocess=columns).fit({"a": values, "b": np.arange(N) % 7}, y)


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


@pytest.mark.parametrize("size", [1e200, 1e300])
@pytest.mark.parametrize("column", [TargetEncode(), TargetEncode(1.0, standardise=True)])
def test_targets_that_are_too_large_to_encode_by_are_refused(
    size: float, column: TargetEncode
) -> None:
    with pytest.raises(InvalidData, match="too large to compute with"):
        fitted(["u", "v"] * (N // 2), column, Y * size)


def test_what_is_masked_in_an_array_of_features_is_not_learnt_from() -> None:
    X = np.ma.array(np.column_stack([Y, np.cos(Y)]), mask=False)
    model = LinearModel().fit(X, Y)
    X[1, 1] = np.ma.masked
    with pytest.raises(InvalidData, match="X has masked values"):
        LinearModel().fit(X, Y)
    with pytest.raises(InvalidData, match="X has masked values"):
        model.predict(X)
