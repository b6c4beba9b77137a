"""Passes over rows in files on a real Spark session of this machine: the same bits."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.passes import spark
from lethe.consumers.passes.spark import SparkWorkers
from lethe.engine.errors import ClusterUnavailable, RowsMissing
from lethe.engine.fit.objective import Kind, Objective
from lethe.engine.fit.total import SumsAt
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory
from lethe.engine.store.offline.in_files import fit_files
from lethe.engine.store.row_files import RowFilesOfModels
from tests.integration.passes.test_dask import found, rows_in, small
from tests.support.extras import need
from tests.support.platform import Platform

__all__ = ["small"]
pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("small")]


@pytest.fixture(scope="module")
def two() -> Iterator[SparkWorkers]:
    """Two cores of this machine; a task that is lost is computed again."""
    need("pyspark")
    workers = SparkWorkers("local[2,3]")
    yield workers
    workers.close()


def test_a_fit_an_audit_and_a_rebuild_are_the_same_to_the_last_bit(
    memory: Platform, two: SparkWorkers
) -> None:
    for store in (memory.store, memory.pair[1]._store):
        store.row_files = RowFilesOfModels(two)
    memory.register("m", "benign", "logistic", method="exact", rows_url=memory.folder())
    memory.delete("m", 1, 2, 7)
    memory.refresh("m", RefreshSize.REBUILD)
    meta = memory.load("m").meta
    on_spark, alone = memory.store.row_files.of(meta), RowFilesOfModels().of(meta)
    assert on_spark is not None
    assert alone is not None
    fits = [fit_files(meta.config, buckets, 1).new.stream for buckets in (on_spark, alone)]
    assert fits[0].published.tobytes() == fits[1].published.tobytes()
    verified = verify(memory.store, "m")
    assert verified.holds
    memory.store.row_files = RowFilesOfModels()
    assert verified.distance == verify(memory.store, "m").distance


def test_a_process_that_is_killed_costs_its_blocks_only(tmp_path: Path, two: SparkWorkers) -> None:
    root = rows_in(tmp_path)
    alone = found(tmp_path, root, None)
    killed = tmp_path / "killed"
    tasks: list[Any] = [(i,) for i in range(9)]
    assert list(two.map(_Once(str(killed)), tasks)) == list(range(9))
    assert killed.exists()
    assert found(tmp_path, root, two) == alone


class _Once:
    """Ends the process that computes task 5 first."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, task: Sequence[Any]) -> Any:
        [number] = task
        if number == 5:
            try:
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return number
            os.kill(os.getpid(), signal.SIGKILL)
        return number


def test_errors_are_those_of_this_process(tmp_path: Path, two: SparkWorkers) -> None:
    root = rows_in(tmp_path)
    buckets = Buckets(Directory(tmp_path), root, "model 'm'", two)
    part = next(iter(buckets.manifest.buckets)).digest
    (tmp_path / part).unlink()
    with pytest.raises(RowsMissing, match=f"model 'm': file {part} of its rows is missing"):
        found(tmp_path, root, two)
    objective = Objective(Kind.LINEAR, np.ones(4))
    wrong = SumsAt(objective, np.zeros((9, 1)), curved=True)  # of another width than the rows
    (again := tmp_path / "again").mkdir()
    root = rows_in(again)
    with pytest.raises(ClusterUnavailable, match=r"Spark at local\[2,3\]: .* check"):
        list(Buckets(Directory(again), root, "model 'm'", two).each(wrong, intercept=True))
    assert found(again, root, two) == found(again, root, None)


def test_a_cluster_without_executors_is_said_in_one_line(
    tmp_path: Path, two: SparkWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = rows_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(spark, "_SILENCE_SECONDS", 0.01)
        patched.setattr(SparkWorkers, "_has_executor", lambda _self, _context: False)
        with pytest.raises(ClusterUnavailable, match="it has no executor; start some"):
            found(tmp_path, root, two)
    assert found(tmp_path, root, two) == found(tmp_path, root, None)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # PySpark leaves the pipes of what failed
@pytest.mark.parametrize("broken", ["no java", "no such cluster"])
def test_spark_that_cannot_be_reached_is_said_in_one_line(
    broken: str, two: SparkWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.close()  # a process has one session
    if broken == "no java":
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    workers = SparkWorkers("local[1]" if broken == "no java" else "nonsense://nowhere")
    with pytest.raises(ClusterUnavailable, match="check its name") as error:
        found(tmp_path, rows_in(tmp_path), workers)
    assert "\n" not in str(error.value)
    workers.close()
    del error
    gc.collect()
