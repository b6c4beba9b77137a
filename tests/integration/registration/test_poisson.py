"""Poisson models in the service: what is theirs alone; `test_kinds` has the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.engine.errors import InvalidData
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from tests.integration.registration.test_logistic_in_files import near
from tests.support.families import make
from tests.support.invariants import check_model, check_row_files
from tests.support.platform import Platform


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
