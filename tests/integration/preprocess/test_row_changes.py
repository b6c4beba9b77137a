"""Rows of a model with preprocessing that are inserted and corrected: it is the pipeline again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe.engine.store.layout.config import LimitsRecord
from tests.support.platform import Platform
from tests.support.prepared import BOTH, PreparedTable


@BOTH
@pytest.mark.parametrize("method", ["exact", "pru"])
def test_inserted_corrected_and_deleted_rows_leave_the_refitted_pipeline(
    platform: Platform, method: str, sums: bool
) -> None:
    rng = np.random.default_rng(1)
    table = PreparedTable(platform, exact_sums=sums)
    table.register(method=method)
    requests = [
        table.change("insert", *range(150, 158), rng=rng),
        table.change("correct", 3, 4, 5, 151, rng=rng),
    ]
    platform.drain()
    requests.append(table.delete(0, 1, 4, 152))
    platform.drain()
    assert {platform.final(request).status for request in requests} == {"APPLIED"}
    table.check()


ROW: dict[str, Any] = {
    "age": 50.0, "weight": 1.0, "score": 1.0, "town": "c0", "size": "M", "grade": "A",
    "post": "c0", "job": "c0", "joined": "2020-02-02",
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        ({**ROW, "age": "fifty"}, "column 'age' has a value that is not a number"),
        ({**ROW, "joined": "soon"}, "column 'joined' has a value that is not a date"),
        ({**ROW, "town": "Atlantis"}, "column 'town' has a category that no row had"),
        ({**ROW, "town": 7.5}, "column 'town' has a category that no row had"),
        ({**ROW, "score": None}, "column 'score' has a value that is not a number"),
        ({**ROW, "size": None}, "column 'size' has a category that no row had"),
        ({name: value for name, value in ROW.items() if name != "job"}, "lacks feature 'job'"),
        ({**ROW, "extra": 1.0}, "has no feature 'extra'"),
        ([1.0], "a row has 1 values"),
    ],
)
def test_values_that_do_not_fit_are_rejected_without_being_told(
    memory: Platform, values: Any, detail: str
) -> None:
    table = PreparedTable(memory)
    table.register()
    row = {"id": "new", "values": values, "target": 1.0}
    request = memory.send_change("m", "insert", row)
    receipt = memory.answer(request)
    assert (receipt.status, receipt.code) == ("REJECTED", "SCHEMA")
    assert detail in (receipt.detail or "")
    for told in ("Atlantis", "fifty", "soon"):
        assert told not in (receipt.detail or "")
    table.check()


def test_a_model_without_preprocessing_takes_numbers_only(memory: Platform) -> None:
    memory.register("m")
    d = memory.load().meta.config.d - 1
    for value in ("text", None, True):
        row = {"id": "new", "values": [value] + [1.0] * (d - 1), "target": 1.0}
        request = memory.send_change("m", "insert", row)
        receipt = memory.answer(request)
        assert (receipt.status, receipt.code) == ("REJECTED", "SCHEMA")


def test_rows_that_move_the_statistics_too_far_are_rejected(memory: Platform) -> None:
    table = PreparedTable(memory)
    table.register()
    row = {"id": "new", "values": {**ROW, "age": 1e9}, "target": 1.0}
    request = memory.send_change("m", "insert", row)
    receipt = memory.answer(request)
    assert (receipt.status, receipt.code) == ("REJECTED", "STATISTICS_MOVED")
    table.check()


def test_thousands_of_mixed_requests_stay_at_the_refitted_pipeline(memory: Platform) -> None:
    """5,000 rows inserted, corrected and deleted, with the rebuilds that come due."""
    memory.most_turns = 100_000
    rng = np.random.default_rng(4)
    table = PreparedTable(memory, n=400)
    table.register(limits=LimitsRecord(floor_rows=300, fraction_of_d=0.5))
    operations, new = 0, 400
    worst = 0.0
    for turn in range(250):
        inserted = range(new, new + 6)
        new += 6
        table.change("insert", *inserted, rng=rng)
        memory.drain()
        live = list(table.live)
        table.change("correct", *rng.choice(live, 8, replace=False).tolist(), rng=rng)
        memory.drain()
        table.delete(*rng.choice(live, 6, replace=False).tolist())
        memory.drain()
        operations += 20
        if turn % 10 == 9:
            table.check()
            distance, length = table.distance()
            worst = max(worst, distance / length)
    assert operations == 5_000
    assert {r.status for r in memory.finals().values()} == {"APPLIED"}
    assert memory.load().meta.generation > 0
    assert worst <= 1e-9
