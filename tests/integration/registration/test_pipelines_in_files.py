"""Models with preprocessing and no exact sums whose rows are in files: as with rows in the store.

The statistics are taken in passes over the files, so they differ by rounding; what is published is
compared with the other model and with scikit-learn's pipeline, refitted to the live rows.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from lethe.consumers.audit.health.models import check_model
from lethe.consumers.audit.verify import verify
from lethe.consumers.refresh import new_generation
from lethe.consumers.refresh.job import run_job
from lethe.consumers.refresh.new_generation import CATCH_UP_LIMIT
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, Ordinal, TargetEncode
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import passes, writer
from lethe.engine.rowstore.passes import Block
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.pipeline_sums import packed_sums
from lethe.engine.store.offline.in_files import fit_files
from lethe.engine.store.offline.snapshot import take_snapshot, with_enough_sentinels
from lethe.engine.store.row_files import RowFilesOfModels
from tests.support import prepared
from tests.support.events import succeed
from tests.support.invariants import check_row_files, check_rows
from tests.support.pipelines import EVERY_KIND, Rows
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable
from tests.support.stores import backup, restore

T = TypeVar("T")

BOTH = [Kind.LINEAR, Kind.LOGISTIC]
FEW: Columns = {"x": Numeric(), "town": OneHot(), "post": TargetEncode(standardise=True)}


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets and parts of the index of some hundred rows."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(writer, "INDEX_ROWS", 16)


class Pair(prepared.Pair):
    """Two models of one table, without exact sums."""

    def __init__(
        self, platform: Platform, kind: Kind, columns: Columns = EVERY_KIND, n: int = 300
    ) -> None:
        super().__init__(platform, columns, n, kind=kind, ridge=10.0)

    def register(self, **options: Any) -> None:
        super().register(**{"budget": 2.0, **options})

    def check(self) -> None:
        """They differ by rounding."""
        super().check()
        ours, theirs = (self.platform.load(model) for model in ("m", "other"))
        assert ours.meta.status == theirs.meta.status
        assert ours.meta.class_counts == theirs.meta.class_counts
        size = float(np.linalg.norm(theirs.published))
        assert float(np.linalg.norm(ours.published - theirs.published)) <= 1e-9 * size
        errors = [state.meta.error for state in (ours, theirs)]
        assert errors[0].kind == errors[1].kind
        assert errors[0].bound is not None
        # Of a linear model they bound rounding alone, in which the fits differ.
        near = 0.5 if self.m.kind is Kind.LINEAR else 0.01
        assert errors[0].bound == pytest.approx(errors[1].bound, rel=near)
        assert len(ours.stream.V) == len(theirs.stream.V)
        for table in (self.m, self.other):
            table.check()


def delete_subject(table: PreparedTable, subject: str, *places: int) -> None:
    model = table.model_id
    body = {"request_id": f"{model}-{subject}", "model_id": model, "subject_id": subject}
    for place in places:
        table.live.pop(place, None)
    table.platform.send_raw(json.dumps(body).encode(), key=model.encode())


@pytest.mark.parametrize(
    ("kind", "method"),
    [(Kind.LINEAR, "exact"), (Kind.LINEAR, "pru"), (Kind.LOGISTIC, "exact")],
)
def test_pipelines_are_those_of_models_whose_rows_are_in_the_store(
    memory: Platform, kind: Kind, method: str
) -> None:
    n = 1500 if kind is Kind.LOGISTIC else 300
    pair = Pair(memory, kind, FEW if kind is Kind.LOGISTIC else EVERY_KIND, n)
    pair.register(method=method, limits=LimitsRecord(floor_rows=256))
    assert len([path for path in Path(pair.url).rglob("*") if path.is_file()]) > 8
    assert not memory.load("m").meta.config.exact_sums
    pair.do(lambda table: table.delete(1, 2))
    pair.change("insert", n, n + 1, seed=1)
    pair.change("correct", 7, n, seed=2)
    pair.do(lambda table: table.delete(7))
    assert len(memory.load("m").stream.V) == 9
    pair.refresh()
    assert memory.load("m").meta.rows_in_store == 0
    pair.change("correct", 8, seed=3)
    pair.do(lambda table: delete_subject(table, "subject-4", 12, 13, 14))
    pair.refresh()


@pytest.mark.parametrize("left", [0, CATCH_UP_LIMIT])
@pytest.mark.parametrize("kind", BOTH)
def test_a_generation_catches_up_with_rows_of_its_files(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, kind: Kind, left: int
) -> None:
    """By the refresh worker, or by the deletion worker: in the units of the new generation."""
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", left)
    n = 300 if kind is Kind.LINEAR else 1500  # with few rows no bound is proved between rebuilds
    table = PreparedTable(memory, FEW, n, kind=kind, ridge=10.0, rows_url=memory.folder())
    table.register(budget=100.0, limits=LimitsRecord(floor_rows=256))
    table.delete(*range(12))
    table.change("insert", n, n + 1, rng=np.random.default_rng(1))
    memory.drain()
    job, turns = memory.ordered("m", RefreshSize.REBUILD), iter(range(1))

    def change(*_: object) -> None:
        for _turn in turns:
            table.change("correct", 40, n, rng=np.random.default_rng(2))
            table.delete(50, 51, n + 1)
            memory.drain()

    assert memory.load("m").meta.generation == 0
    run_job(memory.store, job, now=datetime.now(UTC), progress=change)
    memory.tell_refreshed(job)
    memory.drain()
    state = memory.load("m")
    assert (state.meta.generation, state.meta.rows_in_store, len(state.stream.V)) == (1, 2, 7)
    table.check()
    check_rows(memory, "m")
    check_row_files(memory)


@pytest.mark.parametrize("kind", BOTH)
def test_whoever_verifies_reads_the_files_in_blocks(memory: Platform, kind: Kind) -> None:
    pair = Pair(memory, kind, FEW)
    pair.register()
    pair.do(lambda table: table.delete(1, 2))
    pair.change("correct", 7, seed=2)
    ours, theirs = (verify(memory.store, model) for model in ("m", "other"))
    assert ours.holds
    assert ours.method == theirs.method
    assert ours.rows_live == theirs.rows_live == 298
    assert ours.distance == pytest.approx(theirs.distance, rel=1e-6, abs=1e-13)
    for model in ("m", "other"):
        assert all(found.ok for found in check_model(memory.store, None, model))


@pytest.mark.parametrize("kind", BOTH)
def test_dual_rows_are_those_that_the_store_would_have(memory: Platform, kind: Kind) -> None:
    pair = Pair(memory, kind, FEW)
    pair.register()
    ours, theirs = (take_snapshot(memory.store, model) for model in ("m", "other"))
    place = {row: i for i, row in enumerate(theirs.ids)}
    index = [place[row] for row in ours.ids]
    np.testing.assert_allclose(ours.rows.X, theirs.rows.X[index], rtol=1e-9, atol=1e-12)
    size = np.abs(theirs.W).max()
    np.testing.assert_allclose(ours.W, theirs.W[index], rtol=1e-8, atol=1e-10 * size)
    factor = memory.store.factors.of(memory.load("m")).L
    np.testing.assert_allclose(ours.W @ (factor @ factor.T), ours.rows.X, rtol=1e-9, atol=1e-9)


def test_no_row_is_copied_as_a_sentinel(memory: Platform) -> None:
    """The error of a model with preprocessing is a bound by sums: it samples no row."""
    pair = Pair(memory, Kind.LOGISTIC, FEW)
    pair.register()
    state = memory.load("m")
    assert not state.sentinels.ids
    assert not memory.raw().hget(state.generation_keys.fixed, "sentinel_rows")
    assert with_enough_sentinels(memory.store, state) is state


def test_one_class_that_is_left_has_its_intercept_penalised(memory: Platform) -> None:
    pair = Pair(memory, Kind.LOGISTIC, FEW, n=60)
    for table in (pair.m, pair.other):
        table.y = (np.arange(60) < 3).astype(np.float64)
    for table in (pair.m, pair.other):
        table.register(budget=2.0, method="exact")
    requests = [(table.delete(0, 1, 2), table.model_id) for table in (pair.m, pair.other)]
    memory.drain()
    assert {memory.final(*request).status for request in requests} == {"APPLIED"}
    ours, theirs = (memory.load(model) for model in ("m", "other"))
    assert ours.meta.status == theirs.meta.status == "INTERCEPT_PENALISED"
    np.testing.assert_allclose(ours.published, theirs.published, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("kind", BOTH)
def test_a_store_that_went_back_is_brought_up_to_date(memory: Platform, kind: Kind) -> None:
    pair = Pair(memory, kind, FEW)
    pair.register()
    early = backup(memory)
    pair.do(lambda table: table.delete(5, 6))
    pair.change("correct", 9, seed=4)
    restore(memory, early)
    succeed(memory)
    pair.do(lambda table: table.delete(10))
    pair.refresh()


def test_files_that_are_gone_for_good_come_back_with_a_rebuild(memory: Platform) -> None:
    pair = Pair(memory, Kind.LOGISTIC, FEW)
    pair.register()
    early = backup(memory, "m")
    pair.do(lambda table: table.delete(5))
    pair.refresh()
    pair.do(lambda table: table.delete(6))
    restore(memory, early, "m")
    succeed(memory)
    memory.drain()
    memory.refresh("m", RefreshSize.REBUILD)
    memory.refresh("other", RefreshSize.REBUILD)
    pair.do(lambda table: table.delete(11))


def test_a_model_moves_to_files_and_back(memory: Platform) -> None:
    table = PreparedTable(memory, FEW, 300, kind=Kind.LOGISTIC, ridge=10.0)
    table.register(budget=2.0)
    table.delete(1, 2)
    memory.drain()
    for url in (memory.folder(), memory.folder(), None):
        table.rows_url = url
        table.register(budget=2.0, replace_model=True)
        table.delete(min(table.live))
        memory.drain()
        table.check()
        check_rows(memory, "m")
        check_row_files(memory)


def test_a_category_that_no_row_had_is_refused(memory: Platform) -> None:
    pair = Pair(memory, Kind.LOGISTIC, FEW)
    pair.register()
    values = {name: pair.m.rows[name][3] for name in pair.m.columns}
    row = {"id": "new", "values": {**values, "town": "Nowhere"}, "target": 1}
    requests = [(memory.send_change(model, "insert", row), model) for model in ("m", "other")]
    memory.drain()
    finals = [memory.final(request, model) for request, model in requests]
    assert finals[0].code == finals[1].code
    assert finals[0].status == "REJECTED"


def test_a_damaged_code_in_a_file_is_noticed(memory: Platform, monkeypatch: Any) -> None:
    pair = Pair(memory, Kind.LOGISTIC, {"x": Numeric(), "size": Ordinal()})
    pair.register()
    of = passes.Pass._of

    def damaged(self: Any, buckets: Any) -> Any:
        kernel = self.kernel

        def on_damage(rows: Any) -> Any:
            rows.X[0, -1] = 99.0
            return kernel(rows)

        object.__setattr__(self, "kernel", on_damage)
        return of(self, buckets)

    monkeypatch.setattr(passes.Pass, "_of", damaged)
    with pytest.raises(CorruptState, match="a row is none of the model's"):
        memory.compute_refresh(memory.ordered("m", RefreshSize.REBUILD))


class Sent:
    """Computes blocks with what was sent as bytes, as another process does."""

    def map(
        self, compute: Callable[[Sequence[Block]], T], tasks: Iterable[Sequence[Block]]
    ) -> Iterator[T]:
        return (pickle.loads(pickle.dumps(compute))(task) for task in tasks)  # noqa: S301


@pytest.mark.parametrize("kind", BOTH)
def test_the_same_bits_whoever_computes_the_passes(memory: Platform, kind: Kind) -> None:
    pair = Pair(memory, kind)
    pair.register()
    state = memory.load("m")
    here, there = (RowFilesOfModels(workers).of(state.meta) for workers in (None, Sent()))
    assert here is not None
    assert there is not None
    made, sent = (fit_files(state.meta.config, buckets, 1) for buckets in (here, there))
    assert made.new.stream.published.tobytes() == sent.new.stream.published.tobytes()
    assert made.pipeline is not None
    assert sent.pipeline is not None
    assert packed_sums(made.pipeline.answer.sums) == packed_sums(sent.pipeline.answer.sums)


def test_a_linear_model_of_too_many_columns_is_fitted_in_passes(memory: Platform) -> None:
    """That they are too many is known only once every row was read."""
    rows: Rows = {
        "x": np.random.default_rng(0).standard_normal(300).astype(object),
        "town": np.array([f"town {i // 2}" for i in range(300)], dtype=object),
    }
    table = PreparedTable(
        memory,
        {"x": Numeric(), "town": OneHot()},
        rows=rows,
        y=np.arange(300, dtype=np.float64),
        exact_sums=True,
        rows_url=memory.folder(),
    )
    table.register(if_possible=True)
    assert not memory.load("m").meta.config.exact_sums
    table.delete(1, 2)
    memory.drain()
    table.check()


def test_a_budget_that_no_fit_meets_leaves_no_file(memory: Platform) -> None:
    pair = Pair(memory, Kind.LOGISTIC, FEW, n=60)
    with pytest.raises(InvalidData, match="the fit itself is uncertain"):
        pair.m.register(budget=1e-15)
    assert not [path for path in Path(pair.url).rglob("*") if path.is_file()]
