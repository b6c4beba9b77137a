"""Models of several outputs through the workers: several targets, and classes against the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from lethe.consumers import ModelSubscriber
from lethe.consumers.audit.health.models import check_model as check_stored
from lethe.consumers.audit.verify import verify
from lethe.consumers.commits import publish
from lethe.consumers.refresh import new_generation
from lethe.consumers.refresh.job import run_job
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.fit.classes import probabilities
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from tests.integration.refresh.test_races import SEVERAL_OUTPUTS as SEVERAL
from tests.integration.refresh.test_refresh import interleave
from tests.support.crash_lane import feed, finish
from tests.support.families import make
from tests.support.invariants import check_model, ledger_of
from tests.support.oracles import relative, retrain
from tests.support.platform import Platform, row_ids
from tests.support.worker_process import Death, WorkerProcess


@pytest.mark.parametrize(
    ("kind", "family", "method"),
    [(*SEVERAL[0], "pru"), (*SEVERAL[0], "exact"), (*SEVERAL[1], "pru")],
)
def test_52_batches_and_all_sizes(memory: Platform, kind: str, family: str, method: str) -> None:
    memory.register("m", family, kind, method=method, budget=0.05)
    watch = interleave(memory, 52)
    assert set(watch.refreshed) >= {"complete", "compact", "rebuild"}
    if kind == "linear":
        assert watch.bounded == watch.seen
    else:
        assert watch.refreshed.get("polish", 0) > 0
        assert watch.bounded >= 4
    check_model(memory)
    found = verify(memory.store, "m")
    assert found.holds
    assert found.bound < 0.1 * float(np.linalg.norm(memory.load().stream.published))
    assert [one for one in check_stored(memory.store, memory.log, "m") if not one.ok] == []


@pytest.mark.parametrize("size", [RefreshSize.POLISH, RefreshSize.COMPACT, RefreshSize.REBUILD])
def test_a_job_catches_up_with_deletions_in_every_class(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, size: RefreshSize
) -> None:
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", 2)
    memory.register("m", "classes", "logistic", budget=10.0)
    memory.delete("m", *range(4))
    event = memory.ordered("m", size)
    rows = iter(range(4, 120))

    def delete_some(what: str, _done: int, _all: int) -> None:
        if what.startswith(("reading", "writing")):
            memory.send_index("m", *(next(rows) for _ in range(3)))
            memory.drain(memory.pair[0])

    run_job(memory.store, event, now=memory.load().meta.refreshed_at, progress=delete_some)
    memory.tell_refreshed(event)
    memory.drain()
    assert memory.versions()[-1].refresh is not None
    check_model(memory)
    if size is RefreshSize.COMPACT:
        # A compact changes no curvature: the answer is that of a model that was never refreshed
        memory.register("n", "classes", "logistic", budget=10.0)
        for row in ledger_of(memory, "m"):
            memory.send("n", row)
        memory.drain()
        stream = memory.load("m").stream
        assert relative(stream.theta_exact, memory.load("n").stream.theta_exact) < 1e-9


def test_a_worker_that_starts_cold_goes_on_to_the_same_theta(memory: Platform) -> None:
    # Given a worker that has deleted six rows, and one that begins with what it left
    memory.register("m", "classes", "logistic", budget=10.0)
    for row in range(6):
        memory.send_index("m", row)
        memory.drain(memory.pair[0])
    memory.pair[0].close()
    later = memory.deletion_worker()
    # When it goes on, and does the whole of another model by itself
    memory.register("n", "classes", "logistic", budget=10.0)
    for model, first in (("m", 6), ("n", 0)):
        for row in range(first, 12):
            memory.send_index(model, row)
            memory.drain(later)
    # Then both are the same, to the last bit
    one, two = memory.load("m").stream, memory.load("n").stream
    np.testing.assert_array_equal(one.theta_exact, two.theta_exact)
    np.testing.assert_array_equal(one.published, two.published)
    np.testing.assert_array_equal(one.V.array, two.V.array)


def test_killed_at_every_step(platform_on: Callable[..., Platform], names: str) -> None:
    platform = platform_on("streams", partitions=1)
    platform.register("m", "classes", "logistic", budget=10.0)
    deletion = (Step.DECIDE, Step.COMPUTE, Step.APPEND, Step.APPLY, Step.PUBLISH, Step.ADVANCE)
    refresh = [step for step in Step if step.startswith("refresh_")]
    deaths: list[Death] = [(step, 2) for step in deletion]
    deaths += [(step, 1) for step in refresh]
    process = WorkerProcess(platform, names, deaths, session_seconds=0.5)
    try:
        feed(platform, process.running)
        process.check()
    finally:
        process.stop()
    finish(platform)


# -- classes that lose their rows -------------------------------------------------------------


def rarest(platform: Platform) -> tuple[int, list[int]]:
    """Return the class with the fewest rows, and these."""
    y = platform.data["m"].y
    rare = int(np.argmin(y.sum(axis=0)))
    return rare, [int(i) for i in np.flatnonzero(y[:, rare])]


def test_the_last_row_of_a_class_waits_for_penalised_intercepts(memory: Platform) -> None:
    memory.register("m", "classes", "logistic", budget=0.5)
    rare, rows = rarest(memory)
    memory.delete("m", *rows[:-1])
    assert memory.versions()[-1].status == "ACTIVE"
    last = memory.send_index("m", rows[-1])
    memory.drain(memory.pair[0])
    deferred = [r for r in memory.receipts() if r.request_id == last]
    assert deferred[0].code == "CLASS_EMPTIED"
    assert f"'class {rare}'" in (deferred[0].detail or "")
    memory.drain()
    assert memory.statuses(last) == ["DEFERRED", "APPLIED"]
    assert memory.versions()[-1].status == "INTERCEPT_PENALISED"
    counts = memory.load().meta.class_counts
    assert counts is not None
    assert counts[rare] == 0
    assert sum(counts) == 120 - len(rows)
    check_model(memory)
    # The class keeps its column; deletion and refreshes go on, to the last row
    others = [i for i in range(120) if i not in rows]
    memory.send_index("m", *others[:7])
    memory.order("m", RefreshSize.POLISH)
    memory.drain()
    check_model(memory)
    assert memory.parameters().classes[rare] == f"class {rare}"
    memory.delete("m", *others)
    assert memory.load().meta.status == "EMPTY"
    assert memory.load().meta.class_counts == (0, 0, 0, 0)
    check_model(memory)


def test_a_rebuild_without_the_last_rows_of_a_class_is_found_out(memory: Platform) -> None:
    # Given a deferred request for all but one row of a class, and a rebuild without them
    limits = LimitsRecord(floor_rows=1, fraction_of_d=0.0)  # more than 8 rows wait
    memory.register("m", "classes", "logistic", budget=10.0, limits=limits)
    _, rows = rarest(memory)
    waiting = memory.send_index("m", *rows[1:], *[i for i in range(120) if i not in rows][:9])
    memory.drain(memory.pair[0])
    assert memory.statuses(waiting) == ["DEFERRED"]
    event = memory.ordered("m", RefreshSize.REBUILD)
    memory.compute_refresh(event)
    # When the last one is deleted before the swap
    memory.send_index("m", rows[0])
    memory.drain(memory.pair[0])
    memory.tell_refreshed(event)
    memory.drain()
    # Then that result was dropped, and the next one knows what to do
    assert memory.final(waiting).status == "APPLIED"
    assert memory.versions()[-1].status == "INTERCEPT_PENALISED"
    check_model(memory)


# -- what others see --------------------------------------------------------------------------


def test_a_subscriber_predicts_classes_and_checks_their_names(memory: Platform) -> None:
    memory.register("m", "classes", "logistic", method="exact", budget=0.01)
    memory.send_index("m", 3, 4, 5)
    memory.order("m", RefreshSize.REBUILD)
    memory.drain()
    data = memory.data["m"]
    live = np.setdiff1d(np.arange(120), [3, 4, 5])
    truth = retrain("logistic", data.design[live], data.y[live], data.weight[live], data.penalty)
    subscriber = ModelSubscriber(memory.log)
    versions = list(subscriber.follow("m", from_version=0, timeout=0.0))
    newest = versions[-1]
    assert [v.version for v in versions] == list(range(newest.version + 1))
    assert newest.classes == ("class 0", "class 1", "class 2", "class 3")
    assert newest.target_names == ("y0",)
    assert newest.theta.shape == (12, 4)
    expected = probabilities(data.design @ truth)
    np.testing.assert_allclose(newest.predict(data.X), expected, rtol=1e-9)
    np.testing.assert_allclose(newest.predict(data.X[0]), expected[0], rtol=1e-9)
    np.testing.assert_allclose(newest.predict(data.X).sum(axis=1), 1.0, rtol=1e-12)


def test_classes_are_written_only_where_there_are_some(memory: Platform) -> None:
    memory.register("m", "benign", "logistic")
    memory.register("n", "classes", "logistic")
    assert b"classes" not in memory.parameters("m").value()
    assert b'"classes":["class 0",' in memory.parameters("n").value()


@pytest.mark.parametrize(("kind", "family"), SEVERAL)
def test_parameters_too_large_for_an_event_are_found_in_the_store(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, kind: str, family: str
) -> None:
    monkeypatch.setattr(publish, "PARAMETERS_LIMIT", 900)
    memory.register("m", family, kind, method="exact", budget=10.0)
    memory.delete("m", 3, 4, 5)
    assert memory.parameters().theta is None
    newest = ModelSubscriber(memory.log, memory.raw()).latest("m")
    published = memory.load().stream.published
    np.testing.assert_array_equal(newest.theta, published[:-1])
    np.testing.assert_array_equal(newest.intercept, published[-1])
    assert len(newest.classes) == (4 if kind == "logistic" else 0)


def test_several_targets_are_predicted_together(memory: Platform) -> None:
    memory.register("m", "several_outputs", "linear", method="exact", budget=0.01)
    memory.delete("m", 3, 4, 5)
    data = memory.data["m"]
    live = np.setdiff1d(np.arange(120), [3, 4, 5])
    truth = retrain("linear", data.design[live], data.y[live], data.weight[live], data.penalty)
    newest = ModelSubscriber(memory.log).latest("m")
    assert newest.target_names == ("y0", "y1", "y2")
    assert newest.classes == ()
    np.testing.assert_allclose(newest.predict(data.X), data.design @ truth, rtol=1e-9, atol=1e-10)


def test_a_replacement_may_have_other_classes(memory: Platform) -> None:
    memory.register("m", "classes", "logistic")
    memory.delete("m", *range(10))
    fewer = make("classes", "logistic")
    merged = replace(fewer, y=np.column_stack([fewer.y[:, 0] + fewer.y[:, 3], fewer.y[:, 1:3]]))
    done = memory.register("m", merged, replace_model=True)
    assert done.in_ledger == 10
    memory.send("m", *row_ids(merged)[10:14])
    memory.drain()
    assert memory.parameters().classes == ("class 0", "class 1", "class 2")
    check_model(memory)
