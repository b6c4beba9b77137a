"""A model with exact sums: each version has retraining's bits, whatever happens to the store.

The judge is rational arithmetic on a table of its own.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.health.models import check_model
from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.workers import housekeeping
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.exact.rows import MOST
from lethe.engine.refresh.size import RefreshSize
from tests.integration.preprocess.test_fold import housekeeper
from tests.support.families import Data
from tests.support.platform import Platform
from tests.support.tables import Table
from tests.support.workloads import minimiser

FAMILIES = ("benign", "badly_scaled", "rank_deficient", "several_outputs", "duplicated")


def registered(platform: Platform, family: str | Data = "benign", **options: Any) -> Table:
    platform.register("m", family, "linear", exact_sums=True, **{"method": "exact", **options})
    return Table(platform)


def check(table: Table) -> None:
    """Check that the newest version publishes the bits of retraining, and says so."""
    table.platform.drain()
    state = table.platform.load()
    assert state.meta.rows_live == len(table.rows)
    assert np.array_equal(state.stream.theta_exact, minimiser(table))
    assert np.array_equal(theta_of(table.platform.parameters("m")), minimiser(table))
    assert state.meta.error.kind == "rounded"
    assert len(state.stream.V) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_each_version_is_retraining_bit_for_bit(memory: Platform, family: str) -> None:
    table, dice = registered(memory, family), random.Random(family)
    for _ in range(12):
        live, new = list(table.rows), f"new-{len(memory.asked)}-{dice.random()}"
        table.delete(*dice.sample(live, dice.choice([1, 1, 3])))
        check(table)
        table.change("insert", table.row(new), table.row(new + "b", 1e-8))
        table.change("correct", table.row(dice.choice(list(table.rows)), 1e6))
        check(table)
    assert memory.load().meta.generation == 0


def test_a_typing_error_and_its_correction_leave_nothing(memory: Platform) -> None:
    """10^5 times too large, beside 8 rows that alone have a feature, and no rebuild."""
    draw = np.random.default_rng(23)
    X, y = draw.normal(size=(300, 5)), draw.normal(size=(300, 1))
    X[8:, 4], X[0, 4] = 0.0, 1.0
    data = Data("typing", "linear", X, y, np.ones(300), 1e-4, True, np.arange(8))
    table = registered(memory, data, budget=1e-15)
    right = {"id": "row-9", "values": X[9].tolist(), "target": y[9].tolist()}
    table.change("correct", {**right, "values": (X[9] * 1e5).tolist()})
    check(table)
    table.delete(*(f"row-{i}" for i in range(8)))
    check(table)
    table.change("correct", right)
    check(table)
    assert (memory.load().meta.generation, memory.load().meta.error.over) == (0, False)


def test_a_row_of_a_leverage_of_1_is_deleted_and_nothing_waits(memory: Platform) -> None:
    draw = np.random.default_rng(1)
    X, y = draw.normal(size=(60, 4)), draw.normal(size=(60, 1))
    X[1:, 3], X[0, 3] = 0.0, 1e8
    data = Data("alone", "linear", X, y, np.ones(60), 1e-9, False, np.arange(1))
    table = registered(memory, data, budget=1e-15)
    request = table.delete("row-0")
    check(table)
    assert memory.final(request).status == "APPLIED"
    assert not memory.load().deferred


def test_rows_beside_the_sums_are_never_many(memory: Platform) -> None:
    table = registered(memory)
    where, whole = memory.load().generation_keys.sums, set()
    for _ in range(3 * MOST // 10):
        table.delete(*list(table.rows)[:10] if len(table.rows) > 60 else list(table.rows)[:1])
        table.change("insert", *(table.row(f"n{len(memory.asked)}-{i}") for i in range(8)))
        memory.drain()
        fields = memory.raw().hgetall(where)
        whole.add(fields[b"all"])
        rows = sum(len(value) // (8 * (2 + 12)) for name, value in fields.items() if name != b"all")
        assert rows <= MOST
    assert len(whole) > 2
    check(table)


def test_pru_publishes_a_projection_until_it_is_completed(memory: Platform) -> None:
    table = registered(memory, method="pru", budget=10.0)
    table.delete("row-0", "row-1")
    memory.drain()
    state = memory.load()
    assert np.array_equal(state.stream.theta_exact, minimiser(table))
    assert (state.meta.error.kind, len(state.stream.Q)) == ("exact", 2)
    table.check()
    memory.order("m", RefreshSize.COMPLETE)
    check(table)


@pytest.mark.parametrize("size", list(RefreshSize))
def test_every_refresh_leaves_the_same_bits(memory: Platform, size: RefreshSize) -> None:
    table = registered(memory)
    table.delete("row-0", "row-1")
    check(table)
    before = memory.load().published
    memory.order("m", size)
    check(table)
    assert np.array_equal(memory.load().published, before)
    rebuilt = size is not RefreshSize.COMPLETE
    assert memory.load().meta.generation == int(rebuilt)


def test_the_last_row_leaves_nothing_and_the_model_begins_again(memory: Platform) -> None:
    table = registered(memory)
    table.delete(*table.rows)
    memory.drain()
    state = memory.load()
    assert (state.meta.status, state.stream.solution) == ("EMPTY", None)
    assert not memory.raw().exists(state.generation_keys.sums)


def test_deleted_rows_beside_the_sums_are_removed_within_the_hour(memory: Platform) -> None:
    """The next commit is made by a worker that has them in memory: it reads the state again."""
    table = registered(memory)
    memory.drain()  # the worker's first turn ends with a look at all models
    table.delete("row-1")
    check(table)
    where = memory.load().generation_keys.sums
    assert memory.raw().hexists(where, "since:0")
    housekeeper(memory).run_due()
    assert memory.raw().hkeys(where) == [b"all"]
    table.delete("row-2")
    check(table)


def test_sums_of_many_models_are_rewritten_a_share_a_turn(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at a thousand models takes longer than a silent member keeps its partitions."""
    monkeypatch.setattr(housekeeping, "_SHARE_SECONDS", 0.0)
    for name in ("m", "n"):
        memory.register(name, exact_sums=True, method="exact")
    memory.drain()
    memory.send("m", "row-1")
    memory.send("n", "row-1")
    memory.drain()
    sums = [memory.load(name).generation_keys.sums for name in ("m", "n")]
    keeper = housekeeper(memory)
    for left in (1, 0):
        keeper.run_due()
        assert sum(bool(memory.raw().hexists(where, "since:0")) for where in sums) == left


def test_a_worker_that_ends_leaves_no_row_beside_the_sums(memory: Platform) -> None:
    table = registered(memory)
    memory.drain()
    table.delete("row-1")
    check(table)
    where = memory.load().generation_keys.sums
    assert memory.raw().hexists(where, "since:0")
    memory.pair[0].close()
    assert memory.raw().hkeys(where) == [b"all"]
    memory._pair = memory.deletion_worker(), memory.pair[1]
    table.delete("row-2")
    check(table)


def test_sums_or_rows_that_were_damaged_are_found_digit_for_digit(memory: Platform) -> None:
    """One digit of one target: a check finds it, and a rebuild says so and goes by the rows."""
    table = registered(memory)
    table.delete("row-1")
    check(table)
    state = memory.load()
    rows = next(key for key in state.generation_keys.every_rows() if memory.raw().hlen(key))
    stored: dict[bytes, bytes] = memory.raw().hgetall(rows)  # type: ignore[assignment]
    name, record = next(iter(stored.items()))
    memory.raw().hset(rows, name, record[:-8] + bytes([record[-8] ^ 1]) + record[-7:])
    fault = "the exact sums are not those of the live rows"
    found = [one for one in check_model(memory.store, None, "m") if not one.ok]
    assert [fault in one.detail for one in found] == [True]
    memory.refresh("m", RefreshSize.REBUILD)
    newest = memory.versions("m")[-1]
    assert newest.refresh is not None
    assert fault in newest.refresh.reason
    assert all(one.ok for one in check_model(memory.store, None, "m"))


def test_damaged_sums_halt_the_model_by_one_line(memory: Platform) -> None:
    registered(memory)
    where = memory.load().generation_keys.sums
    whole = memory.raw().hget(where, "all")
    assert isinstance(whole, bytes)
    first = 9 + 2 * 14  # of the digits: those of the first feature's sum of squares
    memory.raw().hset(where, "all", whole[:first] + b"\1\0\0\0" + whole[first + 4 :])
    with pytest.raises(CorruptState, match="its sums: do not give the parameters that its head"):
        memory.load()


def test_a_row_beyond_the_range_of_the_sums_is_refused_by_name(memory: Platform) -> None:
    table = registered(memory)
    row = table.row("far")
    row["values"] = [1e-150, 1e150, *row["values"][2:]]
    request = memory.send_change("m", "insert", row)
    answer = memory.answer(request)
    assert (answer.status, answer.code) == ("REJECTED", "OUT_OF_RANGE")
    check(table)


@pytest.mark.parametrize(
    "options",
    [{"kind": "logistic"}, {"method": "influence"}, {"disclosure": True, "method": "exact"}],
)
def test_models_that_cannot_have_exact_sums_are_refused(
    memory: Platform, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidData, match="--exact-sums is for linear models"):
        memory.register("m", "benign", exact_sums=True, **options)
