"""A model with preprocessing in the service equals scikit-learn's pipeline, refitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess import movement
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, Ordinal, TargetEncode
from lethe.engine.refresh.size import RefreshSize
from tests.support import pipelines
from tests.support.pipelines import Rows
from tests.support.platform import Platform
from tests.support.prepared import BOTH, PreparedTable


@BOTH
@pytest.mark.parametrize("method", ["exact", "pru"])
def test_after_every_deletion_it_is_the_refitted_pipeline(
    platform: Platform, method: str, sums: bool
) -> None:
    table = PreparedTable(platform, exact_sums=sums)
    table.register(method=method)
    table.check()
    order = np.random.default_rng(1).permutation(150)
    for first in range(0, 24, 6):
        request = table.delete(*order[first : first + 6])
        assert platform.answer(request).status == "APPLIED"
        table.check()
    verification = verify(platform.store, "m")
    assert verification.holds
    assert verification.rows_live == 126


@BOTH
@pytest.mark.parametrize("name", pipelines.EVERY_KIND)
def test_a_model_may_have_columns_of_one_kind_alone(
    memory: Platform, name: str, sums: bool
) -> None:
    table = PreparedTable(memory, {name: pipelines.EVERY_KIND[name]}, n=40, exact_sums=sums)
    table.register()
    table.check()
    rng = np.random.default_rng(2)
    requests = [
        table.delete(3, 4),
        table.change("insert", 40, 41, rng=rng),
        table.change("correct", 7, rng=rng),
    ]
    memory.drain()
    assert [memory.final(request).status for request in requests] == ["APPLIED"] * 3
    table.check()
    memory.refresh("m", RefreshSize.REBUILD)
    table.check()
    assert verify(memory.store, "m").holds


@BOTH
def test_a_subscriber_predicts_on_rows_as_they_are_given(platform: Platform, sums: bool) -> None:
    table = PreparedTable(platform, exact_sums=sums)
    table.register()
    table.delete(*range(10))
    platform.drain()
    with ModelSubscriber(platform.log, platform.raw()) as models:
        version = models.latest("m")
    assert version.event.preprocess == "live"
    places = list(table.live)
    given = {name: table.rows[name][places] for name in table.columns}
    matrix = np.column_stack([np.asarray(given[name], dtype=object) for name in table.columns])
    expected = table.fitted().predict(matrix)
    np.testing.assert_allclose(version.predict(given), expected, rtol=1e-9)
    np.testing.assert_allclose(version.predict(matrix), expected, rtol=1e-9)
    one = {name: values[3] for name, values in given.items()}
    assert version.predict(one) == pytest.approx(expected[3])
    with pytest.raises(InvalidData, match="'town' holds 'Atlantis', which no live row"):
        version.predict({**one, "town": "Atlantis"})
    with pytest.raises(InvalidData, match=r"'age'.*not a number"):
        version.predict({**one, "age": "old"})
    with pytest.raises(InvalidData, match=r"'town'.*is missing"):
        version.predict({name: value for name, value in one.items() if name != "town"})


# -- what leaves with rows ------------------------------------------------------------------------


def small(
    platform: Platform,
    columns: Columns,
    rows: dict[str, list[Any]],
    ridge: float = 1.0,
    model_id: str = "m",
) -> PreparedTable:
    """Return a model of a small table, registered."""
    n = len(next(iter(rows.values())))
    given: Rows = {name: np.array(values, dtype=object) for name, values in rows.items()}
    y = np.arange(n) % 5 + 0.1 * np.arange(n)
    table = PreparedTable(platform, columns, rows=given, y=y, ridge=ridge, model_id=model_id)
    table.register()
    return table


NUMBERS = [1.0, 2.0, 4.0, 8.0, 16.0, 3.0, 5.0, 7.0]


def test_a_category_that_vanishes_is_unknown_and_its_weight_0(memory: Platform) -> None:
    columns: Columns = {"x": Numeric(), "a": OneHot(), "b": TargetEncode(), "c": Ordinal()}
    letters = ["p", "q", "r", "p", "q", "p", "q", "p"]
    table = small(memory, columns, {"x": NUMBERS, "a": letters, "b": letters, "c": letters})
    table.delete(2)
    memory.drain()
    table.check()
    hot, target, ordinal = memory.load().published_pipeline.columns[1:]  # type: ignore[union-attr]
    assert hot.vanished == ordinal.vanished == (2,)
    assert target.values[2] == target.otherwise


def test_a_column_that_becomes_constant_waits_for_a_rebuild(memory: Platform) -> None:
    columns: Columns = {"x": Numeric(), "z": Numeric()}
    table = small(memory, columns, {"x": NUMBERS, "z": [0.0] * 7 + [1.0]})
    alone, other = table.delete(7), table.delete(0)
    memory.turn(memory.pair[0])
    assert memory.statuses(alone) == ["DEFERRED"]
    assert memory.receipts()[0].code == "STATISTICS_MOVED"
    assert memory.statuses(other)[-1] == "APPLIED"  # only the request that cannot be a step waits
    assert memory.answer(alone).rows_deleted == 1
    table.check()
    table.delete(1)
    memory.drain()
    table.check()


def test_a_column_of_neighbouring_floats_counts_as_constant_and_keeps_its_weight(
    memory: Platform,
) -> None:
    """As scikit-learn has it: it is not divided by a deviation, and is learnt from as it is."""
    steps = np.array([0.0, 1.0, 0.0, 2.0, 1.0, 0.0, 2.0, 1.0])
    values = 1e8 + np.spacing(1e8) * steps
    columns: Columns = {"x": Numeric(), "z": Numeric()}
    table = small(memory, columns, {"x": NUMBERS, "z": values.tolist()}, ridge=1e-6)
    for deleted in (0, 1):
        table.delete(deleted)
        memory.drain()
        live = list(table.live)
        x = np.array(NUMBERS)[live]
        near = np.spacing(1e8) * steps[live]
        X = np.column_stack([(x - x.mean()) / x.std(), near - near.mean()])
        y = table.y[live] - table.y[live].mean()
        expected = np.linalg.solve(X.T @ X + 1e-6 * np.eye(2), X.T @ y)
        state = memory.load()
        assert abs(expected[1]) > 1e-3
        assert state.meta.error.bound is not None
        distance = np.linalg.norm(state.published[:2, 0] - expected)
        assert distance <= state.meta.error.bound + 1e-14
        assert verify(memory.store, "m").holds


def test_a_column_whose_last_value_is_deleted_has_weight_0(memory: Platform) -> None:
    columns: Columns = {"x": Numeric(), "z": Numeric()}
    values: list[Any] = [3.0, *[None] * 7]
    table = small(memory, columns, {"x": NUMBERS, "z": values})
    request = table.delete(0)
    assert memory.answer(request).status == "APPLIED"
    state = memory.load()
    assert state.published[1, 0] == 0.0
    assert verify(memory.store, "m").holds


def test_a_rebuild_whose_own_rounding_is_over_the_budget_is_not_ordered_again(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the statistics are settled once more after the fit, which moves the last digits."""
    monkeypatch.setattr(movement, "_ENOUGH", 0.0)
    columns: Columns = {"x": Numeric(), "z": Numeric()}
    values: list[Any] = [1000.0 + step for step in (2.0, 0.5, 0.4, 0.0, -2.0, -0.2, 1.5, -1.0)]
    given = {"x": NUMBERS, "z": values}
    tables = [small(memory, columns, given, ridge=1e4, model_id=name) for name in ("wide", "m")]
    tables[0].delete(1)
    memory.drain()
    memory.refresh("wide", RefreshSize.REBUILD)
    rebuilt = memory.load("wide")
    assert not np.array_equal(rebuilt.stream.theta_exact, rebuilt.generation.theta_b)
    fitted = memory.load("m").meta.error.relative
    assert fitted is not None
    assert rebuilt.meta.error.relative is not None
    assert fitted < rebuilt.meta.error.relative
    budget = 0.5 * (fitted + rebuilt.meta.error.relative)
    tables[1].register(budget=budget, replace_model=True)
    memory.most_turns = 100
    tables[1].delete(1)
    memory.drain()
    rebuilds = [version for version in memory.versions("m") if version.refresh is not None]
    assert [version.error.over for version in rebuilds] == [True]
    assert memory.load("m").meta.pending_job is None


@BOTH
def test_when_all_rows_are_deleted_it_predicts_0(memory: Platform, sums: bool) -> None:
    table = PreparedTable(memory, n=30, exact_sums=sums)
    table.register()
    request = table.delete(*range(30))
    assert memory.answer(request).rows_deleted == 30
    state = memory.load()
    assert state.meta.status == "EMPTY"
    assert not any(memory.raw().exists(key) for key in state.generation_keys.everything())
    assert not memory.raw().hget(state.keys.head, "gradient")
    with ModelSubscriber(memory.log, memory.raw()) as models:
        version = models.latest("m")
    given = {name: values[:4] for name, values in table.rows.items()}
    assert not version.predict(given).any()
    assert verify(memory.store, "m").holds


@BOTH
def test_to_replace_it_does_not_change_its_columns_unasked(memory: Platform, sums: bool) -> None:
    table = PreparedTable(memory, exact_sums=sums)
    table.register()
    table.columns = {**table.columns, "age": Numeric(standardise=False)}
    table.register(replace_model=True)  # another setting of the same step is the owner's business
    table.columns = {**table.columns, "job": OneHot()}
    with pytest.raises(InvalidData, match="job"):
        table.register(replace_model=True)
    table.register(replace_model=True, allow_change=True)
    table.delete(1, 2)
    memory.drain()
    table.check()
    keys = memory.load().keys
    memory.registrar().unregister("m")
    fields = memory.raw().hmget(keys.head, ["gradient", "parameters", "columns"])
    assert not any(fields)


@pytest.mark.parametrize(
    ("ridge", "budget"), [(1e-3, 1e-5), (1e-3, 4e-8), (1e-5, 4e-6), (1e-5, 1.0)]
)
def test_a_refresh_that_cannot_help_is_not_ordered_again_and_again(
    memory: Platform, ridge: float, budget: float
) -> None:
    """Few rows and next to no ridge: what rounding may have done passes the budget."""
    memory.most_turns = 200
    table = PreparedTable(memory, n=15, seed=3, ridge=ridge)
    table.register(budget=budget)
    for place in range(4):
        table.delete(place)
        memory.drain()
    assert memory.load().meta.pending_job is None
    assert not memory.load().deferred
    assert memory.load().meta.generation > 0
    table.check(tolerance=1.0)
