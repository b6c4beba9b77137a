"""Rows with which no version can keep the error budget: refused by default, and never held back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric, passthrough
from tests.support.families import Data
from tests.support.oracles import distance
from tests.support.pipelines import Rows
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable
from tests.support.tables import Table, registered_table


def data_of(kind: str, *, intercept: bool = True, classes: int = 1) -> Data:
    """Return 300 rows of five columns, whose values lie near 0."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(300, 5)), rng.normal(size=(300, 1))
    if classes > 1:
        y = np.eye(classes)[rng.integers(classes, size=300)]
    elif kind == "logistic":
        y = (y > 0).astype(np.float64)
    return Data("usual", kind, X, y, np.ones(300), 1.0, intercept, np.arange(0))


def long_row(platform: Platform, name: str, value: float, **more: Any) -> dict[str, Any]:
    """Return a row with one value far off, of the class that the model predicts it is not."""
    state, data = platform.load(), platform.data["m"]
    values = np.random.default_rng(2).normal(size=5)
    values[2] = value
    row = {"id": name, "values": values.tolist(), "target": 0.5, **more}
    if data.kind == "logistic" and data.y.shape[1] > 1:
        row["target"] = f"class {int(np.argmin(state.stream.published[2] * value))}"
    elif data.kind == "logistic":
        row["target"] = float(state.stream.published[2, 0] * value < 0)
    return row


KINDS = pytest.mark.parametrize(
    ("kind", "options", "value"),
    [
        *(("linear", {}, value) for value in (1e8, 1e9, 1e12, 1e20, 1e80, -1e150, 1e154)),
        *(("logistic", {}, value) for value in (1e15, 1e20, 1e80, -1e150, 1e154)),
        ("linear", {"intercept": False}, 1e9),
        ("logistic", {"intercept": False}, 1e20),
        ("logistic", {"classes": 3}, 1e20),
    ],
)


@KINDS
@pytest.mark.parametrize("op", ["insert", "correct"])
def test_a_row_with_which_no_version_keeps_the_budget_is_rejected_and_changes_nothing(
    memory: Platform, kind: str, options: dict[str, Any], value: float, op: str
) -> None:
    memory.register("m", data_of(kind, **options), budget=0.01)
    before = memory.newest_version()
    row = long_row(memory, "new" if op == "insert" else "row-7", value)
    request = memory.send_change("m", op, row)
    receipt = memory.answer(request)
    assert (receipt.status, receipt.code, receipt.op) == ("REJECTED", "OUT_OF_RANGE", op)
    detail = receipt.detail or ""
    assert f"column 'x2' has a value of about {value:.0e}" in detail
    assert "the model was fitted on values of" in detail
    assert "--take-out-of-range" in detail
    assert memory.newest_version() == before
    usual = memory.send_change("m", op, Table(memory).row(row["id"]))
    assert memory.answer(usual).status == "APPLIED"
    assert not memory.load().meta.error.over


@pytest.mark.parametrize("op", ["insert", "correct"])
@pytest.mark.parametrize(("kind", "value"), [
    ("linear", 30.0), ("linear", 1e3), ("linear", 1e5), ("linear", 1e6),
    ("logistic", 30.0), ("logistic", 1e3), ("logistic", 1e6), ("logistic", 1e10),
])  # fmt: skip
def test_an_outlier_that_the_arithmetic_can_carry_is_a_row_like_any_other(
    memory: Platform, kind: str, value: float, op: str
) -> None:
    """Between it and the other rows lie up to ten orders of magnitude: that is no reason."""
    memory.register("m", data_of(kind), budget=0.01)
    request = memory.send_change(
        "m", op, long_row(memory, {"insert": "new"}.get(op, "row-7"), value)
    )
    assert memory.answer(request).status == "APPLIED"
    assert not memory.load().meta.error.over, "a refresh brings it within the budget"


def test_only_the_request_that_is_out_of_range_is_rejected(memory: Platform) -> None:
    table = registered_table(memory, data_of("linear"), budget=0.01)
    sent = [table.change("insert", table.row("a"))]
    near = long_row(memory, "b", 1.0)
    bad = memory.send_change("m", "insert", near, long_row(memory, "c", 1e100))
    sent += [table.change("insert", table.row("d")), table.change("correct", table.row("row-3"))]
    assert memory.answer(bad).code == "OUT_OF_RANGE"
    assert [memory.final(request).status for request in sent] == ["APPLIED"] * 3
    table.check()


def test_a_weight_and_a_target_out_of_range_are_called_so(memory: Platform) -> None:
    memory.register("m", data_of("linear"), budget=0.01)
    ordinary = {"values": [0.1, 0.2, 0.3, 0.4, 0.5], "target": 0.5}
    for change, what in (
        ({"weight": 1e18}, "a row has a weight of about 1e+18"),
        ({"target": 1e303}, "a target is about 1e+303"),
    ):
        request = memory.send_change("m", "insert", {"id": "new", **ordinary, **change})
        receipt = memory.answer(request)
        assert receipt.code == "OUT_OF_RANGE"
        assert what in (receipt.detail or "")


def test_of_the_values_a_receipt_tells_no_more_than_the_size(memory: Platform) -> None:
    memory.register("m", data_of("linear"), budget=0.01)
    request = memory.send_change("m", "insert", long_row(memory, "new", 123456789123.0))
    detail = memory.answer(request).detail or ""
    assert "1e+11" in detail
    assert "1234" not in detail


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_column_that_preprocessing_does_not_scale_has_a_range_too(
    memory: Platform, kind: str
) -> None:
    rng = np.random.default_rng(0)
    columns: Columns = {"age": Numeric(), "score": passthrough()}
    rows: Rows = {name: (5.0 + rng.normal(size=150)).astype(object) for name in columns}
    y = rng.normal(size=150)
    table = PreparedTable(
        memory, columns, rows=rows, y=y if kind == "linear" else (y > 0).astype(np.float64),
        kind=Kind(kind),
    )  # fmt: skip
    table.register()
    for value in (1e8, 1e20, 1e154):
        row = {"id": "new", "values": {"age": 5.0, "score": value}, "target": 1.0}
        request = memory.send_change("m", "insert", row)
        receipt = memory.answer(request)
        assert receipt.code == "OUT_OF_RANGE", value
        detail = receipt.detail or ""
        assert f"column 'score' has a value of about {value:.0e}" in detail
        assert "fitted on values of 5 ± " in detail or "fitted on values of 4.9 ± " in detail
    assert memory.newest_version().version == 0


# -- registered to take them ----------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("while_pending", [False, True])
def test_the_deletion_of_a_row_that_was_taken_is_not_held_up_by_it(
    memory: Platform, kind: str, options: dict[str, Any], value: float, while_pending: bool
) -> None:
    """Neither the request nor the version after it waits for a person or for another commit."""
    memory.register("m", data_of(kind, **options), budget=0.01, take_out_of_range=True)
    request = memory.send_change("m", "insert", long_row(memory, "new", value))
    memory.turn_until_decided(1)
    if not while_pending:
        memory.drain()  # the refreshes that fail
    deletion = memory.send("m", "new")
    taken = memory.answer(request)
    if taken.status == "REJECTED":  # no step has a finite number: nothing to take
        assert taken.code == "ILL_CONDITIONED"
        return
    assert memory.statuses(deletion)[-1] == "APPLIED"
    state = memory.load()
    assert not state.deferred
    assert not state.meta.error.over
    away = distance(state.stream.published, Table(memory).retrained())
    assert away <= 0.01 * float(np.linalg.norm(state.stream.published))
