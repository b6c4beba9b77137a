"""What versions disclose, over refreshes and changes of every kind, against refits from scratch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest

from lethe.engine.refresh.size import RefreshSize
from tests.support import erasures
from tests.support.disclosed import disclosures_of, keep_rows_in_files
from tests.support.families import Array, make
from tests.support.platform import Platform
from tests.support.tables import Row, Table

FAR = 1e9
"""A target beside which all residuals are lost: their squares are less than its rounding."""


@pytest.fixture(params=["store", "files"])
def memory(
    memory: Platform, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Platform:
    """The platform, where models have their rows in the store, or in files."""
    if request.param == "files":
        keep_rows_in_files(memory, monkeypatch)
    return memory


class Ledger:
    """A table, and what each change of it must have disclosed."""

    def __init__(self, platform: Platform) -> None:
        self.platform, self.table = platform, Table(platform)
        self.live: dict[str, Row] = dict(self.table.rows)

    def follow(self) -> dict[str, float | None]:
        """Let the workers work; compare the rows that changed, and return their distances."""
        self.platform.drain()
        before, after = self.live, dict(self.table.rows)
        changed = {
            name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)
        }
        kept, version = disclosures_of(self.platform), self.platform.load().version
        found: dict[str, float | None] = {}
        for name in changed:
            entry = kept[name].versions[-1]
            assert entry.version <= version
            distance, length = self.refitted(before, after, name)
            if entry.distance is not None:
                assert entry.distance == pytest.approx(distance, rel=1e-6)
            assert entry.length == pytest.approx(length, rel=1e-6)
            found[name] = entry.distance
        self.live = after
        return found

    def refitted(
        self, before: dict[str, Row], after: dict[str, Row], name: str
    ) -> tuple[float, float]:
        without = {row: values for row, values in after.items() if row != name}
        if name in before:
            without[name] = before[name]
        theta, A, unit = self.fit(after)
        other, A_other, _ = self.fit(without)
        if name in before:
            A, (_, _, unit) = A_other, self.fit(before)
        delta = other - theta
        return float(delta @ A @ delta) / unit, float(np.linalg.norm(delta))

    def fit(self, rows: dict[str, Row]) -> tuple[Array, Array, float]:
        """Return theta, A and p s^2, by QR of the rows and the root of the ridge."""
        data, values = self.table.data, list(rows.values())
        X = np.array([x for x, _, _ in values])
        if data.intercept:
            X = np.hstack([X, np.ones((len(X), 1))])
        y, weight = np.array([float(y[0]) for _, y, _ in values]), [w for _, _, w in values]
        root = np.sqrt(np.array(weight))
        stacked = np.vstack([X * root[:, None], np.diag(np.sqrt(data.penalty))])
        Q, R = np.linalg.qr(stacked)
        theta = np.linalg.solve(R, Q[: len(X)].T @ (y * root))
        p = float(np.sum(Q[: len(X)] ** 2))
        squares = float(np.sum((root * (y - X @ theta)) ** 2))
        return theta, R.T @ R, p * squares / (np.count_nonzero(root) - p)

    def refreshed(self, kind: RefreshSize) -> None:
        self.platform.order("m", kind)
        self.follow()


def register(platform: Platform, data: Any = "benign") -> Ledger:
    platform.register("m", data, method="exact", budget=10.0, disclosure=True)
    return Ledger(platform)


def priced(found: dict[str, float | None]) -> bool:
    assert found
    return all(distance is not None for distance in found.values())


@pytest.mark.parametrize("family", ["benign", "wide", "sparse"])
def test_over_every_refresh_an_erasure_inserts_and_corrections(
    memory: Platform, family: str
) -> None:
    ledger = register(memory, family)
    table = ledger.table
    number = iter(range(100))

    def some_of_each() -> None:
        first, second = [n for n in table.rows if n.startswith("row-")][:2]
        new = [f"new-{next(number)}" for _ in range(2)]
        steps: list[Callable[[], str]] = [
            lambda: table.change("insert", table.row(new[0], 0.7), table.row(new[1])),
            lambda: table.change("correct", table.row(first)),
            lambda: table.change("correct", table.row(new[0], 2.0), table.row(second)),
            lambda: table.delete(first, new[1]),
        ]
        for step in steps:
            step()
            assert priced(ledger.follow())

    some_of_each()
    for kind in RefreshSize:
        ledger.refreshed(kind)
        some_of_each()
    with closing(erasures.erasure_worker(memory)) as worker:
        erasures.erase(memory, "subject-6", "e-1")  # row-18, row-19, row-20
        erasures.drain(memory, worker)
    for name in erasures.rows_of(6):
        del table.rows[name]
    ledger.live = dict(table.rows)
    some_of_each()
    ledger.refreshed(RefreshSize.REBUILD)
    some_of_each()
    table.check()


def test_distances_are_measured_in_the_same_wherever_the_rows_are(memory: Platform) -> None:
    register(memory)
    memory.register("other", method="exact", budget=10.0, disclosure=True, rows_url=None)
    for step in range(3):
        scales = [memory.load(model).meta.disclosure for model in ("m", "other")]
        numbers = [astuple(scale) for scale in scales if scale is not None]
        assert numbers[0][:3] == pytest.approx(numbers[1][:3], rel=1e-9)
        assert numbers[0][3:] == pytest.approx(numbers[1][3:], rel=1e-2)  # of rounding
        for model in ("m", "other"):
            if step == 1:
                memory.refresh(model, RefreshSize.REBUILD)
            else:
                memory.delete(model, 3 * step, 3 * step + 1)


def far_out() -> Any:
    data = make("benign", "linear")
    y = data.y.copy()
    y[0] = FAR
    return replace(data, y=y)


@pytest.mark.parametrize("kind", [RefreshSize.COMPACT, RefreshSize.REBUILD])
def test_residuals_lost_beside_a_target_are_back_with_a_refresh_that_reads_the_rows(
    memory: Platform, kind: RefreshSize
) -> None:
    """The typing error is deleted, and figures of later rows were 3.7 times too large, for good."""
    ledger = register(memory, far_out())
    ledger.table.delete("row-0")
    assert priced(ledger.follow())
    ledger.table.delete("row-1")
    assert not priced(ledger.follow())
    ledger.refreshed(kind)
    ledger.table.delete("row-2")
    assert priced(ledger.follow())


def meanwhile_deleted(ledger: Ledger) -> None:
    ledger.table.delete("row-7", "row-9")


def meanwhile_changed(ledger: Ledger) -> None:
    ledger.table.change("insert", ledger.table.row("new-1"))
    ledger.follow()
    ledger.table.change("correct", ledger.table.row("row-11"))


@pytest.mark.parametrize("kind", [RefreshSize.COMPACT, RefreshSize.REBUILD])
@pytest.mark.parametrize("meanwhile", [meanwhile_deleted, meanwhile_changed])
@pytest.mark.parametrize("measured_far_out", [False, True])
def test_rows_that_change_while_a_generation_is_made_are_counted(
    memory: Platform,
    kind: RefreshSize,
    meanwhile: Callable[[Ledger], None],
    measured_far_out: bool,
) -> None:
    ledger = register(memory, far_out())
    if not measured_far_out:
        ledger.table.delete("row-0")
        ledger.follow()
    event, generation = memory.ordered("m", kind), memory.load().meta.generation
    memory.compute_refresh(event)
    meanwhile(ledger)
    ledger.follow()
    if measured_far_out:
        ledger.table.delete("row-0")
        ledger.follow()
    memory.tell_refreshed(event)
    ledger.follow()
    assert memory.load().meta.generation == generation + 1
    ledger.table.delete("row-30")
    assert priced(ledger.follow()) is not measured_far_out


def test_a_scale_that_was_lost_is_back_once_rows_are_read_and_none_changed_since(
    memory: Platform,
) -> None:
    """The square of a target overflows; such a model could not be read again."""
    data = make("benign", "linear")
    y = data.y.copy()
    y[0] = 1e160
    ledger = register(memory, replace(data, y=y))

    def known() -> bool:
        ledger.live = dict(ledger.table.rows)
        scale = memory.load().meta.disclosure
        assert scale is not None
        return scale.known

    assert not known()
    ledger.table.delete("row-0")
    memory.drain()
    assert [one.distance for one in disclosures_of(memory)["row-0"].versions] == [None]
    event = memory.ordered("m", RefreshSize.REBUILD)
    memory.compute_refresh(event)
    ledger.table.delete("row-1")
    memory.drain()
    memory.tell_refreshed(event)
    memory.drain()
    assert not known()
    ledger.refreshed(RefreshSize.REBUILD)
    assert known()
    ledger.table.delete("row-3")
    assert priced(ledger.follow())
