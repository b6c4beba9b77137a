from __future__ import annotations

import tracemalloc
from typing import assert_type

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from lethe.engine import (
    DeletionResult,
    ErrorKind,
    Limits,
    LinearModel,
    LogisticModel,
    PublishedError,
    RefreshSize,
)
from lethe.engine.errors import IllConditioned, InvalidData, UnknownRows
from lethe.engine.fit.objective import Array
from lethe.engine.refresh import policy
from tests.support.families import Data, families, make
from tests.support.oracles import distance, retrain_wide

Model = LinearModel | LogisticModel


def _streaming(data: Data) -> LinearModel:
    """Return a linear model whose sums are not exact: it has a stream with V and refreshes."""
    model = LinearModel(ridge=data.ridge, fit_intercept=data.intercept, rounded_features=0)
    return model.fit(data.X, data.y[:, 0], ids=_ids(data), sample_weight=data.weight)


def _ids(data: Data) -> list[str]:
    return [f"u{i}" for i in range(len(data.X))]


def _model(data: Data, *, error_budget: float = 0.01) -> Model:
    kind = LinearModel if data.kind == "linear" else LogisticModel
    model = kind(ridge=data.ridge, fit_intercept=data.intercept, error_budget=error_budget)
    y = data.y[:, 0] if data.y.shape[1] == 1 else data.y
    return model.fit(data.X, y, ids=_ids(data), sample_weight=data.weight)


def _whole(model: Model) -> Array:
    """Return theta with the intercept below it, d x m."""
    theta = model.theta.reshape(len(model.theta), -1)
    if not model.fit_intercept:
        return theta
    return np.vstack([theta, np.reshape(model.intercept, (1, -1))])


def _distance(model: Model, data: Data, gone: set[int]) -> float:
    live = [i for i in range(len(data.X)) if i not in gone]
    truth = retrain_wide(
        data.kind, data.design[live], data.y[live], data.weight[live], data.penalty
    )
    return distance(_whole(model), truth)


def test_the_example_of_the_contract() -> None:
    data = make("benign", "linear")
    X, y, ids = data.X, data.y[:, 0], _ids(data)
    model = LinearModel(ridge=1.0, fit_intercept=True).fit(X, y, ids=ids)
    result = model.delete(["u17", "u42"], method="pru")
    assert_type(model, LinearModel)
    assert_type(result, DeletionResult)
    assert_type(model.error, PublishedError)
    assert model.theta.shape == (12,)
    assert isinstance(model.intercept, float)
    assert result.deleted == ("u17", "u42")
    assert result.step.shape == (13,)
    assert result.error == model.error
    assert result.error.kind is ErrorKind.EXACT
    assert result.bound == model.error.bound
    assert result.bound is not None
    assert 0 < _distance(model, data, {17, 42}) <= result.bound
    assert len(model.live_ids) == 118
    assert "u17" not in model.live_ids


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_every_family_ends_within_its_budget_after_the_policys_refresh(kind: str) -> None:
    for name in families(kind):
        data = make(name, kind)
        model, gone = _model(data), set[int]()
        for at in range(0, len(data.deleted), 6):
            batch = [int(i) for i in data.deleted[at : at + 6]]
            gone.update(batch)
            result = model.delete([f"u{i}" for i in batch])
            true = _distance(model, data, gone)
            assert result.bound is None or true <= result.bound, name
            if result.error.over(model.error_budget):
                model.refresh()
                true = _distance(model, data, gone)
                bound = model.error.bound
                assert bound is None or true <= bound, name
                size = float(np.linalg.norm(_whole(model)))
                assert true <= model.error_budget * size, (name, at)


def test_without_deletions_it_is_scikit_learns_model() -> None:
    linear = make("weighted", "linear")
    theirs = Ridge(alpha=1.0).fit(linear.X, linear.y[:, 0], sample_weight=linear.weight)
    ours = _model(linear)
    np.testing.assert_allclose(ours.theta, theirs.coef_, rtol=1e-9)
    np.testing.assert_allclose(ours.predict(linear.X), theirs.predict(linear.X), rtol=1e-9)
    logistic = make("benign", "logistic")
    oracle = LogisticRegression(tol=1e-12, max_iter=1000).fit(logistic.X, logistic.y[:, 0])
    model = LogisticModel().fit(logistic.X, logistic.y[:, 0])
    probabilities = oracle.predict_proba(logistic.X)[:, 1]
    np.testing.assert_allclose(model.predict_proba(logistic.X)[:, 1], probabilities, rtol=1e-4)


def test_several_targets_keep_their_shape() -> None:
    data = make("several_outputs", "linear")
    model = _model(data)
    result = model.delete(["u1"], method="exact")
    assert (model.theta.shape, model.intercept.shape) == ((12, 3), (3,))
    assert result.step.shape == (13, 3)
    assert model.predict(data.X).shape == (120, 3)
    free = LinearModel(fit_intercept=False).fit(data.X, data.y)
    assert free.intercept.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("method", ["pru", "exact", "influence"])
def test_the_step_is_the_change_of_what_is_published(kind: str, method: str) -> None:
    data = make("benign", kind)
    model = _model(data)
    before = _whole(model)
    result = model.delete(["u3", "u4"], method=method)
    np.testing.assert_allclose(result.step, (_whole(model) - before)[:, 0], atol=1e-15)
    assert np.linalg.norm(result.step) > 0


def test_rows_deleted_before_and_duplicates_count_once() -> None:
    model = _model(make("benign", "linear"))
    assert model.delete(["u1", "u2", "u1"]).deleted == ("u1", "u2")
    theta = model.theta
    again = model.delete(["u2", "u3", "u1"])
    assert again.deleted == ("u3",)
    nothing = model.delete(["u1", "u2"])
    assert nothing.deleted == ()
    assert not nothing.step.any()
    assert not np.array_equal(theta, model.theta)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_deleting_nothing_changes_nothing(kind: str) -> None:
    model = _model(make("benign", kind))
    before, error = model.theta, model.error
    result = model.delete([])
    assert (result.deleted, result.error) == ((), error)
    np.testing.assert_array_equal(result.step, 0.0)
    np.testing.assert_array_equal(model.theta, before)


def test_an_unknown_row_refuses_the_whole_call() -> None:
    model = _model(make("benign", "linear"))
    before = model.theta
    with pytest.raises(
        UnknownRows, match=r"row 'nobody' was never a row of this model; nothing was deleted"
    ):
        model.delete(["u1", "nobody"])
    np.testing.assert_array_equal(model.theta, before)
    assert "u1" in model.live_ids


def test_one_string_is_not_taken_for_a_list_of_ids() -> None:
    model = _model(make("benign", "linear"))
    with pytest.raises(InvalidData, match="give a list of row ids"):
        model.delete("u1")


def test_leverage_1_refuses_the_call_and_a_rebuild_without_the_rows_does_it() -> None:
    data = make("benign", "linear")
    X = data.X.copy()
    X[:, 0] = 0.0
    X[5, 0] = 1e6
    model = LinearModel(ridge=1e-4, rounded_features=0).fit(X, data.y[:, 0], ids=_ids(data))
    before = model.theta
    with pytest.raises(IllConditioned, match="leverage"):
        model.delete(["u4", "u5"])
    np.testing.assert_array_equal(model.theta, before)
    assert len(model.live_ids) == 120
    model.refresh("rebuild", without=["u4", "u5"])
    live = np.ones(120, dtype=bool)
    live[[4, 5]] = False
    oracle = Ridge(alpha=1e-4).fit(X[live], data.y[live, 0])
    np.testing.assert_allclose(model.theta, oracle.coef_, rtol=1e-9, atol=1e-12)
    assert len(model.live_ids) == 118


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("method", ["pru", "exact", "influence"])
def test_when_every_row_goes_theta_is_zero(kind: str, method: str) -> None:
    model = _model(make("benign", kind))
    before = _whole(model)
    model.delete(["u0", "u7"], method=method)
    published = _whole(model)
    result = model.delete(_ids(make("benign", kind)), method=method)
    assert len(result.deleted) == 118
    np.testing.assert_array_equal(_whole(model), np.zeros_like(before))
    np.testing.assert_array_equal(result.step, -published[:, 0])
    assert (result.error.value, result.bound, result.error.relative) == (0.0, 0.0, 0.0)
    assert model.live_ids == ()
    assert model.delete(["u3"]).deleted == ()
    for size in RefreshSize:
        model.refresh(size)
        np.testing.assert_array_equal(model.theta, 0.0)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_all_but_a_few_rows_may_go(kind: str) -> None:
    data = make("benign", kind)
    order = np.argsort(data.y[:, 0] != data.y[0, 0], kind="stable") if kind == "logistic" else None
    kept = {0, 1, 2, 119} if order is None else {0, int(order[-1]), 1, 2}
    model = _model(data)
    gone = [i for i in range(120) if i not in kept]
    for at in range(0, len(gone), 29):
        batch = gone[at : at + 29]
        result = model.delete([f"u{i}" for i in batch], method="exact")
        if result.error.over(model.error_budget):
            model.refresh()
        true = _distance(model, data, set(gone[: at + 29]))
        assert result.bound is None or true <= result.bound + 1e-12
    model.refresh(RefreshSize.REBUILD)
    assert model.error.bound is not None
    assert _distance(model, data, set(gone)) <= model.error.bound
    assert len(model.live_ids) == 4


def test_when_one_class_is_left_the_intercept_is_penalised_and_says_so() -> None:
    data = make("benign", "logistic")
    model = _model(data)
    assert _model(data).intercept_penalised is False
    ones = [i for i in range(120) if data.y[i, 0] == 1]
    result = model.delete([f"u{i}" for i in ones])
    live = [i for i in range(120) if data.y[i, 0] == 0]
    penalty = np.full(13, data.ridge)
    truth = retrain_wide("logistic", data.design[live], data.y[live], np.ones(len(live)), penalty)
    assert model.intercept_penalised is True
    assert len(result.deleted) == len(ones)
    assert result.bound is not None
    assert distance(_whole(model), truth) <= result.bound < 1e-9
    assert np.isfinite(model.theta).all()
    np.testing.assert_allclose(result.step[:12] + _model(data).theta, model.theta, atol=1e-12)
    model.delete([f"u{live[0]}"])  # the stream goes on
    assert not model.error.over(0.1)


def test_one_class_at_fitting_time_is_penalised_too_and_without_an_intercept_needs_nothing() -> (
    None
):
    data = make("benign", "logistic")
    model = LogisticModel().fit(data.X, np.ones(120))
    assert model.intercept_penalised
    assert np.isfinite(model.intercept)
    free = LogisticModel(fit_intercept=False).fit(data.X, data.y[:, 0], ids=_ids(data))
    free.delete([f"u{i}" for i in range(120) if data.y[i, 0] == 1], method="exact")
    assert not free.intercept_penalised


def test_the_callers_arrays_are_neither_changed_nor_needed() -> None:
    data = make("no_intercept", "linear")
    X, y, weight = data.X.copy(), data.y[:, 0].copy(), np.ones(120)
    model = LinearModel(fit_intercept=False).fit(X, y, ids=_ids(data), sample_weight=weight)
    model.delete(["u1", "u2"])
    np.testing.assert_array_equal(X, data.X)
    np.testing.assert_array_equal(y, data.y[:, 0])
    X[:], y[:], weight[:] = 0.0, 0.0, 0.0
    model.theta[:] = 7.0
    model.delete(["u3"], method="exact")
    assert _distance(model, data, {1, 2, 3}) < 1e-12


def test_deleted_rows_are_forgotten() -> None:
    data = make("benign", "linear")
    model = _model(data)
    model.delete(["u9"])
    state = model._fitted
    assert not state.members.rows.X[9].any()
    assert not state.members.rows.y[9].any()
    assert not state.members.W[9].any()
    assert "u9" not in state.sentinels.ids


def test_changing_the_method_completes_what_the_other_left() -> None:
    data = make("benign", "linear")
    model = _model(data)
    model.delete(["u1", "u2"], method="exact")
    exact = model.error.bound
    model.delete(["u3"], method="pru")
    # One row's projection is lost, not three rows': nothing published is taken back.
    alone = _model(data)
    alone.delete(["u1", "u2"], method="exact")
    alone.refresh(RefreshSize.COMPLETE)
    alone.delete(["u3"], method="pru")
    assert model.error.value == pytest.approx(alone.error.value, rel=1e-9)
    assert exact is not None
    assert exact < 1e-9
    model.delete(["u4"], method="exact")
    assert _distance(model, data, {1, 2, 3, 4}) < 1e-12


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("size", list(RefreshSize))
def test_an_ordered_refresh_of_each_size_never_makes_it_worse(kind: str, size: RefreshSize) -> None:
    for name in ("benign", "duplicated", "near_separable"):
        data = make(name, kind)
        model = _model(data)
        gone = [int(i) for i in data.deleted[:12]]
        model.delete([f"u{i}" for i in gone])
        before = _distance(model, data, set(gone))
        choice = model.refresh(str(size))
        assert (choice.size, choice.reason) == (size, "ordered")
        after = _distance(model, data, set(gone))
        bound = model.error.bound
        assert bound is None or after <= bound, name
        if kind == "linear" or size in (RefreshSize.POLISH, RefreshSize.REBUILD):
            assert after <= 0.25 * model.error_budget * float(np.linalg.norm(_whole(model))), name
        if size is RefreshSize.REBUILD:
            assert after <= 1e-8 * before, name


def test_a_polish_that_falls_short_is_followed_by_a_rebuild(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "refitting_seconds", lambda *_, **__: np.inf)
    data = make("near_separable", "logistic")
    model = LogisticModel(ridge=1e-3, error_budget=1e-17).fit(data.X, data.y[:, 0], ids=_ids(data))
    model.delete([f"u{i}" for i in data.deleted[:30]], method="exact")
    choice = model.refresh()
    assert (choice.size, choice.reason) == (
        RefreshSize.REBUILD,
        "a polish did not reach its target",
    )
    assert model.error.bound is not None
    assert _distance(model, data, {int(i) for i in data.deleted[:30]}) <= model.error.bound


def test_a_refresh_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make("benign", "linear")
    model = _streaming(data)

    def refuse(*_: object) -> None:
        raise IllConditioned("no")

    monkeypatch.setattr("lethe.engine.fitted.rebuild", refuse)
    before = model.theta
    with pytest.raises(IllConditioned):
        model.refresh(RefreshSize.REBUILD, without=["u1"])
    assert "u1" in model.live_ids
    monkeypatch.undo()
    assert model.delete(["u1"], method="exact").deleted == ("u1",)
    assert not np.array_equal(model.theta, before)
    assert _distance(model, data, {1}) < 1e-12


def test_limits_are_the_policys() -> None:
    data = make("benign", "linear")
    limits = Limits(fraction_of_d=0.0, floor_rows=3)
    model = LinearModel(limits=limits, rounded_features=0).fit(data.X, data.y[:, 0], ids=_ids(data))
    model.delete(["u1", "u2", "u3", "u4"])
    assert model.refresh().size is RefreshSize.COMPACT
    assert model.refresh().size is RefreshSize.COMPLETE


def test_sentinels_are_renewed_before_too_few_are_left() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 4))
    y = (rng.random(900) < 0.5).astype(np.float64)
    model = LogisticModel().fit(X, y)
    for _ in range(6):
        chosen = model._fitted.sentinels.ids
        model.delete(chosen[: len(chosen) * 2 // 3], method="exact")
        left = model._fitted.sentinels.ids
        assert len(left) >= min(128, len(model.live_ids) // 2)
        assert set(left) <= set(model.live_ids)
        value = model.error.value
        assert value is None or value > 0


@pytest.mark.parametrize("kind", [LinearModel, LogisticModel])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_deletion_takes_no_memory_that_grows_with_n(
    kind: type[LinearModel] | type[LogisticModel], fit_intercept: bool
) -> None:
    """Bytes, not seconds: one mask of n truth values is too much, a copy of the rows far more."""
    n = 100_000
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    model = kind(fit_intercept=fit_intercept).fit(X, rng.integers(0, 2, n).astype(np.float64))
    sampled = set(model._fitted.sentinels.ids)
    first, *others = [str(i) for i in range(400) if str(i) not in sampled][:5]
    model.delete([first])
    tracemalloc.start()
    try:
        for row in others:
            model.delete([row])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < n


@pytest.mark.parametrize("lost", ["a", "b", "c"])
def test_one_class_of_several_may_be_lost_after_other_deletions_and_a_rebuild(lost: str) -> None:
    rng = np.random.default_rng(0)
    labels = np.array(list("abc"))[np.arange(60) % 3]
    model = LogisticModel().fit(rng.standard_normal((60, 2)), labels)
    gone = [str(i) for i in np.flatnonzero(labels == lost)]
    model.delete(gone[:5], method="exact")
    model.refresh(RefreshSize.REBUILD)
    model.delete(gone[5:-1], method="exact")
    assert not model.intercept_penalised
    model.delete(gone[-1:], method="exact")
    assert model.intercept_penalised


def test_settings_and_calls_that_make_no_sense_are_refused() -> None:
    data = make("benign", "linear")
    with pytest.raises(InvalidData, match="not fitted"):
        _ = LinearModel().theta
    with pytest.raises(InvalidData, match="ridge must be"):
        LinearModel(ridge=-1.0).fit(data.X, data.y)
    model = _model(data)
    with pytest.raises(InvalidData, match="no deletion method 'magic'"):
        model.delete(["u1"], method="magic")
    assert "u1" in model.live_ids
    with pytest.raises(InvalidData, match="no refresh 'huge'"):
        model.refresh("huge")
    with pytest.raises(InvalidData, match="X has 3 features, but LinearModel is expecting 12"):
        model.predict(np.ones((2, 3)))


def test_a_failed_fit_keeps_the_model_that_was_there() -> None:
    data = make("benign", "linear")
    model = _model(data)
    before = model.theta
    with pytest.raises(InvalidData):
        model.fit(data.X, data.y[:5])
    np.testing.assert_array_equal(model.theta, before)
    assert model.delete(["u1"]).deleted == ("u1",)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_n_below_d_and_constant_columns_are_legal(kind: str) -> None:
    for name in ("wide", "constant"):
        data = make(name, kind)
        model = _model(data)
        gone = [int(i) for i in data.deleted]
        model.delete([f"u{i}" for i in gone], method="exact")
        model.refresh(RefreshSize.POLISH)
        size = float(np.linalg.norm(_whole(model)))
        assert _distance(model, data, set(gone)) <= 0.01 * size


def test_a_compact_that_cannot_be_had_is_a_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here because the inverse is said to be known to nothing once V has been folded away."""
    data = make("benign", "linear")
    model = _streaming(data)
    model.delete(["u1"])
    monkeypatch.setattr("lethe.engine.refresh.refreshes.dual_error_of_blocks", lambda *_: 1e9)
    choice = model.refresh("compact")
    assert choice.size is RefreshSize.REBUILD
    assert "a compact cannot be had" in choice.reason
    assert model.error.bound is not None
    assert _distance(model, data, {1}) <= model.error.bound


def test_an_ordinary_stream_is_not_polished_after_every_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Curvatures of a long generation are not those of theta_b: once unknown, always unknown."""
    monkeypatch.setattr(policy, "refitting_seconds", lambda *_, **__: np.inf)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 100))
    margin = X @ rng.standard_normal(100) * 0.3
    model = LogisticModel().fit(X, (rng.random(1500) < 1 / (1 + np.exp(-margin))) * 1.0)
    choices = []
    for row in range(500):
        if model.delete([str(row)], method="exact").error.over(0.01):
            choices.append(model.refresh())
    sizes = [str(choice.size) for choice in choices]
    assert "rebuild" in sizes
    assert len(sizes) <= 25, choices
