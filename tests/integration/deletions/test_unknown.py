"""An error that is unknown: published as that, refreshed at once, and known afterwards."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Version
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.engine.refresh.size import RefreshSize
from tests.support.families import Data, make
from tests.support.invariants import check_model, true_error
from tests.support.platform import Platform

UNKNOWN = {"value": None, "kind": "unknown", "bound": None, "relative": None}


def mislabelled(seed: int = 0) -> tuple[Data, list[int]]:
    """Return separable rows of which one in fifteen has the wrong label, and which they are."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 6))
    y = (X @ rng.standard_normal(6) > 0).astype(np.float64)
    wrong = rng.permutation(300)[:20]
    y[wrong] = 1 - y[wrong]
    data = replace(
        make("no_intercept", "logistic"),
        X=X, y=y[:, None], weight=np.ones(300), ridge=1e-6, intercept=False,
    )  # fmt: skip
    return data, [int(i) for i in wrong]


@pytest.mark.parametrize("size", [RefreshSize.POLISH, RefreshSize.REBUILD])
def test_an_unknown_error_orders_a_refresh_in_its_commit_and_comes_out_known(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, size: RefreshSize
) -> None:
    price = math.inf if size is RefreshSize.POLISH else 0.0
    monkeypatch.setattr("lethe.engine.refresh.policy.refitting_seconds", lambda *_, **__: price)
    data, wrong = mislabelled()
    memory.register("m", data, method="exact", budget=0.01)
    metrics = Metrics()
    worker = memory.deletion_worker(metrics=metrics)
    request = memory.send_index("m", *wrong)
    while not memory.receipts("m"):
        memory.turn(worker)

    state = memory.load("m")
    assert state.version == 1
    assert state.meta.error.model_dump(include=set(UNKNOWN)) == UNKNOWN
    assert state.meta.error.over
    assert state.meta.pending_job is not None  # of the same commit
    assert state.meta.pending_job.reason == "error_budget"
    assert memory.final(request).error == state.meta.error
    version = memory.newest_version("m")
    assert (version.version, version.error) == (1, state.meta.error)
    assert Version.model_validate_json(version.value()) == version
    assert metrics.registry.get_sample_value("lethe_error_relative", {"model": "m"}) == math.inf
    [job] = memory.records(topics.REFRESH_JOBS)
    assert json.loads(job.value or b"")["job_id"] == state.meta.pending_job.job_id

    memory.drain(worker, memory.refresh_worker())
    newest = memory.newest_version("m")
    assert newest.refresh is not None
    # A polish that ends without a bound is followed by a rebuild in the same job.
    assert newest.refresh.reason.startswith("the error is unknown")
    assert newest.refresh.size in (size, RefreshSize.REBUILD)
    assert newest.error.kind == "certificate"
    assert not newest.error.over
    bound = newest.error.bound
    assert bound is not None
    assert true_error(memory, "m") <= bound
    assert memory.load("m").meta.pending_job is None
    relative = metrics.registry.get_sample_value("lethe_error_relative", {"model": "m"})
    assert relative == newest.error.relative
    check_model(memory)


def test_what_makes_an_error_unknown_is_kept_in_the_store(memory: Platform) -> None:
    data, wrong = mislabelled(1)
    memory.register("m", data, method="exact", budget=0.01)
    memory.send_index("m", *wrong)
    memory.turn_until_decided(1)
    state = memory.load("m")
    assert state.meta.least_pivot == state.stream.least_pivot < 1.0
