"""Each refresh is a run of OpenLineage: begun, and then complete, failed or aborted."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lethe.engine.errors import NotConverged, StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from tests.support.extras import need
from tests.support.platform import Platform


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Configure OpenLineage as its docs say, with a file; return what reads that."""
    need("openlineage.client")
    path = tmp_path / "events.jsonl"
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(path))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


def refreshed(platform: Platform) -> str:
    """Register a model, and rebuild it by a worker that reports; return the job's id."""
    from lethe.consumers.service.telemetry.lineage import RefreshLineage

    platform.register("m")
    event = platform.order("m", RefreshSize.REBUILD)
    refresher = platform.refresh_worker(lineage=RefreshLineage())
    platform.drain(platform.deletion_worker(), refresher)
    return event.job_id


def test_a_refresh_is_a_run_from_rows_to_a_model(
    platform_on: Callable[..., Platform], events: Callable[[], list[dict[str, Any]]]
) -> None:
    platform = platform_on("memory")
    job_id = refreshed(platform)

    begun, done = events()
    assert (begun["eventType"], done["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == done["run"]["runId"]
    assert done["job"] == {"namespace": "lethe", "name": "refresh.m", "facets": {}}
    [rows], [model] = done["inputs"], done["outputs"]
    assert (rows["name"], rows["facets"]["version"]["datasetVersion"]) == ("m.rows", "0")
    assert (model["name"], model["facets"]["version"]["datasetVersion"]) == ("m", "1")
    tags = {tag["key"]: tag["value"] for tag in done["run"]["facets"]["tags"]["tags"]}
    del tags["openlineage_client_version"]
    assert tags == {
        "job_id": job_id, "from_version": "0", "size": "rebuild", "reason": "ordered",
    }  # fmt: skip
    version = platform.versions("m")[-1]
    assert version.refresh is not None
    assert (version.refresh.job_id, version.generation) == (job_id, 1)


def test_a_refresh_that_fails_says_why(
    platform_on: Callable[..., Platform],
    events: Callable[[], list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise NotConverged("the fit did not converge")

    monkeypatch.setattr("lethe.consumers.workers.refresh_worker.run_job", fail)
    refreshed(platform_on("memory"))
    kinds = [event["eventType"] for event in events()]
    assert kinds[:2] == ["START", "FAIL"]
    error = events()[1]["run"]["facets"]["errorMessage"]
    assert error["message"] == "the fit did not converge"


def test_a_refresh_that_a_server_broke_off_is_aborted_and_is_the_same_run_when_begun_again(
    platform_on: Callable[..., Platform], events: Callable[[], list[dict[str, Any]]]
) -> None:
    from lethe.consumers.service.telemetry.lineage import RefreshLineage

    broken: list[int] = []

    def break_off(_: str) -> None:
        if not broken:
            broken.append(1)
            raise StoreUnavailable("the store has gone away")

    platform = platform_on("memory")
    platform.register("m")
    platform.order("m", RefreshSize.REBUILD)
    worker = platform.refresh_worker(lineage=RefreshLineage(), at_step=break_off)
    for _ in range(50):
        if not broken:
            with contextlib.suppress(StoreUnavailable):
                worker.run_once(0.0)
    worker.recover()
    platform.drain(platform.deletion_worker(), worker)
    found = events()
    assert [event["eventType"] for event in found] == ["START", "ABORT", "START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in found}) == 1


def test_a_receiver_that_is_not_there_stops_no_refresh(
    platform_on: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    need("openlineage.client")
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    platform = platform_on("memory")
    job_id = refreshed(platform)
    version = platform.versions("m")[-1]
    assert version.refresh is not None
    assert version.refresh.job_id == job_id
