"""Whether anybody works: `lethe status` and `lethe check` say who, and say when nobody does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.workers.leases import Lease, RefreshShown
from lethe.engine.store.layout.keys import WORKERS, worker_lease
from tests.support.command import Lethe
from tests.support.training import write

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_workers")]

FIT = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1")
ROLES = ["deletions", "erasures", "refresh"]


@pytest.fixture
def lethe(tmp_path: Path) -> Iterator[Lethe]:
    data = str(write(tmp_path / "rows.parquet", logistic=False))
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "churn", "--data", data, *FIT)
        yield lethe


def test_requests_that_wait_for_nobody_are_not_healthy(lethe: Lethe) -> None:
    assert "OK    workers: none, and nothing waits" in lethe("check").out
    lethe("delete", "churn", "--row", "u1")

    checked, status = lethe("check", code=1), lethe("status")

    assert "FAIL  workers: no living worker for deletions, and records wait: 1 in" in checked.out
    assert "workers: none" in status.out
    assert "WAITING: no living worker for deletions" in status.out

    with lethe.working() as worker:
        deadline = time.monotonic() + 120
        while True:
            document = lethe("status", "--json").document
            if document["lag"] == 0 and len(document["workers"]) == len(ROLES):
                break
            assert time.monotonic() < deadline, document
        assert [one["role"] for one in document["workers"]] == ROLES
        assert {one["pid"] for one in document["workers"]} == {worker.pid}
        assert document["unattended"] == []
        assert "OK    workers: deletions on " in lethe("check").out
        worker.terminate()
        worker.communicate(timeout=120)

    assert lethe("status", "--json").document["workers"] == []  # it has said goodbye
    lethe("check")


def test_status_shows_the_refreshes_that_run_and_wait(lethe: Lethe, tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    runs = RefreshShown(
        model_id="churn", job_id="j", reason="deferred", running=True, bytes=3.1e9, since=now
    )
    waits = runs.model_copy(update={"job_id": "k", "running": False, "bytes": 0.0})
    lease = Lease(
        role="refresh", host="here", pid=7, version="1", since=now, refreshes=(runs, waits)
    )
    with EmbeddedValkey(tmp_path / "valkey") as server, redis.Redis.from_url(server.url) as client:
        client.sadd(WORKERS, "one")
        client.set(worker_lease("one"), lease.model_dump_json())
        status, document = lethe("status"), lethe("status", "--json").document

    since = "since 2026-01-02T03:04:00.000Z"
    assert f"refresh: churn runs {since}, about 3,100 MB (deferred) on here (pid 7)" in status.out
    assert f"refresh: churn waits {since} (deferred) on here (pid 7)" in status.out
    first, second = document["refreshes"]
    assert (first["model_id"], first["running"], first["host"]) == ("churn", True, "here")
    assert (second["job_id"], second["running"], second["pid"]) == ("k", False, 7)
