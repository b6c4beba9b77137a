"""Passes over rows in files on a real Dask: the same bits, and what becomes of lost workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.passes import dask_cluster
from lethe.consumers.passes.dask_cluster import DaskWorkers
from lethe.engine.errors import ClusterUnavailable
from lethe.engine.exact.sums import largest_of
from lethe.engine.fit.objective import Rows
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import passes, writer
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory
from lethe.engine.rowstore.passes import Workers
from lethe.engine.store.membership import registered_models
from lethe.engine.store.offline.in_files import fit_files
from lethe.engine.store.row_files import RowFilesOfModels
from tests.support.extras import need
from tests.support.oracles import relative
from tests.support.platform import Platform
from tests.support.row_files import Table, write
from tests.support.servers import free_port


@pytest.fixture(scope="module")
def two() -> Iterator[DaskWorkers]:
    """Two processes of this machine."""
    need("distributed")
    workers = DaskWorkers(None, 2)
    yield workers
    workers.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets and blocks of a few rows."""
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(passes, "BLOCK_BYTES", 4096)


def rows_in(path: Path) -> str:
    rng = np.random.default_rng(1)
    rows = Rows(rng.standard_normal((4000, 3)), rng.standard_normal((4000, 1)), np.ones(4000))
    return write(Directory(path), Table(tuple(map(str, range(4000))), None, rows))


def found(path: Path, root: str, workers: Workers | None) -> list[tuple[int, bytes]]:
    buckets = Buckets(Directory(path), root, "model 'm'", workers)
    return [(n, one.tobytes()) for n, one in buckets.each(largest_of, intercept=True)]


@pytest.mark.usefixtures("small")
def test_an_audit_and_a_rebuild_are_the_same_to_the_last_bit(
    memory: Platform, two: DaskWorkers
) -> None:
    memory.register("m", method="exact", exact_sums=True, rows_url=memory.folder())
    memory.delete("m", 1, 2, 7)
    alone = verify(memory.store, "m")
    memory.store.row_files = RowFilesOfModels(two)
    on_dask = verify(memory.store, "m")
    assert (alone.distance, alone.residual) == (on_dask.distance, on_dask.residual)
    worker = memory.pair[1]
    worker._store.row_files = RowFilesOfModels(two)
    memory.refresh("m", RefreshSize.REBUILD)
    after = memory.load()
    assert after.meta.error.kind == "rounded"
    assert "digit" not in str(after.meta)  # the sums were compared, and are the same
    assert verify(memory.store, "m").holds


@pytest.mark.usefixtures("small")
def test_a_worker_that_is_killed_costs_its_blocks_only(tmp_path: Path, two: DaskWorkers) -> None:
    root = rows_in(tmp_path)
    alone = found(tmp_path, root, None)
    buckets = Buckets(Directory(tmp_path), root, "model 'm'", two)
    on_dask = []
    for i, (n, one) in enumerate(buckets.each(largest_of, intercept=True)):
        on_dask.append((n, one.tobytes()))
        if i == 3:
            pids = two._client.run(os.getpid)
            os.kill(next(iter(pids.values())), signal.SIGKILL)
    assert len(alone) > 20
    assert on_dask == alone
    assert found(tmp_path, root, two) == alone


# -- a cluster at an address -----------------------------------------------------------------------


def process(kind: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **environment})


@pytest.fixture
def scheduler() -> Iterator[tuple[str, list[subprocess.Popen[Any]]]]:
    """The address of a scheduler, and its process; what is added to the list ends with it."""
    need("distributed")
    port = free_port()
    processes = [process("scheduler", "--host", "127.0.0.1", "--port", str(port))]
    yield f"tcp://127.0.0.1:{port}", processes
    for one in processes:
        one.kill()
        one.wait()


@pytest.mark.usefixtures("small")
def test_a_cluster_that_goes_is_said_in_one_line_and_used_again_once_it_is_back(
    tmp_path: Path,
    scheduler: tuple[str, list[subprocess.Popen[Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, processes = scheduler
    root = rows_in(tmp_path)
    workers = DaskWorkers(address)
    monkeypatch.setattr(dask_cluster, "_SILENCE_SECONDS", 1)
    processes.append(process("worker", address, "--no-nanny", "--nthreads", "1"))
    alone = found(tmp_path, root, None)
    try:
        assert found(tmp_path, root, workers) == alone
        processes[1].kill()
        processes[1].wait()
        with pytest.raises(ClusterUnavailable, match=r"has no worker left; start some"):
            found(tmp_path, root, workers)
        processes.append(process("worker", address, "--no-nanny", "--nthreads", "1"))
        assert found(tmp_path, root, DaskWorkers(address)) == alone
        each = Buckets(Directory(tmp_path), root, "model 'm'", workers).each
        results = each(largest_of, intercept=True)
        next(results)
        processes[0].kill()
        processes[0].wait()
        with pytest.raises(ClusterUnavailable, match=r"check the scheduler"):
            list(results)
        monkeypatch.setattr(dask_cluster, "_CONNECT_SECONDS", 1)
        with pytest.raises(ClusterUnavailable, match=r"Timed out .*; check the address"):
            found(tmp_path, root, workers)
    finally:
        workers.close()


class OfAnotherVersion:
    """What this process says its version is; sent elsewhere, it is what tells the real one."""

    def __call__(self, _: str) -> str:
        return "99.0"

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve_name, ("importlib.metadata.version",)


def test_no_worker_of_another_version_is_given_work(
    tmp_path: Path, two: DaskWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = rows_in(tmp_path)
    monkeypatch.setattr(dask_cluster, "version", OfAnotherVersion())
    with pytest.raises(ClusterUnavailable, match=r"has lethe-engine 0.*, and this process 99\.0"):
        found(tmp_path, root, two)


WORKER_KILLS, SCHEDULER_KILLS = 20, 5


class Cluster:
    """A scheduler and two workers that are killed and started again, worker after worker."""

    def __init__(self, address: str, processes: list[subprocess.Popen[Any]]) -> None:
        self._address = address
        self._processes = processes
        self.kills = {"worker": 0, "scheduler": 0}
        self._stop = threading.Event()
        self._workers = [self._worker() for _ in range(2)]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Cluster:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def done(self) -> bool:
        return self.kills == {"worker": WORKER_KILLS, "scheduler": SCHEDULER_KILLS}

    def _worker(self) -> subprocess.Popen[Any]:
        one = process("worker", self._address, "--no-nanny", "--nthreads", "1")
        self._processes.append(one)
        return one

    def _run(self) -> None:
        while not self.done and not self._stop.wait(1.0):
            turn = sum(self.kills.values()) % 5 == 4 and self.kills["scheduler"] < SCHEDULER_KILLS
            kind = "scheduler" if turn else "worker"
            killed = self._processes[0] if turn else self._workers[0]
            killed.kill()
            killed.wait()
            self.kills[kind] += 1
            if turn:
                where = self._address.rpartition(":")[2]
                self._processes[0] = process("scheduler", "--host", "127.0.0.1", "--port", where)
                self._workers = [self._worker() for _ in range(2)]  # its own end with it
            else:
                self._workers = [self._workers[1], self._worker()]


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("small")
def test_whatever_is_killed_a_fit_is_the_same_or_nothing(
    memory: Platform, scheduler: tuple[str, list[subprocess.Popen[Any]]]
) -> None:
    """Registrations and rebuilds while a cluster's processes are killed: 20 workers, 5 schedulers.

    What was broken off is ordered again, as a refresh worker does, and each answer is that of one
    process.
    """
    address, processes = scheduler
    workers = DaskWorkers(address)
    for store in (memory.store, memory.pair[1]._store):
        store.row_files = RowFilesOfModels(workers)
    done, broken_off = 0, 0
    try:
        with Cluster(address, processes) as cluster:
            while not cluster.done or done < 5:
                name = f"m{done}"
                try:
                    memory.register(
                        name, "benign", "logistic", method="exact", rows_url=memory.folder()
                    )
                except ClusterUnavailable:
                    broken_off += 1
                    assert name not in registered_models(memory.store.client)
                    continue
                memory.delete(name, 1, 2, 7)
                memory.order(name, RefreshSize.REBUILD)
                while not memory.pair[1].idle() or not rebuilt(memory, name):
                    try:
                        memory.drain()
                    except ClusterUnavailable:
                        broken_off += 1
                        memory.pair[1].recover()
                done += 1
                check_fit(memory, name)
    finally:
        workers.close()
    assert 0 < broken_off <= SCHEDULER_KILLS + WORKER_KILLS


def rebuilt(platform: Platform, model: str) -> bool:
    sizes = [v.refresh.size for v in platform.versions(model) if v.refresh is not None]
    return sizes == [RefreshSize.REBUILD]


def check_fit(platform: Platform, model: str) -> None:
    """The model's parameters are what one process fits to its files."""
    state = platform.load(model)
    alone = RowFilesOfModels().of(state.meta)
    assert alone is not None
    fitted = fit_files(state.meta.config, alone, state.meta.generation).new.stream
    assert relative(state.stream.published, fitted.published) < 1e-9
