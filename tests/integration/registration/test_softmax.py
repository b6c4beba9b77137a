"""Softmax models in the service: what is theirs alone; `test_kinds` has the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from lethe.consumers.audit.verify import verify
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.fit.objective import norm
from lethe.engine.refresh.size import RefreshSize
from tests.integration.registration.test_kinds import fitted
from tests.support.families import Array, Data, make
from tests.support.invariants import check_model
from tests.support.platform import Platform, class_names
from tests.support.tables import Table


def many(classes: int, n: int = 700, p: int = 4, seed: int = 0) -> Data:
    """Return rows of so many classes, of which the sentinels are a part."""
    rng = np.random.default_rng([seed, classes])
    X = rng.standard_normal((n, p))
    drawn = np.argmax(X @ rng.standard_normal((p, classes)) + rng.gumbel(size=(n, classes)), axis=1)
    y = np.eye(classes)[drawn]
    return Data("many", "softmax", X, y, np.ones(n), 1.0, True, rng.permutation(n)[:200])


def scikit_learns(data: Data, live: NDArray[np.intp]) -> Array:
    """Return scikit-learn's own refit on live rows, d x C."""
    judge = LogisticRegression(
        C=1 / data.ridge, solver="newton-cg", tol=1e-12, max_iter=10_000,
        fit_intercept=data.intercept,
    )  # fmt: skip
    judge.fit(data.X[live], data.y[live].argmax(axis=1))
    parts = [judge.coef_.T, judge.intercept_[None] - judge.intercept_.mean()]
    return np.vstack(parts if data.intercept else parts[:1])


def test_a_rebuilt_version_is_scikit_learns_refit(memory: Platform) -> None:
    data = make("classes", "softmax")
    memory.register("m", data, budget=10.0)
    memory.delete("m", *range(12))
    memory.refresh("m", RefreshSize.REBUILD)
    state = memory.load("m")
    judge = scikit_learns(data, np.arange(12, len(data.X)))
    assert np.linalg.norm(state.published - judge) < 1e-8 * np.linalg.norm(judge)
    assert state.meta.error.bound is not None
    assert state.meta.error.bound < 1e-9


def test_a_rebuilt_version_passes_and_another_one_does_not(memory: Platform) -> None:
    memory.register("m", "classes", "softmax", budget=10.0)
    found = verify(memory.store, "m")
    assert found.holds
    assert found.residual < 1e-10
    assert not replace(found, distance=found.distance + 1e-6).holds


@pytest.mark.parametrize("classes", [3, 5])
def test_an_estimate_from_a_sample_is_near_the_truth(memory: Platform, classes: int) -> None:
    data = many(classes)
    memory.register("m", data, method="exact", budget=10.0)
    ratios = []
    for start in range(0, 100, 10):
        memory.delete("m", *data.deleted[start : start + 10].tolist())
        error = memory.load("m").meta.error
        assert error.kind == "estimate"
        assert error.value is not None
        live = np.setdiff1d(np.arange(len(data.X)), data.deleted[: start + 10])
        away = norm(memory.load("m").published - scikit_learns(data, live))
        ratios.append(error.value / away)
    assert min(ratios) > 0.7
    assert max(ratios) < 3.0


def test_an_estimate_is_not_believed_where_curvature_was_lost(memory: Platform) -> None:
    """Of a class, all but a few rows leave: the sample says little of what is left of it."""
    data = many(3)
    memory.register("m", data, method="exact", budget=10.0)
    own = np.flatnonzero(data.y[:, 0] == 1)
    memory.send("m", *(f"row-{i}" for i in own[4:]))
    memory.drain()
    kinds = [version.error.kind for version in memory.versions("m")]
    assert kinds[1] == "unknown"
    assert kinds[-1] == "certificate"
    check_model(memory)


def test_between_refreshes_inserted_and_corrected_rows_count_in_the_estimate(
    memory: Platform,
) -> None:
    memory.register("m", many(4), method="exact", budget=10.0)
    table = Table(memory, seed=1)
    for turn in range(8):
        table.change("insert", *(table.row(f"new-{turn}-{i}") for i in range(5)))
        table.change("correct", table.row(f"row-{turn}"))
        memory.drain()
        state = memory.load("m")
        away = norm(state.published - table.retrained().astype(np.float64))
        assert state.meta.error.value is not None
        assert 0.5 * away < state.meta.error.value < 5 * away


def test_a_batch_of_many_rows_and_a_state_that_was_read_again(memory: Platform) -> None:
    """Rows of V are classes - 1 for each row: more than one block of a step."""
    data = many(5)
    memory.register("m", data, method="exact", budget=10.0)
    memory.delete("m", *range(100))
    state = memory.load("m")
    assert len(state.stream.V) == state.meta.K == 400
    memory.delete("m", 200)
    again = memory.load("m")
    assert len(again.stream.V) == again.meta.K == 404
    model = fitted(data)
    model.delete([f"row-{i}" for i in (*range(100), 200)], method="exact")
    np.testing.assert_allclose(again.published, model.published, rtol=1e-9, atol=1e-12)


def test_a_class_that_loses_its_last_row_waits_for_a_rebuild(memory: Platform) -> None:
    data = make("classes", "softmax")
    memory.register("m", data, budget=10.0)
    own = np.flatnonzero(data.y[:, 3] == 1).tolist()
    first = memory.delete("m", *own[1:])
    request = memory.delete("m", own[0])
    waited = [receipt.code for receipt in memory.receipts("m") if receipt.request_id == request]
    assert waited[0] == "CLASS_EMPTIED"
    assert memory.finals("m").keys() == {first, request}
    assert memory.finals("m")[request].status == "APPLIED"
    state = memory.load("m")
    assert state.meta.status == "INTERCEPT_PENALISED"
    assert state.meta.class_counts is not None
    assert state.meta.class_counts[3] == 0
    assert verify(memory.store, "m").holds
    check_model(memory)


def test_nothing_of_the_rows_stays_once_all_are_deleted(memory: Platform) -> None:
    data = make("classes", "softmax")
    memory.register("m", data, budget=10.0)
    memory.send("m", *(f"row-{i}" for i in range(len(data.X))))
    memory.drain()
    state = memory.load("m")
    assert state.meta.status == "EMPTY"
    assert state.generation.factor is None
    assert not state.published.any()
    check_model(memory)


def test_a_factor_that_is_damaged_or_gone_halts_the_model(memory: Platform) -> None:
    memory.register("m", "classes", "softmax", budget=10.0)
    key = memory.load("m").generation_keys.factor
    raw = memory.raw()
    whole = raw.get(key)
    assert isinstance(whole, bytes)
    for damaged in (whole[:-8], None):
        if damaged is None:
            raw.delete(key)
        else:
            raw.set(key, damaged)
        with pytest.raises(CorruptState, match="factor"):
            memory.load("m")
    raw.set(key, whole)
    fixed = memory.load("m").generation_keys.fixed
    info = raw.hget(fixed, "info")
    assert isinstance(info, bytes)
    raw.hset(fixed, "info", json.dumps({**json.loads(info), "gauge": 0.0}))
    with pytest.raises(CorruptState, match="no valid gauge"):
        memory.load("m")
    raw.hset(fixed, "info", info)
    memory.delete("m", 3)
    check_model(memory)


def test_a_row_that_is_too_large_is_out_of_range_and_an_unknown_class_is_refused(
    memory: Platform,
) -> None:
    data = make("classes", "softmax")
    memory.register("m", data, budget=0.01)
    before = memory.load("m").published
    missed = class_names(data)[int(np.argmin(before[1]))]  # what a large value speaks against
    zero: dict[str, Any] = {"id": "new", "values": [0.0] * data.X.shape[1], "target": "class 9"}
    large = [{**zero, "values": [0.1, size, *zero["values"][2:]], "target": missed}
             for size in (1e8, 1e30, 1e100, 1e160)]  # fmt: skip
    codes = []
    for one in (zero, *large):
        memory.send_change("m", "insert", one)
        memory.drain()
        receipt = memory.receipts("m")[-1]
        assert receipt.status == "REJECTED"
        assert "\n" not in (receipt.detail or "")
        codes.append(receipt.code)
    assert codes[0] == "SCHEMA"
    assert set(codes[1:]) == {"OUT_OF_RANGE"}
    np.testing.assert_array_equal(memory.load("m").published, before)


def test_two_classes_are_refused_and_so_is_a_hessian_that_is_too_large(memory: Platform) -> None:
    two = make("benign", "logistic")
    with pytest.raises(InvalidData, match="a softmax model needs at least 3 classes"):
        memory.register("m", replace(two, kind="softmax"))
    wide = many(41, n=90, p=99)
    with pytest.raises(InvalidData, match="a Hessian of 4100 coordinates, at most 4000"):
        memory.register("m", wide)
