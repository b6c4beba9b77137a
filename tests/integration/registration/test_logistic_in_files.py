"""Models without exact sums whose rows are in files: their dual rows come from the factor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import writer
from lethe.engine.store.offline.snapshot import take_snapshot, with_enough_sentinels
from tests.support.invariants import check_model, check_row_files
from tests.support.oracles import distance
from tests.support.platform import Platform
from tests.support.tables import Table

CASES = [
    ("logistic", "benign", "pru"),
    ("logistic", "benign", "exact"),
    ("logistic", "classes", "pru"),
    ("logistic", "no_intercept", "pru"),
    ("linear", "benign", "pru"),
    ("linear", "high_leverage", "exact"),
]


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(writer, "INDEX_ROWS", 16)


def near(platform: Platform, ours: str = "m", theirs: str = "other") -> None:
    """Check that two models publish the same, up to what their fits differ by."""
    one, other = platform.load(ours), platform.load(theirs)
    size = float(np.linalg.norm(other.published))
    assert float(np.linalg.norm(one.published - other.published)) <= 1e-9 * size
    assert one.meta.class_counts == other.meta.class_counts
    assert one.meta.rows_live == other.meta.rows_live


@pytest.mark.parametrize(("kind", "family", "method"), CASES)
def test_versions_are_those_of_a_model_whose_rows_are_in_the_store(
    memory: Platform, kind: str, family: str, method: str
) -> None:
    memory.register("m", family, kind, method=method, rows_url=memory.folder())
    memory.register("other", family, kind, method=method)
    near(memory)
    for rows in ((1, 2), (7,), (0, 9, 11)):
        for model in ("m", "other"):
            memory.send_index(model, *rows)
        memory.drain()
        near(memory)
        one, other = (memory.load(model).meta.error for model in ("m", "other"))
        if kind == "logistic":  # of others it is rounding alone, in which the fits differ
            assert one.value == pytest.approx(other.value, rel=1e-3, abs=1e-12)
    for model in ("m", "other"):
        memory.refresh(model, RefreshSize.REBUILD)
    near(memory)
    check_model(memory)
    check_row_files(memory)
    found = verify(memory.store, "m")
    assert found.distance <= found.bound + found.residual


@pytest.mark.parametrize(
    ("kind", "family"), [("logistic", "benign"), ("logistic", "classes"), ("linear", "benign")]
)
def test_mixed_requests_over_rebuilds_are_as_if_refitted(
    memory: Platform, kind: str, family: str
) -> None:
    memory.register("m", family, kind, rows_url=memory.folder(), budget=10.0)
    table = Table(memory, seed=3)
    draw = np.random.default_rng(5)
    for turn in range(6):
        names = list(table.rows)
        chosen = [names[i] for i in draw.choice(len(names), 4, replace=False)]
        table.change("insert", *(table.row(f"new-{turn}-{i}") for i in range(draw.integers(1, 4))))
        table.change("correct", table.row(chosen[0]))
        table.delete(*chosen[1:])
        memory.drain()
        state = memory.load()
        away, error = distance(state.stream.published, table.retrained()), state.meta.error
        assert error.bound is None or away <= error.bound
        assert error.value is None or away <= 10 * error.value
        check_row_files(memory)
        if turn % 2:
            memory.refresh("m", RefreshSize.REBUILD)
            assert memory.load("m").meta.rows_in_store == 0
            table.check()


def test_the_sample_is_drawn_anew_from_the_files(memory: Platform) -> None:
    memory.register("m", "benign", "logistic", rows_url=memory.folder())
    state = memory.load()
    kept = frozenset(state.sentinels.ids[:5])
    few = state.sentinels.without(frozenset(state.sentinels.ids) - kept)
    object.__setattr__(state, "sentinels", few)
    drawn = with_enough_sentinels(memory.store, state).sentinels
    assert len(drawn.ids) > 5
    live = take_snapshot(memory.store, "m")
    place = {row: i for i, row in enumerate(live.ids)}
    index = [place[row] for row in drawn.ids]
    assert np.array_equal(live.rows.X[index], drawn.rows.X)
    np.testing.assert_allclose(live.W[index], drawn.W, rtol=1e-9, atol=1e-15)


def test_a_deleted_sentinel_is_not_one_of_the_state_that_is_read(memory: Platform) -> None:
    memory.register("m", "benign", "logistic", rows_url=memory.folder())
    assert memory.load().generation.objective.kind is Kind.LOGISTIC
    assert "row-3" in memory.load().sentinels.ids
    memory.delete("m", 3)
    assert "row-3" not in memory.store.load_model("m").sentinels.ids


def test_without_the_factor_the_model_halts_and_nothing_is_lost(memory: Platform) -> None:
    memory.register("m", "benign", "logistic", rows_url=memory.folder())
    factor = memory.load().generation_keys.factor
    kept = memory.raw().get(factor)
    memory.raw().delete(factor)
    halting = memory.deletion_worker()
    request = memory.send_index("m", 60)
    for _ in range(3):
        halting.run_once(0.0)
    assert "m" in halting._halts
    assert request not in memory.finals()
    with pytest.raises(CorruptState, match="factor"):
        memory.store.factors.of(memory.load())
    halting.close()
    memory.raw().set(factor, kept or b"")
    memory.drain()
    assert memory.final(request).status == "APPLIED"


def test_files_of_a_logistic_model_are_written_without_what_was_deleted(
    memory: Platform,
) -> None:
    url = Path(memory.folder())
    memory.register("m", "benign", "logistic", rows_url=str(url))
    row = np.asarray(memory.data["m"].X[5]).tobytes()
    copies = memory.raw().hget(memory.load().generation_keys.fixed, "sentinel_rows")
    assert row in (copies or b"")
    memory.delete("m", 5)
    assert any(row in path.read_bytes() for path in url.rglob("*") if path.is_file())
    memory.refresh("m", RefreshSize.REBUILD)
    assert not any(row in path.read_bytes() for path in url.rglob("*") if path.is_file())
    copies = memory.raw().hget(memory.load().generation_keys.fixed, "sentinel_rows")
    assert copies
    assert row not in copies
