"""Models with weights of classes: rows that come, go and change have the weight of their label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.offline.snapshot import take_snapshot
from tests.support.events import succeed
from tests.support.families import Data, make
from tests.support.oracles import Wide
from tests.support.platform import Platform
from tests.support.stores import backup, restore
from tests.support.tables import Table

LOGISTIC, SIGNS = (0.5, 4.0), (0.25, 3.0)
FOUR = (1.0, 0.3, 2.0, 7.0)


def signs(outputs: int) -> Data:
    """Return a linear model's targets of -1 and 1: one column, or one a class."""
    data = make("benign", "logistic") if outputs == 1 else make("classes", "logistic")
    return replace(data, kind="linear", y=2.0 * data.y - 1.0)


class Weighed(Table):
    """A table that knows how much the rows of each class count."""

    def __init__(self, platform: Platform, weights: tuple[float, ...], seed: int = 0) -> None:
        super().__init__(platform, seed=seed)
        self.weights = weights

    def _target(self) -> Any:
        if self.data.kind == "logistic":
            return super()._target()
        return [float(v) for v in self.data.y[int(self.draw.integers(len(self.data.y)))]]

    def retrained(self) -> Wide:
        own = self.rows
        self.rows = {row: (x, y, self.weight_of(row)) for row, (x, y, _) in own.items()}
        try:
            return super().retrained()
        finally:
            self.rows = own

    def weight_of(self, row: str) -> float:
        _, y, own = self.rows[row]
        return own * self.weights[int(y[0] > 0) if len(y) == 1 else int(np.argmax(y))]


CASES = [
    pytest.param(make("benign", "logistic"), LOGISTIC, {}, id="logistic"),
    pytest.param(make("classes", "logistic"), FOUR, {}, id="classes"),
    pytest.param(signs(1), SIGNS, {}, id="linear"),
    pytest.param(signs(1), SIGNS, {"exact_sums": True}, id="linear-sums"),
    pytest.param(signs(4), FOUR, {"exact_sums": True, "method": "exact"}, id="linear-classes"),
]


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize(("data", "weights", "options"), CASES)
def test_mixed_requests_over_rebuilds_are_as_if_refitted_with_the_weights(
    memory: Platform,
    data: Data,
    weights: tuple[float, ...],
    options: dict[str, Any],
    in_files: bool,
) -> None:
    rows_url = memory.folder() if in_files else None
    options = {"budget": 10.0, "rows_url": rows_url, **options}
    memory.register("m", data, class_weights=weights, **options)
    table = Weighed(memory, weights, seed=3)
    draw = np.random.default_rng(5)
    for turn in range(4):
        names = list(table.rows)
        chosen = [names[i] for i in draw.choice(len(names), 4, replace=False)]
        heavy = table.row(f"heavy-{turn}", weight=2.5)
        table.change("insert", table.row(f"new-{turn}"), heavy)
        memory.drain()
        table.change("correct", table.row(chosen[0]), table.row(f"heavy-{turn}"))
        table.delete(*chosen[1:])
        memory.drain()
        memory.refresh("m", RefreshSize.REBUILD)
        table.check()
        found = verify(memory.store, "m")
        assert found.distance <= found.bound + found.residual


@pytest.mark.parametrize(("data", "weights", "options"), CASES)
def test_a_store_that_went_back_has_the_weights_again(
    memory: Platform, data: Data, weights: tuple[float, ...], options: dict[str, Any]
) -> None:
    memory.register("m", data, class_weights=weights, **{"budget": 10.0, **options})
    table, early = Weighed(memory, weights), backup(memory)
    table.change("insert", table.row("new"), table.row("heavy", weight=2.5))
    table.change("correct", table.row("row-1"), table.row("row-2"))
    memory.drain()
    table.change("correct", table.row("heavy"), table.row("row-1"))
    memory.drain()
    restore(memory, early)
    succeed(memory)
    table.delete("row-9")
    memory.drain()
    snapshot = take_snapshot(memory.store, "m")
    expected = [table.weight_of(row) for row in snapshot.ids]
    np.testing.assert_allclose(snapshot.rows.weight, expected, rtol=1e-15)
    memory.refresh("m", RefreshSize.REBUILD)
    table.check()


def test_a_target_that_is_no_class_is_refused(memory: Platform) -> None:
    memory.register("m", signs(1), class_weights=SIGNS)
    row = {"id": "x", "values": [0.0] * memory.data["m"].X.shape[1], "target": 0.5}
    sent = memory.send_change("m", "insert", row)
    memory.drain()
    assert memory.finals("m")[sent].status == "REJECTED"
    assert "is no class" in (memory.finals("m")[sent].detail or "")
