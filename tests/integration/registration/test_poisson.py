"""Poisson models in the service: counts with log link, as the library has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe import PoissonModel
from lethe.consumers.audit.verify import verify
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import InvalidData
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from tests.integration.registration.test_logistic_in_files import near
from tests.support.families import make
from tests.support.invariants import check_model, check_row_files
from tests.support.platform import Platform
from tests.support.tables import Table

FAMILIES = ["benign", "no_intercept", "badly_scaled", "duplicated", "high_leverage", "sparse"]


@pytest.mark.parametrize("method", ["pru", "exact", "influence"])
@pytest.mark.parametrize("family", FAMILIES)
def test_versions_are_those_of_the_library(memory: Platform, family: str, method: str) -> None:
    data = make(family, "poisson")
    memory.register("m", data, method=method, budget=10.0)
    model = PoissonModel(ridge=data.ridge, fit_intercept=data.intercept, error_budget=10.0)
    model.fit(data.X, data.y[:, 0], ids=[f"row-{i}" for i in range(len(data.X))])
    for rows in ((1, 2), (7,), (0, 9, 11)):
        memory.delete("m", *rows)
        model.delete([f"row-{i}" for i in rows], method=method)
        state = memory.load("m")
        if state.meta.generation:  # the error was unknown, and a refresh followed at once
            break
        np.testing.assert_allclose(state.published, model.published, rtol=1e-8, atol=1e-10)
    assert state.meta.generation == 0 or family in ("high_leverage", "sparse")
    for size in (
        RefreshSize.COMPLETE,
        RefreshSize.POLISH,
        RefreshSize.COMPACT,
        RefreshSize.REBUILD,
    ):
        memory.refresh("m", size)
        memory.delete("m", 20 + len(size))
        found = verify(memory.store, "m")
        assert found.holds
    check_model(memory)


@pytest.mark.parametrize("family", ["benign", "no_intercept"])
def test_requests_of_all_kinds_over_rebuilds_are_as_if_refitted(
    memory: Platform, family: str
) -> None:
    memory.register("m", family, "poisson", budget=10.0)
    table = Table(memory, seed=3)
    draw = np.random.default_rng(5)
    for turn in range(6):
        names = list(table.rows)
        picked = [names[i] for i in draw.permutation(len(names))[:4]]
        table.delete(*picked[:2])
        table.change("insert", table.row(f"new-{turn}"), table.row(f"more-{turn}", weight=2.5))
        table.change("correct", table.row(picked[2]), table.row(picked[3]))
        memory.drain()
        memory.refresh("m", RefreshSize.REBUILD)
        table.check()


@pytest.mark.parametrize("family", ["benign", "no_intercept"])
def test_rows_in_files_give_the_versions_of_rows_in_the_store(
    memory: Platform, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(writer, "INDEX_ROWS", 16)
    memory.register("m", family, "poisson", rows_url=memory.folder())
    memory.register("other", family, "poisson")
    near(memory)
    for rows in ((1, 2), (7,), (0, 9, 11)):
        for model in ("m", "other"):
            memory.send_index(model, *rows)
        memory.drain()
        near(memory)
    for model in ("m", "other"):
        memory.refresh(model, RefreshSize.REBUILD)
    near(memory)
    check_model(memory)
    check_row_files(memory)
    assert verify(memory.store, "m").holds
    bad = make(family, "poisson")
    bad.y[5] = -1.0
    with pytest.raises(InvalidData, match="is below 0: -1; correct the row"):
        memory.register("bad", bad, rows_url=memory.folder())


def test_once_only_counts_of_zero_are_left_a_rebuild_penalises_the_intercept(
    memory: Platform,
) -> None:
    data = make("benign", "poisson")
    y = np.zeros_like(data.y)
    y[:2] = 3.0
    memory.register("m", replace(data, y=y), budget=10.0)
    assert memory.load("m").meta.class_counts == (len(y) - 2, 2)
    first = memory.delete("m", 0)
    request = memory.delete("m", 1)
    waited = [receipt.code for receipt in memory.receipts("m") if receipt.request_id == request]
    assert waited[0] == "ONE_CLASS_LEFT"
    assert memory.finals("m").keys() == {first, request}
    assert memory.finals("m")[request].status == "APPLIED"
    state = memory.load("m")
    assert state.meta.status == "INTERCEPT_PENALISED"
    assert state.meta.class_counts == (len(y) - 2, 0)
    assert verify(memory.store, "m").holds
    check_model(memory)


def test_counts_below_zero_are_refused_and_so_are_rows_whose_mean_overflows(
    memory: Platform,
) -> None:
    data = make("benign", "poisson")
    bad = data.y.copy()
    bad[5] = -1.0
    with pytest.raises(InvalidData, match="the count of row 5 is below 0: -1; correct the row"):
        memory.register("m", replace(data, y=bad))
    memory.register("m", data, budget=10.0)
    before = memory.load("m").published
    row: dict[str, Any] = {"id": "new", "values": [0.0] * data.X.shape[1], "target": -2.0}
    far = {**row, "values": [1e4 * float(w) for w in before[:-1, 0]], "target": 1.0}
    codes = []
    for one in (row, far):
        memory.send_change("m", "insert", one)
        memory.drain()
        receipt = memory.receipts("m")[-1]
        assert receipt.status == "REJECTED"
        assert "\n" not in (receipt.detail or "")
        codes.append(receipt.code)
    assert codes == ["SCHEMA", "OUT_OF_RANGE"]
    np.testing.assert_array_equal(memory.load("m").published, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"certify": ObjectiveNoise(1.0, 1e-5, 1.0), "method": "exact"},
            "certified removal is for",
        ),
        ({"disclosure": True, "method": "exact"}, "--disclosure is for linear models"),
        ({"exact_sums": True}, "--exact-sums is for linear models"),
    ],
)
def test_what_poisson_models_have_not_is_refused_in_a_line(
    memory: Platform, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidData, match=message) as refused:
        memory.register("m", "benign", "poisson", **change)
    assert "\n" not in str(refused.value)
