"""Whether anybody works: `lethe status` and `lethe check` say who, and say when nobody does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
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
