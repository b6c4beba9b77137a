"""A model of several classes is so many models of one class against the rest, in one stream.

The judge of each class is a binary model of that class alone, or retraining; scikit-learn's
OneVsRestClassifier judges the whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from lethe.engine import LogisticModel, RefreshSize
from lethe.engine.deletion.generation import Stream
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.error.certificate import Certificate
from lethe.engine.error.estimate import remainder_estimate
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.blocks import part
from lethe.engine.fit.objective import Rows
from lethe.engine.refresh.blockwise import rows_of
from lethe.engine.refresh.refreshes import adopt_polish, compact, complete, polish_snapshot, rebuild
from tests.proof.properties.test_stream import drawn
from tests.support.families import CLASSES, Array, Data, make
from tests.support.oracles import distance, newton_from, relative, retrain
from tests.support.states import Started, start, started

NAMES = tuple(CLASSES)


def one_against_the_rest(data: Data, c: int) -> Data:
    """Return the binary data of one class."""
    return replace(data, name=f"{data.name}-{c}", y=data.y[:, c : c + 1])


def alone(name: str, seed: int) -> list[Started]:
    """Return the binary model of each class."""
    data = make(name, "logistic", seed)
    return [start(one_against_the_rest(data, c)) for c in range(data.y.shape[1])]


def batches(state: Started, order: list[int], cuts: list[int], method: str) -> Stream:
    """Return the stream after the family's rows were deleted in this order, cut like this."""
    stream = state.stream
    for batch in np.split(state.data.deleted[order], sorted(cuts)):
        stream = state.delete(stream, batch, method)
    return stream


# -- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "pru", "influence"])
@pytest.mark.parametrize("name", NAMES)
def test_each_class_is_what_a_binary_model_of_it_alone_is(name: str, method: str) -> None:
    state, binary = started(name, "logistic"), alone(name, 0)
    d = state.objective.d
    whole = state.delete_in([1, 5, 0, 12, 18], method)
    for c, one in enumerate(binary):
        lone = one.delete_in([1, 5, 0, 12, 18], method)
        assert relative(whole.theta_exact[:, c : c + 1], lone.theta_exact) < 1e-11
        assert relative(whole.published[:, c : c + 1], lone.published) < 1e-11
        np.testing.assert_allclose(part(whole.V.array, c, d), lone.V.array, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(whole.Q.array, lone.Q.array, rtol=1e-9, atol=1e-12)
        assert whole.v_trace >= lone.v_trace * (1 - 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_running_answer_is_the_newton_step_on_the_rows_that_remain(name: str) -> None:
    state = started(name, "logistic")
    stream = state.delete_in([1] * 20 + [16], "exact")
    live = state.data.live(36)
    data = state.data
    for c in range(data.y.shape[1]):
        truth = newton_from(
            state.made.theta[:, c : c + 1],
            data.design[live],
            data.y[live, c : c + 1],
            data.weight[live],
            data.penalty,
        )
        assert relative(stream.theta_exact[:, c : c + 1], truth) < 1e-9


@drawn(40)
@given(draw=st.data())
def test_any_order_and_any_batches_give_the_same_state(draw: st.DataObject) -> None:
    state = started(draw.draw(st.sampled_from(NAMES)), "logistic", draw.draw(st.integers(0, 2)))
    k = len(state.data.deleted)
    order = draw.draw(st.permutations(range(k)))
    cuts = draw.draw(st.lists(st.integers(0, k), max_size=k))
    whole = batches(state, list(range(k)), [], "pru")
    other = batches(state, order, cuts, "pru")
    scale = float(np.linalg.norm(state.made.theta))
    assert np.linalg.norm(whole.theta_exact - other.theta_exact) <= 1e-9 * scale
    assert np.linalg.norm(whole.published - other.published) <= 1e-9 * scale
    assert len(whole.Q) == len(other.Q)


# -- refreshes and errors ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", NAMES)
def test_no_certificate_is_below_the_true_error(name: str, seed: int) -> None:
    state = started(name, "logistic", seed)
    assert state.made.certificate.bound is not None
    assert distance(state.made.theta, state.retrained(0)) <= state.made.certificate.bound
    scale = float(np.linalg.norm(state.made.theta))
    for k in (1, 9, 36):
        stream = state.delete_in([k], "pru")
        rows, W = state.live_rows(k)
        truth = state.retrained(k)
        for target in (1e-1, 1e-3, 1e-6):
            polished = polish_snapshot(
                state.generation, stream, state.made.factor, rows, W, target=target * scale
            )
            error = distance(polished.theta, truth)
            if polished.certified is not None:
                assert error <= polished.certified
            assert polished.left <= target * scale
            assert error <= target * scale
        # A polish of all classes costs the passes of each.
        assert polished.passes >= state.data.y.shape[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_is_that_of_the_live_rows(name: str) -> None:
    # With every live row a sentinel nothing is sampled: what is left is the second order.
    state = started(name, "logistic")
    k = 9
    stream = state.delete_in([k], "exact")
    rows, W = state.live_rows(k)
    every = Sentinels(tuple(str(i) for i in range(len(rows))), rows, W)
    estimate = remainder_estimate(state.generation, stream, every, len(rows))
    error = distance(stream.theta_exact, state.retrained(k))
    assert 0.5 * error <= estimate <= 3.0 * error


@pytest.mark.parametrize("name", NAMES)
def test_a_compacted_generation_goes_on_as_if_nothing_had_happened(name: str) -> None:
    state = started(name, "logistic")
    stream = complete(state.delete_in([11], "pru"))
    rows, W = state.live_rows(11)
    made = compact(state.generation, stream, state.made.factor, rows, W)
    gone = np.isin(np.flatnonzero(state.data.live(11)), state.data.deleted[11:30])
    went_on = replace(state, generation=made.generation)
    after = _delete_at(went_on, made.stream, rows.take(gone), made.dual_rows[gone])
    straight = state.delete(stream, state.data.deleted[11:30], "pru")
    assert relative(after.theta_exact, straight.theta_exact) < 1e-9
    assert relative(after.published, straight.published) < 1e-9
    assert len(after.V) == 19


def _delete_at(state: Started, stream: Stream, rows: Rows, W: Array) -> Stream:
    return delete(state.generation, stream, rows, W, method_named("pru")).stream


@pytest.mark.parametrize("name", NAMES)
def test_a_polish_keeps_deletions_that_were_committed_meanwhile(name: str) -> None:
    state = started(name, "logistic")
    snapshot = state.delete_in([10], "pru")
    rows, W = state.live_rows(10)
    scale = float(np.linalg.norm(state.made.theta))
    polished = polish_snapshot(
        state.generation, snapshot, state.made.factor, rows, W, target=1e-10 * scale
    )
    now = state.delete(snapshot, state.data.deleted[10:14], "pru")
    adopted = adopt_polish(now, polished, concurrent=4)
    step = now.theta_exact - snapshot.theta_exact
    assert relative(adopted.theta_exact, polished.theta + step) < 1e-14
    # And what is deleted from then on refers to the polished point.
    after = state.delete(adopted, state.data.deleted[14:18], "exact")
    assert np.linalg.norm(after.theta_exact - adopted.theta_exact) > 0
    assert distance(after.theta_exact, state.retrained(18)) < 0.05 * scale


@pytest.mark.parametrize("name", NAMES)
def test_a_rebuild_is_retraining(name: str) -> None:
    state = started(name, "logistic")
    rows, _ = state.live_rows(36)
    made = rebuild(state.generation, rows, state.made.theta)
    assert made.certified is not None
    assert distance(made.stream.published, state.retrained(36)) <= made.certified
    d = state.objective.d
    for c in range(made.generation.blocks):
        hessian = state.objective.hessian(
            rows_of(rows, c, made.generation.blocks), made.stream.theta_exact[:, c : c + 1]
        )
        L = made.factor.L[c * d : (c + 1) * d]
        np.testing.assert_allclose(L @ L.T, hessian, rtol=1e-10, atol=1e-12)


# -- the library -------------------------------------------------------------------------------


def labels_of(data: Data) -> list[str]:
    return [f"class {c}" for c in np.argmax(data.y, axis=1)]


def published(model: LogisticModel) -> Array:
    return np.vstack([model.theta, model.intercept])


@pytest.mark.parametrize("method", ["exact", "pru", "influence"])
def test_a_model_with_text_labels_forgets_as_scikit_learn_would_refit(method: str) -> None:
    data = make("classes", "logistic", 3)
    labels = np.array(labels_of(data))
    model = LogisticModel(ridge=data.ridge).fit(data.X, labels)
    assert model.classes == ("class 0", "class 1", "class 2", "class 3")
    assert model.theta.shape == (12, 4)
    for size in (*RefreshSize, None):
        gone = [str(i) for i in data.deleted[: 5 + 5 * (size is not None)]]
        result = model.delete(gone, method=method)
        assert result.step.shape == (13, 4)
        model.refresh(size)
    model.refresh("rebuild")
    live = [int(i) for i in model.live_ids]
    judge = OneVsRestClassifier(LogisticRegression(C=1 / data.ridge, tol=1e-12, max_iter=10_000))
    judge.fit(data.X[live], labels[live])
    np.testing.assert_allclose(
        model.predict_proba(data.X), judge.predict_proba(data.X), rtol=1e-4, atol=1e-6
    )
    truth = retrain("logistic", data.design[live], data.y[live], data.weight[live], data.penalty)
    assert model.error.bound is not None
    assert np.linalg.norm(published(model) - truth) <= model.error.bound


def test_every_version_keeps_its_bound_through_refreshes_of_all_sizes() -> None:
    data = make("classes", "logistic", 1)
    model = LogisticModel(ridge=data.ridge, error_budget=0.05).fit(data.X, labels_of(data))
    bounded = 0
    for step, row in enumerate(data.deleted):
        model.delete([str(row)])
        if step % 4 == 3:
            model.refresh(list(RefreshSize)[step // 4 % 4])
        live = data.live(step + 1)
        truth = retrain(
            "logistic", data.design[live], data.y[live], data.weight[live], data.penalty
        )
        error = float(np.linalg.norm(published(model) - truth))
        if model.error.bound is not None:
            bounded += 1
            assert error <= model.error.bound
        if model.error.value is not None:
            assert error <= 4 * model.error.value + 1e-12
    assert bounded >= 4


def test_a_class_that_loses_its_last_row_penalises_every_intercept_and_says_so() -> None:
    data = make("classes", "logistic", 2)
    rare = int(np.argmin(data.y.sum(axis=0)))
    gone = np.flatnonzero(data.y[:, rare])
    model = LogisticModel(ridge=data.ridge).fit(data.X, labels_of(data))
    model.delete([str(i) for i in gone[:-1]])
    assert model.intercept_penalised is False
    model.delete([str(gone[-1])])
    assert bool(model.intercept_penalised)
    assert model.classes[rare] == f"class {rare}"  # it stays a column
    live = [int(i) for i in model.live_ids]
    penalty = np.full(13, data.ridge)
    truth = retrain("logistic", data.design[live], data.y[live], np.ones(len(live)), penalty)
    assert relative(published(model), truth) < 1e-8
    assert np.all(model.predict_proba(data.X)[:, rare] < 0.1)
    # And deletion goes on.
    model.delete([str(i) for i in live[:3]])
    model.refresh("polish")
    assert len(model.live_ids) == len(live) - 3


def test_a_model_of_classes_without_rows_predicts_none_of_them_more_than_another() -> None:
    data = make("classes", "logistic")
    model = LogisticModel().fit(data.X, labels_of(data))
    model.delete(model.live_ids)
    assert not published(model).any()
    np.testing.assert_allclose(model.predict_proba(data.X), 0.25)


def test_two_named_classes_are_one_model_of_the_second() -> None:
    data = make("benign", "logistic")
    plain = LogisticModel().fit(data.X, data.y[:, 0])
    named = LogisticModel().fit(data.X, np.where(data.y[:, 0] == 1, "yes", "no"))
    assert named.classes == ("no", "yes")
    assert plain.classes == ()
    np.testing.assert_array_equal(plain.theta, named.theta)
    np.testing.assert_array_equal(plain.predict_proba(data.X), named.predict_proba(data.X))


def test_certificates_of_classes_are_not_tighter_than_their_parts() -> None:
    state, binary = started("classes", "logistic"), alone("classes", 0)
    parts = [one.made.certificate for one in binary]
    assert all(isinstance(one, Certificate) and one.bound is not None for one in parts)
    combined = float(np.linalg.norm([one.bound or 0.0 for one in parts]))
    assert state.made.certificate.bound == pytest.approx(combined, rel=1e-9)
