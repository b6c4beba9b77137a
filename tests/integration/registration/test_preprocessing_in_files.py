"""Models with preprocessing whose rows are in files: bit for bit those with rows in the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.digest_check import verify_digest
from lethe.consumers.audit.health.models import check_model as check
from lethe.consumers.audit.verify import verify
from lethe.engine.error.drift import SUMS_FAULT
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from lethe.engine.store.layout.preprocessing import given_values
from lethe.engine.store.offline.snapshot import take_snapshot
from lethe.engine.store.row_files import as_model_has
from tests.support import pipelines, prepared
from tests.support.events import succeed
from tests.support.invariants import check_row_files
from tests.support.pipelines import EVERY_KIND
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable
from tests.support.stores import backup, restore

REBUILD = RefreshSize.REBUILD


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets and parts of the index of a hundred rows."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(writer, "INDEX_ROWS", 16)


class Pair(prepared.Pair):
    """Two models of one table, with exact sums."""

    def __init__(self, platform: Platform, columns: Columns = EVERY_KIND, n: int = 120) -> None:
        super().__init__(platform, columns, n, exact_sums=True)

    def register(self, **options: Any) -> None:
        super().register(**options)
        self.check_sums()

    def check(self) -> None:
        """Compare what is published, the sums, and what is kept of each row."""
        super().check()
        ours, theirs = (self.platform.load(model) for model in ("m", "other"))
        assert ours.meta.config.feature_names == theirs.meta.config.feature_names
        events = [self.platform.parameters(model) for model in ("m", "other")]
        assert events[0].parameters_digest == events[1].parameters_digest
        assert ours.meta.error == theirs.meta.error
        kept = [take_snapshot(self.platform.store, model) for model in ("m", "other")]
        rows = [
            dict(zip(one.ids, map(bytes, given_values(one.table)), strict=True))
            for one in kept
            if one.table is not None
        ]
        assert rows[0] == rows[1]

    def check_sums(self) -> None:
        """Compare the sums digit by digit; a rebuild of rows in the store may choose new units."""
        ours, theirs = (self.platform.load(model).stream.solution for model in ("m", "other"))
        assert ours is not None
        assert theirs is not None
        assert ours.same_sums(theirs)


def test_every_version_has_the_bits_of_one_whose_rows_are_in_the_store(memory: Platform) -> None:
    pair = Pair(memory)
    pair.register(method="pru")
    assert len([path for path in Path(pair.url).rglob("*") if path.is_file()]) > 8
    pair.do(lambda table: table.delete(1, 2))
    pair.change("insert", 120, 121, seed=1)
    pair.change("correct", 7, 120, seed=2)
    pair.do(lambda table: table.delete(7))
    pair.refresh()
    pair.change("correct", 8, seed=3)
    pair.do(lambda table: delete_subject(table, "subject-4"))
    pair.refresh()
    pair.m.check()


def delete_subject(table: PreparedTable, subject: str) -> None:
    model = table.model_id
    body = {"request_id": f"{model}-{subject}", "model_id": model, "subject_id": subject}
    for place in (12, 13, 14):
        table.live.pop(place, None)
    memory = table.platform
    memory.send_raw(json.dumps(body).encode(), key=model.encode())


def test_weights_are_summed_apart(memory: Platform) -> None:
    """Statistics have no weights; a rebuild adds up both sums."""
    pair = Pair(memory)
    pair.register()

    def insert(table: PreparedTable) -> None:
        values = {name: table.rows[name][3] for name in table.columns}
        values["joined"] = values["joined"].isoformat()
        row = {"id": "new", "values": values, "target": 2.5, "weight": 3.0}
        memory.send_change(table.model_id, "insert", row)

    pair.do(insert)
    pair.check_sums()
    assert all(memory.load(model).meta.rows_live == 121 for model in ("m", "other"))
    assert SUMS_FAULT not in memory.compute_refresh(memory.ordered("m", REBUILD)).reason
    pair.refresh()
    pair.do(lambda table: memory.send(table.model_id, "new"))
    pair.refresh()


def test_a_category_that_no_row_had_is_refused(memory: Platform) -> None:
    pair = Pair(memory)
    pair.register()
    values = {name: pair.m.rows[name][3] for name in pair.m.columns}
    values["joined"] = values["joined"].isoformat()
    row = {"id": "new", "values": {**values, "town": "Nowhere"}, "target": 2.5}
    requests = [(memory.send_change(model, "insert", row), model) for model in ("m", "other")]
    memory.drain()
    finals = [memory.final(request, model) for request, model in requests]
    assert finals[0].code == finals[1].code
    assert finals[0].status == "REJECTED"


def test_a_store_that_went_back_is_brought_up_to_date(memory: Platform) -> None:
    pair = Pair(memory)
    pair.register()
    early = backup(memory)
    pair.do(lambda table: table.delete(5, 6))
    pair.change("correct", 9, seed=4)
    restore(memory, early)
    succeed(memory)
    pair.do(lambda table: table.delete(10))
    pair.refresh()


def test_a_model_that_lost_its_sums_gets_them_again_from_its_files(memory: Platform) -> None:
    pair = Pair(memory)
    pair.register()
    early = backup(memory, "m")
    pair.do(lambda table: table.delete(5))
    pair.refresh()
    pair.do(lambda table: table.delete(6))
    restore(memory, early, "m")
    succeed(memory)
    memory.drain()
    assert memory.load("m").stream.solution is None
    memory.refresh("m", REBUILD)
    memory.refresh("other", REBUILD)
    assert np.array_equal(memory.load("m").published, memory.load("other").published)
    pair.m.delete(11)
    memory.drain()
    pair.m.check()
    check_row_files(memory)


def test_whoever_verifies_reads_the_files_in_blocks(memory: Platform) -> None:
    pair = Pair(memory)
    pair.register()
    pair.do(lambda table: table.delete(1, 2))
    pair.change("correct", 7, seed=2)
    ours, theirs = (verify(memory.store, model) for model in ("m", "other"))
    assert ours.holds
    assert ours.rows_live == theirs.rows_live == 118
    assert ours.bound == theirs.bound
    assert ours.distance <= 1e-12 * np.linalg.norm(memory.load("m").published)
    digests = [verify_digest(memory.store, model) for model in ("m", "other")]
    assert digests[0].equal
    assert digests[0].refitted == digests[1].refitted
    for model in ("m", "other"):
        assert all(found.ok for found in check(memory.store, None, model))


def test_a_replacement_names_the_categories_that_are_left(memory: Platform) -> None:
    """Only rows that were deleted have the town that is not named any more."""
    columns: Columns = {"a": Numeric(), "town": OneHot()}
    pair = Pair(memory, columns, n=60)
    for table in (pair.m, pair.other):
        table.rows["town"] = table.rows["town"].copy()
        table.rows["town"][:] = np.where(np.arange(60) % 2, "Oslo", "Rome")
        table.rows["town"][3] = "Bergen"
    pair.register()
    assert "town_Bergen" in memory.load("m").meta.config.feature_names
    pair.do(lambda table: table.delete(3))
    with pytest.raises(InvalidData, match="Bergen"):
        pair.m.register(replace_model=True)
    for table in (pair.m, pair.other):
        table.register(replace_model=True, allow_change=True)
    assert memory.load("m").meta.config.feature_names == ("a", "town_Oslo", "town_Rome")
    pair.check()
    pair.do(lambda table: table.delete(4))


def test_a_number_that_is_missing_is_noticed_where_none_can_be(memory: Platform) -> None:
    memory.register("m", exact_sums=True, rows_url=memory.folder())
    meta = memory.load("m").meta
    bucket = next(memory.store.row_files.every(meta))
    bucket.rows.X[1, 0] = np.nan
    with pytest.raises(CorruptState, match="a feature of a row is missing"):
        as_model_has(meta.config, bucket)


def test_too_many_categories_are_refused_and_leave_nothing(memory: Platform) -> None:
    columns: Columns = {"a": Numeric(), "town": OneHot()}
    rows = pipelines.draw_rows(columns, 1100, np.random.default_rng(0))
    for n, message in ((150, "at most 200 coefficients"), (1100, "more than 1,000")):
        url = memory.folder()
        towns = np.array([f"town {i}" for i in range(n)], dtype=object)
        few: pipelines.Rows = {"a": rows["a"][:n], "town": towns}
        table = PreparedTable(
            memory,
            columns,
            rows=few,
            y=np.arange(n, dtype=np.float64),
            exact_sums=True,
            rows_url=url,
        )
        with pytest.raises(InvalidData, match=message):
            table.register()
        assert not [path for path in Path(url).rglob("*") if path.is_file()]
