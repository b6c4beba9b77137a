"""Labels become targets as a user of scikit-learn expects, or are refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import class_counts, encoded, one_sided, probabilities
from lethe.engine.fit.objective import Kind, Rows


@pytest.mark.parametrize(
    ("labels", "names", "targets"),
    [
        ([0, 1, 1], (), [[0], [1], [1]]),
        ([True, False], (), [[1], [0]]),
        ([0.0, 0.0], (), [[0], [0]]),
        ([[1], [0]], (), [[1], [0]]),
        (["no", "yes", "no"], ("no", "yes"), [[0], [1], [0]]),
        ([-1, 1, 1], ("-1", "1"), [[0], [1], [1]]),
        ([10, 9, 100], ("9", "10", "100"), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
        (["b", "a", "c"], ("a", "b", "c"), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
        (np.array(["b", "a"], dtype=object), ("a", "b"), [[1], [0]]),
        (np.array([2, 0, 1], dtype=object), ("0", "1", "2"), [[0, 0, 1], [1, 0, 0], [0, 1, 0]]),
    ],
)
def test_labels_are_classes_in_order(
    labels: Any, names: tuple[str, ...], targets: list[list[int]]
) -> None:
    found, y = encoded(labels)
    assert found == names
    assert y.dtype == np.float64
    assert y.tolist() == targets


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1.0, 2.0], "regression target"),
        ([0.0, np.nan], "none of these"),
        ([0.0, np.inf, 1.0], "none of these"),
        (list(range(101)), "101 different values; a logistic model takes at most 100 classes"),
        (["a", "a"], "nothing to tell apart"),
        ([3, 3, 3], "nothing to tell apart"),
        (["a", " ", "b"], "a label is empty"),
        (np.array(["a", 1, "b"], dtype=object), "mixed"),
        (np.array(["a", None, "b"], dtype=object), "mixed"),
        (np.array([1, None, 2], dtype=object), "none of these"),
        ([[1, 0], [0, 1]], "one target"),
        ([1j, 2j], "text or whole numbers"),
    ],
)
def test_what_is_no_class_is_refused(labels: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        encoded(labels)


def test_rows_are_counted_by_class() -> None:
    assert class_counts(np.array([[0.0], [1.0], [1.0]])) == (1, 2)
    assert class_counts(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])) == (0, 1, 1)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([[0.0], [1.0]], False),
        ([[1.0], [1.0]], True),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], False),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], True),  # the third class has no row
    ],
)
def test_a_class_without_rows_is_found(y: list[list[float]], expected: bool) -> None:
    rows = Rows(np.ones((len(y), 1)), np.array(y), np.ones(len(y)))
    assert one_sided(Kind.LOGISTIC, rows) is expected
    assert not one_sided(Kind.LINEAR, rows)


def test_probabilities_are_those_of_scikit_learns_one_vs_rest() -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((90, 3))
    labels = np.argmax(X + rng.gumbel(size=(90, 3)), axis=1)
    judge = OneVsRestClassifier(LogisticRegression(tol=1e-10)).fit(X, labels)
    margins = np.column_stack([one.decision_function(X) for one in judge.estimators_])
    np.testing.assert_allclose(probabilities(margins), judge.predict_proba(X), rtol=1e-12)


def test_probabilities_sum_to_one_where_every_sigmoid_underflows() -> None:
    found = probabilities(np.array([[-800.0, -801.0, -2000.0]]))
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-15)
    np.testing.assert_allclose(found[0, 0] / found[0, 1], np.e, rtol=1e-12)
