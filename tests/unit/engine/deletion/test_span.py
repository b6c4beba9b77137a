from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.deletion.span import extend_basis, project
from lethe.engine.fit.objective import Array
from tests.support.oracles import projection

NONE = np.empty((0, 8))


@pytest.fixture
def rng() -> np.random.Generator:
    """Return numbers of a test's own, whichever tests ran before it in the process."""
    return np.random.default_rng(0)


def _grown(blocks: list[Array], d: int) -> Array:
    Q = np.empty((0, d))
    for block in blocks:
        Q = np.vstack([Q, extend_basis(Q, block)])
    return Q


@pytest.mark.parametrize("rows", [1, 3, 8, 20])
def test_any_number_of_rows_gives_an_orthonormal_basis_of_their_span(
    rows: int, rng: np.random.Generator
) -> None:
    U = rng.standard_normal((rows, 8))
    Q = extend_basis(NONE, U)
    assert len(Q) == min(rows, 8)
    np.testing.assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=1e-14)
    np.testing.assert_allclose(U - (U @ Q.T) @ Q, 0.0, atol=1e-13)


def test_duplicates_dependent_rows_and_zeros_add_nothing(rng: np.random.Generator) -> None:
    U = rng.standard_normal((3, 8))
    Q = extend_basis(NONE, np.vstack([U, U, 1e6 * U, np.zeros((2, 8)), U.sum(axis=0)]))
    assert len(Q) == 3
    assert len(extend_basis(Q, rng.standard_normal((5, 3)) @ U)) == 0
    assert len(extend_basis(Q, np.zeros((2, 8)))) == 0
    assert len(extend_basis(Q, np.empty((0, 8)))) == 0


def test_a_full_basis_stays_full(rng: np.random.Generator) -> None:
    Q = _grown([rng.standard_normal((3, 8)) for _ in range(10)], 8)
    assert Q.shape == (8, 8)
    np.testing.assert_allclose(Q @ Q.T, np.eye(8), atol=1e-13)


def test_rows_of_very_different_length_are_all_spanned(rng: np.random.Generator) -> None:
    U = rng.standard_normal((4, 8)) * np.array([1e-12, 1.0, 1e9, 1e-3])[:, None]
    assert len(extend_basis(NONE, U)) == 4


def test_nearly_dependent_rows_keep_the_basis_orthonormal(rng: np.random.Generator) -> None:
    first = rng.standard_normal((5, 40))
    for gap in (1e-4, 1e-8, 1e-11):
        second = first + gap * rng.standard_normal((5, 40))
        Q = _grown([first, second], 40)
        assert len(Q) == 10
        np.testing.assert_allclose(Q @ Q.T, np.eye(10), atol=1e-13)


def test_the_basis_does_not_depend_on_the_batches_in_what_it_projects(
    rng: np.random.Generator,
) -> None:
    U = rng.standard_normal((30, 5)) @ rng.standard_normal((5, 50))
    U[10:20] = rng.standard_normal((10, 50))
    vector = rng.standard_normal((50, 2))
    truth = projection(U, vector)
    for sizes in ([30], [1] * 30, [7, 13, 10]):
        blocks = np.split(U, np.cumsum(sizes)[:-1])
        np.testing.assert_allclose(project(_grown(blocks, 50), vector), truth, atol=1e-11)
