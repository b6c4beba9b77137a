"""Audits of rows in files: as of rows in the store, of one version, block by block."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from lethe.consumers.audit import verify as module
from lethe.consumers.audit.digest_check import verify_digest
from lethe.consumers.audit.health.checks import Check
from lethe.consumers.audit.health.models import check_model
from lethe.consumers.audit.summaries import summaries
from lethe.consumers.audit.verify import Verification, verify
from lethe.consumers.registration.in_files import FileRegistrar
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.subscriber.published import published_of
from lethe.engine.errors import CorruptState, RowsMissing
from lethe.engine.fit.objective import Kind, Rows
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import passes, writer
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.store import ModelStore
from tests.support.platform import Platform

T = TypeVar("T")


@pytest.fixture
def url(memory: Platform, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registered model ``m`` of several buckets, and where its files lie."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(passes, "BLOCK_BYTES", 4096)
    url = memory.folder()
    memory.register("m", method="exact", exact_sums=True, rows_url=url)
    return Path(url)


@pytest.mark.parametrize(
    "family", ["benign", "badly_scaled", "several_outputs", "rank_deficient", "high_leverage"]
)
def test_it_says_what_it_says_of_rows_in_the_store(
    memory: Platform, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    memory.register("m", family, method="exact", exact_sums=True, rows_url=memory.folder())
    memory.register("other", family, method="exact", exact_sums=True)
    for model in ("m", "other"):
        memory.delete(model, 1, 2, 7)
    ours, theirs = verify(memory.store, "m"), verify(memory.store, "other")
    for one in (ours, theirs):
        assert one.holds
        assert (one.state.version, one.rows_live) == (1, len(memory.data["m"].X) - 3)
    assert abs(ours.distance - theirs.distance) <= ours.residual + theirs.residual
    digest = verify_digest(memory.store, "m")
    assert digest.equal
    assert digest.rows == ours.rows_live


@pytest.mark.usefixtures("url")
def test_parameters_that_are_of_other_rows_are_noticed(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, theta = published_of(memory.load())
    monkeypatch.setattr(module, "published_of", lambda _: (event, theta * (1 + 1e-12)))
    assert not verify(memory.store, "m").holds
    monkeypatch.setattr(ModelStore, "deleted_after", lambda *_, **__: ["row-5"])
    with pytest.raises(CorruptState, match="files have 119 of its live rows and 120 should"):
        verify(memory.store, "m")


@pytest.mark.parametrize("family", ["benign", "several_outputs"])
def test_check_and_summary_say_what_they_say_of_rows_in_the_store(
    memory: Platform, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.register("m", family, method="exact", exact_sums=True, rows_url=memory.folder())
    memory.register("other", family, method="exact", exact_sums=True)
    for model in ("m", "other"):
        memory.delete(model, 1, 2, 7)
    said = [
        {
            name: (one.rows, one.coefficients.tolist(), one.standard_errors.tolist())
            for name, one in summaries(memory.store, model, level=0.95, covariance="sampling")[
                1
            ].items()
        }
        for model in ("m", "other")
    ]
    assert said[0] == said[1]

    def drift(model: str) -> Check:
        [found] = [c for c in check_model(memory.store, None, model) if "drift" in c.subject]
        return found

    assert (drift("m").ok, drift("m").detail) == (True, drift("other").detail)
    each = Buckets.each

    def others(
        buckets: Buckets, kernel: Callable[[Rows], T], **options: Any
    ) -> Iterator[tuple[int, T]]:
        return each(buckets, lambda rows: kernel(replace(rows, y=rows.y + 1e-9)), **options)

    monkeypatch.setattr(Buckets, "each", others)
    assert not drift("m").ok
    assert not verify(memory.store, "m").holds


# -- meanwhile -------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, done: Callable[[int], None]) -> None:
    """Have something done whenever a pass over the rows has read its first block."""
    numbers, each = iter(range(1, 99)), Buckets.each

    def passed(*args: Any, **options: Any) -> Iterator[tuple[int, Any]]:
        for i, found in enumerate(each(*args, **options)):
            yield found
            if i == 0:
                done(next(numbers))

    monkeypatch.setattr(Buckets, "each", passed)


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("check", [verify, verify_digest])
def test_rows_that_are_deleted_while_it_reads_are_those_of_its_version(
    memory: Platform, check: Callable[..., Verification], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.delete("m", 5)
    seen, deleted_after = list[int](), ModelStore.deleted_after

    def delete(number: int) -> None:
        seen.append(number)
        memory.delete("m", 10 * number, 10 * number + 1)

    def a_little_later(*args: Any, **options: Any) -> list[str]:
        memory.delete("m", 90)
        return deleted_after(*args, **options)

    meanwhile(monkeypatch, delete)
    monkeypatch.setattr(ModelStore, "deleted_after", a_little_later)
    checked = check(memory.store, "m")
    assert checked.holds if isinstance(checked, Verification) else checked.equal
    assert checked.state.version == 1
    assert 2 <= len(seen) <= (3 if check is verify else 2)
    assert memory.load().version == 2 + len(seen)


@pytest.mark.usefixtures("url")
def test_it_begins_again_if_a_refresh_removes_its_files(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.delete("m", *range(20))

    def refresh(number: int) -> None:
        if number == 2:
            memory.delete("m", 50)
            memory.refresh("m", RefreshSize.REBUILD)

    meanwhile(monkeypatch, refresh)
    verified = verify(memory.store, "m")
    assert verified.holds
    assert verified.state.version == memory.load().version > 1
    assert verified.rows_live == len(memory.data["m"].X) - 21


def test_files_that_are_lost_are_named(memory: Platform, url: Path) -> None:
    for path in url.rglob("*"):
        if path.is_file():
            path.unlink()
    memory.store.close()
    memory.store = memory.new_store()
    with pytest.raises(RowsMissing, match="is missing at"):
        verify(memory.store, "m")


# -- memory ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawn:
    """A table of random rows, which are drawn when they are read."""

    rows: int
    names: tuple[str, ...]

    def blocks(self) -> Iterator[TrainingData]:
        rng = np.random.default_rng(1)
        for start in range(0, self.rows, 20_000):
            ids = tuple(f"row-{i}" for i in range(start, start + 20_000))
            X = rng.standard_normal((20_000, len(self.names)))
            y = X.sum(axis=1, keepdims=True) + rng.standard_normal((20_000, 1))
            yield TrainingData(ids, X, y, self.names, ("y",), {})


def test_it_takes_a_fraction_of_the_memory_that_the_rows_would(memory: Platform) -> None:
    table = _Drawn(600_000, tuple(f"x{j}" for j in range(20)))
    config = ModelConfig(
        model_id="m",
        kind=Kind.LINEAR,
        method="exact",
        ridge=1.0,
        fit_intercept=True,
        error_budget=0.05,
        feature_names=table.names,
        target_names=("y",),
        exact_sums=True,
        rows_url=memory.folder(),
    )
    registrar = FileRegistrar(memory.store, memory.producer, memory.reader, memory.seals)
    registrar.register_in_files(config, table)
    before = pa.default_memory_pool()
    arrow = pa.proxy_memory_pool(before)
    pa.set_memory_pool(arrow)
    tracemalloc.start()
    try:
        verified = verify(memory.store, "m")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert verified.holds
    assert verified.rows_live == table.rows
    whole = 8 * table.rows * (len(table.names) + 3)
    assert arrow.max_memory() > 0
    assert most + arrow.max_memory() < whole / 4
