"""Arrays with a part for each block, and blocks that refuse together."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.generation import at_rest
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.error.certificate import Certificate
from lethe.engine.error.drift import audit
from lethe.engine.errors import IllConditioned
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import Factor, factorise
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.refresh.blockwise import stacked, together
from tests.support.states import started


def test_one_block_is_the_whole_array() -> None:
    wide = np.arange(6.0).reshape(2, 3)
    assert blocks.count(wide, 3) == 1
    assert blocks.part(wide, 0, 3).tolist() == wide.tolist()
    several_outputs = np.arange(8.0).reshape(2, 4)
    assert blocks.outputs(several_outputs, 0, 1) is several_outputs


def test_products_are_taken_block_by_block() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 5, 3))
    wide = np.hstack([first, second])
    e, g = rng.standard_normal((5, 2)), rng.standard_normal((3, 2))
    pulled = np.column_stack([first.T @ e[:, 0], second.T @ e[:, 1]])
    pushed = np.column_stack([first @ g[:, 0], second @ g[:, 1]])
    np.testing.assert_allclose(blocks.weighted_sum(wide, e, 3), pulled, rtol=1e-14)
    np.testing.assert_allclose(blocks.row_products(wide, g), pushed, rtol=1e-14)


def test_a_stacked_factor_gives_its_blocks_back_and_bounds_all_of_them() -> None:
    rng = np.random.default_rng(1)
    roots = rng.standard_normal((2, 9, 4))
    parts = [factorise(root.T @ root + (1 + c) * np.eye(4)) for c, root in enumerate(roots)]
    whole = stacked(parts)
    assert whole.L.shape == (8, 4)
    assert whole.smallest == min(part.smallest for part in parts)
    assert whole.largest == max(part.largest for part in parts)
    for c, part in enumerate(parts):
        np.testing.assert_array_equal(whole.block(c).L, part.L)
    assert stacked(parts[:1]).block(0) is parts[0]


def test_certificates_add_up_as_parts_of_one_vector() -> None:
    one, two = Certificate(3.0, "self-concordant", 0.3, 6.0), Certificate(4.0, "solved", 0.4, 8.0)
    assert together([one]) is one
    both = together([one, two])
    assert both.bound == 5.0
    assert both.estimate == 0.5
    assert both.residual == 10.0
    assert both.argument == "self-concordant and solved"
    none = together([one, Certificate(None, "none", 4.0, 8.0)])
    assert none.bound is None
    assert none.left == 5.0  # a bound where there is one, an estimate where there is none


def test_a_theta_of_several_classes_has_no_single_curvature_or_hessian() -> None:
    rows = Rows(np.eye(2), np.eye(2), np.ones(2))
    objective = Objective(Kind.LOGISTIC, np.ones(2))
    assert objective.curvatures(rows, np.zeros((2, 2))).tolist() == [[0.25, 0.25], [0.25, 0.25]]
    with pytest.raises(ValueError, match="2 classes"):
        objective.curvature(rows, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="2 classes"):
        objective.hessian(rows, np.zeros((2, 2)))


def test_one_block_that_refuses_refuses_for_all() -> None:
    state = started("classes", "logistic")
    index = state.data.deleted[:1]
    rows, W = state.rows.take(index), state.made.dual_rows[index].copy()
    d = state.objective.d
    s = state.objective.curvatures(rows, state.made.theta)[0, 2]
    x = rows.X[0]
    blocks.part(W, 2, d)[:] = x / (s * float(x @ x))  # leverage 1, in the third block alone
    with pytest.raises(IllConditioned):
        delete(state.generation, state.stream, rows, W, method_named("exact"))


def test_damage_in_one_class_is_found_by_the_audit() -> None:
    state = started("classes", "logistic")
    stream = state.delete_in([5, 4], "pru")
    rows, W = state.live_rows(9)
    d, factor = state.objective.d, state.made.factor
    sound = audit(state.generation, stream, factor, rows, W)
    assert sound.fault is None
    damaged = factor.L.copy()
    damaged[2 * d + 3, 1] += 1e-6
    hurt = Factor(damaged, factor.smallest, factor.largest)
    assert "dual rows" in (audit(state.generation, stream, hurt, rows, W).fault or "")
    V = stream.V.array.copy()
    blocks.part(V, 3, d)[4, 0] *= 1.001
    other = stream._replace(V=Correction.of(V))
    assert "V does not" in (audit(state.generation, other, factor, rows, W).fault or "")
    moved = stream.theta_exact.copy()
    moved[0, 1] += 1e-3
    other = stream._replace(theta_exact=moved)
    assert "exact answer" in (audit(state.generation, other, factor, rows, W).fault or "")


def test_a_stream_of_several_blocks_begins_with_room_for_each() -> None:
    fresh = at_rest(np.zeros((3, 4)), 0.0, 4)
    assert fresh.V.array.shape == (0, 12)
    assert fresh.Q.array.shape == (0, 3)
