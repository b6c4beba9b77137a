from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe.engine import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData, LetheError

BAD: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "text": ([["a"]], [1.0], {}, "X is not an array of numbers"),
    "ragged": ([[1.0], [1.0, 2.0]], [1.0, 2.0], {}, "X is not an array of numbers"),
    "flat X": ([1.0, 2.0], [1.0, 2.0], {}, "X must have 2 dimensions, not 1"),
    "scalar y": ([[1.0]], 1.0, {}, "y must have 1 or 2 dimensions, not 0"),
    "empty": (np.empty((0, 2)), [], {}, "there is no row to fit"),
    "no column": (np.empty((2, 0)), np.empty((2, 0)), {}, "no feature to fit"),
    "lengths": ([[1.0], [2.0]], [1.0], {}, "X has 2 rows, but y has 1"),
    "ids": ([[1.0], [2.0]], [1.0, 0.0], {"ids": ["a"]}, "1 ids for 2 rows"),
    "same ids": ([[1.0], [2.0]], [1.0, 0.0], {"ids": ["a", "a"]}, "not distinct"),
    "nan": ([[1.0], [np.nan]], [1.0, 0.0], {}, "a feature of row 1 is not a finite number"),
    "weight": (
        [[1.0], [2.0]],
        [1.0, 0.0],
        {"sample_weight": [1.0, -0.5]},
        "row 1 is below 0: -0.5",
    ),
    "no weight": ([[1.0], [2.0]], [1.0, 0.0], {"sample_weight": [0.0, 0.0]}, "every .* is zero"),
    "weights": ([[1.0], [2.0]], [1.0, 0.0], {"sample_weight": [1.0]}, "1 weights"),
}


@pytest.mark.parametrize("model", [LinearModel, LogisticModel])
@pytest.mark.parametrize("case", BAD)
def test_data_that_cannot_be_used_are_refused_in_plain_words(
    model: type[LinearModel] | type[LogisticModel], case: str
) -> None:
    X, y, extra, message = BAD[case]
    with pytest.raises(InvalidData, match=message) as caught:
        model().fit(X, y, **extra)
    assert isinstance(caught.value, LetheError)
    assert caught.value.code == "INVALID_DATA"


@pytest.mark.parametrize("y", [[0.5, 1.0], [0.0, 2.5]])
def test_logistic_targets_are_0_or_1(y: list[float]) -> None:
    with pytest.raises(InvalidData, match="must be 0 or 1"):
        LogisticModel().fit([[1.0], [2.0]], y)
    with pytest.raises(InvalidData, match="one target"):
        LogisticModel().fit([[1.0], [2.0]], [[1.0, 0.0], [0.0, 1.0]])
