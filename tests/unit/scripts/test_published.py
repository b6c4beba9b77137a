"""The algorithms as the paper prints them do what its theorems say; ours give the same answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from paper import data, ours, published

Array = NDArray[np.float64]
RIDGE = 1e-2


@dataclass(frozen=True)
class Model:
    """A ridge model and everything that is precomputed of it, by NumPy alone."""

    X: Array
    y: Array
    theta: Array
    inverse: Array

    @property
    def W(self) -> Array:
        return np.asarray(self.X @ self.inverse)

    def hat_rows(self, deleted: NDArray[np.intp]) -> Array:
        return np.asarray(self.X[deleted] @ self.inverse @ self.X.T)

    def without(self, deleted: NDArray[np.intp]) -> Array:
        """Retrain: least squares of the system augmented with the ridge."""
        live = np.delete(np.arange(len(self.y)), deleted)
        d = self.X.shape[1]
        system = np.vstack([self.X[live], np.sqrt(RIDGE) * np.eye(d)])
        target = np.concatenate([self.y[live], np.zeros(d)])
        return np.asarray(np.linalg.lstsq(system, target, rcond=None)[0])


def model(seed: int = 0, n: int = 80, d: int = 12, outlier: float = 4.0) -> Model:
    """A model with rows of very unequal leverage."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((n, d))
    X[:5] *= outlier
    y = X @ draw.standard_normal(d) + draw.standard_normal(n)
    inverse = np.asarray(np.linalg.inv(X.T @ X + RIDGE * np.eye(d)), dtype=np.float64)
    return Model(X, y, inverse @ X.T @ y, inverse)


DELETED = np.array([0, 3, 17, 40])


def test_algorithm_2_predicts_what_the_retrained_model_does() -> None:
    made = model()

    predictions = published.leave_k_out_predictions(made.y, DELETED, made.hat_rows(DELETED))

    np.testing.assert_allclose(predictions, made.X[DELETED] @ made.without(DELETED), rtol=1e-10)


def test_algorithm_2_as_printed_does_not() -> None:
    made = model()
    wanted = made.X[DELETED] @ made.without(DELETED)

    printed = published.leave_k_out_predictions(
        made.y, DELETED, made.hat_rows(DELETED), as_printed=True
    )

    assert np.linalg.norm(printed - wanted) > 1e-3 * np.linalg.norm(wanted)


def test_algorithm_2_as_printed_agrees_for_one_row() -> None:
    made, one = model(), np.array([3])
    hat_rows = made.hat_rows(one)

    printed = published.leave_k_out_predictions(made.y, one, hat_rows, as_printed=True)

    np.testing.assert_allclose(printed, made.X[one] @ made.without(one), rtol=1e-10)


def test_algorithm_1_projects_the_exact_step_as_theorem_1_says() -> None:
    made = model()
    U = made.X[DELETED]
    step = made.without(DELETED) - made.theta
    projection = np.linalg.pinv(U) @ (U @ step)

    for theta in (
        published.projective_residual_update(
            made.X, made.y, made.theta, DELETED, made.hat_rows(DELETED)
        ),
        ours.pru_from_dual_rows(made.X, made.y, made.theta, DELETED, made.W),
        ours.pru_by_gram_matrix(made.X, made.y, made.theta, DELETED, made.W),
    ):
        np.testing.assert_allclose(theta, made.theta + projection, rtol=1e-9)


@pytest.mark.parametrize("dependent", [False, True])
def test_algorithms_4_and_5_multiply_by_the_pseudo_inverse(dependent: bool) -> None:
    draw = np.random.default_rng(1)
    rows = draw.standard_normal((4, 9))
    if dependent:
        rows[3] = rows[0] - 2 * rows[1]
    gradient = draw.standard_normal(9)

    product = published.fast_multiplication(*published.pseudo_inverse(rows), gradient)

    np.testing.assert_allclose(product, np.linalg.pinv(rows.T @ rows) @ gradient, atol=1e-10)


def test_exact_methods_equal_retraining() -> None:
    made = model()
    live = np.delete(np.arange(len(made.y)), DELETED)
    X, y = made.X[live], made.y[live]
    slope = X.T @ (X @ made.theta - y) + RIDGE * made.theta
    new_inverse = np.linalg.inv(X.T @ X + RIDGE * np.eye(X.shape[1]))
    given = (made.X, made.y, made.theta, DELETED)

    for theta in (
        published.exact(*given, made.inverse),
        published.exact_as_timed(*given, made.inverse),
        published.newton(made.theta, slope, new_inverse),
        ours.exact_from_dual_rows(*given, made.W),
    ):
        np.testing.assert_allclose(theta, made.without(DELETED), rtol=1e-10)


def test_influence_moves_by_the_full_hessian() -> None:
    made = model()
    live = np.delete(np.arange(len(made.y)), DELETED)
    X, y = made.X[live], made.y[live]
    slope = X.T @ (X @ made.theta - y) + RIDGE * made.theta
    given = (made.X, made.y, made.theta, DELETED)

    for theta in (
        published.influence(*given, made.inverse),
        ours.influence_from_dual_rows(*given, made.W),
    ):
        np.testing.assert_allclose(theta, made.theta - made.inverse @ slope, rtol=1e-9)


def test_dependent_rows_stop_the_projection_by_gram_matrix_and_no_other() -> None:
    """Sparse rows with fewer columns than rows, as in Table 3."""
    draw, deleted = np.random.default_rng(0), np.arange(10)
    X = data.gaussian_rows(draw, 600, 60)
    X = data.inject(X, 10, *data.sparse_masks(draw, 600, 60, 0.1))
    y = data.linear_fit_targets(draw, X, 10)
    inverse = np.asarray(np.linalg.inv(X.T @ X + RIDGE * np.eye(60)), dtype=np.float64)
    sparse = Model(X, y, inverse @ X.T @ y, inverse)
    U = X[:10]
    assert np.linalg.matrix_rank(U) < 10
    wanted = sparse.theta + np.linalg.pinv(U) @ (U @ (sparse.without(deleted) - sparse.theta))

    for theta in (
        published.projective_residual_update(X, y, sparse.theta, deleted, sparse.hat_rows(deleted)),
        ours.pru_from_dual_rows(X, y, sparse.theta, deleted, sparse.W),
    ):
        np.testing.assert_allclose(theta, wanted, rtol=1e-7, atol=1e-8)
    with pytest.raises(np.linalg.LinAlgError):
        ours.pru_by_gram_matrix(X, y, sparse.theta, deleted, sparse.W)
