"""A logistic or Poisson model with preprocessing: the error bounds the distance to a refit.

Between two rebuilds the error is a bound (`engine.preprocess.remainder`); where none is proved, or
it passes the budget, a rebuild follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, TargetEncode
from lethe.engine.refresh.size import RefreshSize
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable

FEW: Columns = {"a": Numeric(), "b": Numeric(), "town": OneHot(), "post": TargetEncode()}


@pytest.fixture(params=[Kind.LOGISTIC, Kind.POISSON])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both kinds whose rows have curvatures."""
    return Kind(request.param)


def table_of(platform: Platform, kind: Kind, columns: Columns = FEW, **options: Any) -> Any:
    return PreparedTable(platform, columns, 1500, kind=kind, **options)


@pytest.mark.parametrize("method", ["exact", "pru"])
def test_after_every_deletion_the_stated_error_bounds_the_distance(
    platform: Platform, kind: Kind, method: str
) -> None:
    table = table_of(platform, kind)
    table.register(method=method, budget=0.1)
    table.check()
    order = np.random.default_rng(1).permutation(1500)
    for first in range(0, 8, 2):
        request = table.delete(*order[first : first + 2])
        assert platform.answer(request).status == "APPLIED"
        table.check()
    assert platform.load("m").meta.generation == 0  # the bound sufficed
    verification = verify(platform.store, "m")
    assert verification.holds
    assert verification.rows_live == 1492


def test_every_kind_of_column_is_rebuilt_where_no_bound_is_proved(
    memory: Platform, kind: Kind
) -> None:
    table = PreparedTable(memory, kind=kind)
    table.register()
    for first in range(0, 24, 6):
        request = table.delete(*range(first, first + 6))
        assert memory.answer(request).status == "APPLIED"
        table.check()
    assert memory.load("m").meta.generation > 0
    assert verify(memory.store, "m").holds


def test_inserted_and_corrected_rows_count_in_the_bound(platform: Platform, kind: Kind) -> None:
    rng = np.random.default_rng(1)
    table = table_of(platform, kind)
    table.register(budget=0.3)
    requests = [table.change("insert", 1500, 1501, rng=rng), table.change("correct", 3, rng=rng)]
    platform.drain()
    requests.append(table.delete(0, 1500))
    platform.drain()
    assert {platform.final(request).status for request in requests} == {"APPLIED"}
    table.check()
    assert platform.load("m").meta.generation == 0
    assert verify(platform.store, "m").holds


@pytest.mark.parametrize("size", list(RefreshSize))
def test_every_refresh_leaves_a_true_bound(memory: Platform, kind: Kind, size: RefreshSize) -> None:
    table = table_of(memory, kind)
    table.register(method="pru", budget=1.0)
    for _ in range(2):
        table.delete(*list(table.live)[:2])
        memory.drain()
        memory.refresh("m", size)
        assert len(memory.load("m").stream.Q) == 0
        table.check()


def test_a_class_or_the_counts_above_0_that_go_penalise_the_intercept(
    memory: Platform, kind: Kind
) -> None:
    rng = np.random.default_rng(11)
    x = rng.standard_normal(40).astype(object)
    y = 1.0 * (np.arange(40) < 2)
    table = table_of(memory, kind, {"x": Numeric()}, rows={"x": x}, y=y)
    table.register(budget=0.3)
    first = table.delete(0, 1)
    memory.drain()
    assert "DEFERRED" in memory.statuses(first)
    assert memory.final(first).status == "APPLIED"
    assert memory.load("m").meta.status == "INTERCEPT_PENALISED"
    assert verify(memory.store, "m").holds
    second = table.delete(2)
    assert memory.answer(second).status == "APPLIED"
    assert verify(memory.store, "m").holds
    row = {"id": "new", "values": {"x": 0.5}, "target": 1}
    third = memory.send_change("m", "insert", row)
    assert memory.answer(third).code == "STATISTICS_MOVED"
    request = memory.send("m", *(f"row-{i}" for i in range(3, 40)))
    assert memory.answer(request).status == "APPLIED"
    assert memory.load("m").meta.status == "EMPTY"


CLASSES = ("a", "b", "c")
STANDARD: Columns = {"a": Numeric(), "b": Numeric(), "town": OneHot()}


@pytest.mark.parametrize("method", ["exact", "pru"])
def test_of_several_classes_each_change_is_within_the_bound(
    platform: Platform, method: str
) -> None:
    rng = np.random.default_rng(1)
    table = PreparedTable(platform, STANDARD, 1500, kind=Kind.LOGISTIC, classes=CLASSES)
    table.register(method=method, budget=0.3)
    requests = [table.change("insert", 1500, 1501, rng=rng), table.change("correct", 3, rng=rng)]
    platform.drain()
    table.check()
    requests.append(table.delete(0, 1500))
    platform.drain()
    assert {platform.final(request).status for request in requests} == {"APPLIED"}
    table.check()
    assert platform.load("m").meta.generation == 0
    assert verify(platform.store, "m").holds
    platform.refresh("m", RefreshSize.REBUILD)
    table.check()


def test_a_class_of_several_that_loses_its_rows_penalises_the_intercepts(memory: Platform) -> None:
    y = np.array([0.0, 0.0, *[1.0, 2.0] * 40])
    x = np.random.default_rng(3).standard_normal(len(y)).astype(object)
    table = PreparedTable(
        memory, {"x": Numeric()}, rows={"x": x}, y=y, kind=Kind.LOGISTIC, classes=CLASSES
    )
    table.register(budget=0.3)
    table.check()
    request = table.delete(0, 1)
    memory.drain()
    assert memory.final(request).status == "APPLIED"
    assert memory.load("m").meta.status == "INTERCEPT_PENALISED"
    assert verify(memory.store, "m").holds


def test_a_count_below_0_is_refused_at_registration_and_in_a_request(memory: Platform) -> None:
    x = np.random.default_rng(3).standard_normal(30).astype(object)
    y = np.arange(30.0) % 4
    y[7] = -1.0
    columns: Columns = {"x": Numeric()}
    wrong = PreparedTable(memory, columns, rows={"x": x}, y=y, kind=Kind.POISSON)
    with pytest.raises(InvalidData, match="the count of row 7 is below 0: -1"):
        wrong.register()
    y[7] = 1.0
    PreparedTable(memory, columns, rows={"x": x}, y=y, kind=Kind.POISSON).register()
    row = {"id": "new", "values": {"x": 0.5}, "target": -1}
    request = memory.send_change("m", "insert", row)
    receipt = memory.answer(request)
    assert (receipt.status, receipt.code) == ("REJECTED", "SCHEMA")
    assert "below 0" in (receipt.detail or "")
