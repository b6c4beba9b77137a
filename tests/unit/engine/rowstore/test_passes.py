"""Passes over rows in files: the same bits whoever computes them, and clear errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from lethe.consumers.audit.oracle import refit
from lethe.engine.errors import ClusterUnavailable, CorruptState, InvalidData, RowsMissing
from lethe.engine.exact.digits import units_of
from lethe.engine.exact.sums import RunningSums, Sums, largest_of
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.rowstore import passes, writer
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory, files_at
from lethe.engine.rowstore.passes import Block, Pass, Source, Workers
from tests.support.row_files import Table, write

T = TypeVar("T")
_RNG = np.random.default_rng(1)
N, P = 900, 3
TABLE = Table(
    tuple(f"row-{i}" for i in range(N)),
    None,
    Rows(_RNG.standard_normal((N, P)), _RNG.standard_normal((N, 1)), _RNG.random(N) + 0.5),
)


class Elsewhere:
    """Computes tasks in threads and in any order, with everything sent as bytes."""

    def map(
        self, compute: Callable[[Sequence[Block]], T], tasks: Iterable[Sequence[Block]]
    ) -> Iterator[T]:
        sent = [pickle.dumps((compute, task)) for task in tasks]
        with ThreadPoolExecutor(4) as threads:
            results = [threads.submit(computed, data) for data in reversed(sent)]
            for result in reversed(results):
                yield pickle.loads(result.result())  # noqa: S301 - what this test pickled


def computed(data: bytes) -> bytes:
    compute, task = pickle.loads(data)  # noqa: S301 - what this test pickled
    return pickle.dumps(compute(task))


class Whole:
    """The rows of buckets, as an audit reads them."""

    def __init__(self, buckets: Buckets) -> None:
        self.buckets = buckets

    def __len__(self) -> int:
        return self.buckets.manifest.rows

    @property
    def outputs(self) -> int:
        return self.buckets.manifest.m

    def blocks(self) -> Iterator[Rows]:
        raise AssertionError("not read here")

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        return (result for _, result in self.buckets.each(kernel, intercept=True))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Rows in many buckets and many blocks."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(passes, "BLOCK_BYTES", 4096)
    return write(Directory(tmp_path), TABLE)


def bits(found: list[tuple[int, Any]]) -> list[bytes]:
    arrays = (one.entries.places if isinstance(one, Sums) else one for _, one in found)
    return [array.tobytes() for array in arrays]


def opened(path: Path, root: str, workers: Workers | None = None) -> Buckets:
    return Buckets(Directory(path), root, "model 'm'", workers)


def test_the_same_bits_whoever_computes_a_pass(root: str, tmp_path: Path) -> None:
    here, there = opened(tmp_path, root), opened(tmp_path, root, Elsewhere())
    assert len(list(here.each(len, intercept=True))) > 5
    refits = [refit(Kind.LINEAR, np.ones(P + 1), Whole(buckets)) for buckets in (here, there)]
    assert refits[0].theta.tobytes() == refits[1].theta.tobytes()
    assert refits[0].residual == refits[1].residual
    unit = units_of(largest_of(Rows(np.hstack([TABLE.rows.X, np.ones((N, 1))]), *_rest(TABLE))))
    for kernel in (largest_of, partial(Sums.of, unit=unit)):
        found = [
            list(buckets.each(kernel, intercept=True, without_rows=TABLE.ids[:500]))
            for buckets in (here, there)
        ]
        assert bits(found[0]) == bits(found[1])
        assert sum(rows for rows, _ in found[0]) == 400


def test_blocks_of_rows_that_become_wider_have_fewer_rows(root: str, tmp_path: Path) -> None:
    """What a one-hot column makes of a block fits into memory, too."""
    buckets = opened(tmp_path, root)
    few, more = (
        [rows for rows, _ in buckets.each(len, intercept=False, features=features)]
        for features in (P, 40 * P)
    )
    assert sum(few) == sum(more) == N
    assert max(more) < max(few)
    assert few == [rows for rows, _ in buckets.each(len, intercept=False)]


def test_sums_of_parts_are_the_sums_of_all(root: str, tmp_path: Path) -> None:
    rows = Rows(np.hstack([TABLE.rows.X, np.ones((N, 1))]), *_rest(TABLE))
    unit = units_of(largest_of(rows))
    running = RunningSums(unit, 1)
    for _, part in opened(tmp_path, root).each(partial(Sums.of, unit=unit), intercept=True):
        running.add_sums(part)
    assert running.sums().equal(Sums.of(rows, unit))
    with pytest.raises(AssertionError, match="other units"):
        running.add_sums(Sums.of(rows, unit + 1))


def _rest(table: Table) -> tuple[Array, Array]:
    return table.rows.y, table.rows.weight


class OnAnotherMachine(Elsewhere):
    """Sees none of the files."""

    def map(
        self, compute: Callable[[Sequence[Block]], T], tasks: Iterable[Sequence[Block]]
    ) -> Iterator[T]:
        assert isinstance(compute, Pass)
        source = replace(compute.source, files=Directory(Path("/nowhere")))
        moved: Any = replace(compute, source=source)
        return super().map(moved, tasks)


def test_workers_that_do_not_see_the_files_are_not_taken_for_lost_files(
    root: str, tmp_path: Path
) -> None:
    buckets = opened(tmp_path, root, OnAnotherMachine())
    with pytest.raises(ClusterUnavailable, match=r"does not see the files .* mount that directory"):
        list(buckets.each(len, intercept=True))
    Path(tmp_path, buckets.manifest.buckets[0].digest).unlink()  # a refresh has removed it
    with pytest.raises(RowsMissing):
        list(buckets.each(len, intercept=True))


def test_a_worker_believes_no_other_bytes(root: str, tmp_path: Path) -> None:
    buckets = opened(tmp_path, root, Elsewhere())
    victim = Path(tmp_path, buckets.manifest.buckets[3].digest)
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptState, match="has another content than its name says"):
        list(buckets.each(len, intercept=True))


def test_a_worker_of_another_version_computes_nothing(root: str, tmp_path: Path) -> None:
    buckets = opened(tmp_path, root)
    manifest = buckets.manifest
    source = Source(Directory(tmp_path), "model 'm'", manifest.p, manifest.m)
    older = Pass(source, len, intercept=True, left_out=frozenset(), version="0.0.1")
    with pytest.raises(InvalidData, match=r"and this process 0\.0\.1; install the same version"):
        older([manifest.buckets[:1]])


def test_files_of_object_storage_are_opened_anew_with_the_credentials_of_who_opens_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-sent")
    sent = pickle.dumps(files_at("s3://place/below?region=eu-north-1", "m", "one"))
    assert b"place/below" in sent
    assert b"not-to-be-sent" not in sent
    assert pickle.loads(sent).url == "s3://place/below/m/one"  # noqa: S301 - what this test pickled
