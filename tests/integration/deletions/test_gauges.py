"""What a worker's gauges say of models: from its takeover on, and of its own partitions alone."""

from __future__ import annotations

from collections.abc import Callable

from lethe.consumers.contract import topics
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS, commit_partition
from tests.integration.deletions.test_deferral import leveraged
from tests.support.platform import Platform

OF_MODELS = (
    "lethe_error_relative",
    "lethe_error_budget",
    "lethe_version",
    "lethe_rows_live",
    "lethe_deferred_requests",
)


def gauges(metrics: Metrics, model: str) -> dict[str, float | None]:
    return {name: metrics.registry.get_sample_value(name, {"model": model}) for name in OF_MODELS}


def shown_partitions(metrics: Metrics) -> set[str]:
    return {
        sample.labels["partition"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "lethe_lag_records"
    }


def test_a_worker_shows_its_models_before_their_first_request(memory: Platform) -> None:
    """An alert on a model that is over its budget must outlive the worker that found it."""
    memory.register("m", leveraged("linear"), method="exact", budget=10.0)
    memory.register("gone")
    memory.send_index("m", 0, 12)
    former = memory.deletion_worker()
    memory.drain(former)  # no refresh worker: the request waits
    former.close()
    memory.registrar().unregister("gone")
    metrics = Metrics()
    worker = memory.deletion_worker(metrics=metrics)

    memory.drain(worker)

    state = memory.load("m")
    shown = gauges(metrics, "m")
    assert shown["lethe_error_budget"] == 10.0
    assert shown["lethe_error_relative"] == state.meta.error.relative
    assert shown["lethe_version"] == state.version
    assert shown["lethe_rows_live"] == state.meta.rows_live
    assert shown["lethe_deferred_requests"] == 1
    assert set(gauges(metrics, "gone").values()) == {None}

    memory.drain(worker, memory.refresh_worker())
    assert gauges(metrics, "m")["lethe_deferred_requests"] == 0


def test_a_partition_and_its_models_are_shown_by_one_worker(
    platform_on: Callable[..., Platform],
) -> None:
    """What the former worker last saw would grow stale, and be counted twice."""
    platform = platform_on("memory", COMMIT_PARTITIONS)
    models = [f"m{i}" for i in range(8)]
    for model in models:
        platform.register(model)
    first, second = Metrics(), Metrics()
    workers = [platform.deletion_worker(metrics=first)]
    _turn(workers)
    assert all(gauges(first, model)["lethe_version"] == 0 for model in models)
    everything = shown_partitions(first)
    assert len(everything) == 2 * COMMIT_PARTITIONS

    workers.append(platform.deletion_worker(metrics=second))
    _turn(workers)

    assert shown_partitions(first) | shown_partitions(second) == everything
    assert not shown_partitions(first) & shown_partitions(second)
    for model in models:
        home = f"{topics.DELETIONS}/{commit_partition(model)}"
        shown = [gauges(each, model)["lethe_version"] for each in (first, second)]
        owners = [home in shown_partitions(each) for each in (first, second)]
        assert shown == [0 if owner else None for owner in owners]
    assert {gauges(second, model)["lethe_version"] for model in models} == {0, None}


def _turn(workers: list[DeletionWorker]) -> None:
    for _ in range(3):
        for worker in workers:
            worker.run_once(0.0)
            worker.idle()  # measures the lag


def test_the_health_of_each_worker_is_a_series() -> None:
    seconds = 0.0
    health = Health(lambda: seconds)
    metrics = Metrics()
    metrics.watch("deletions", health)

    def both() -> tuple[float | None, float | None]:
        value = metrics.registry.get_sample_value
        worker = {"worker": "deletions"}
        return value("lethe_worker_live", worker), value("lethe_worker_ready", worker)

    assert both() == (1, 0)
    health.progress(0)
    assert both() == (1, 1)
    health.trouble("the store is away")
    assert both() == (1, 0)
    health.progress(0)
    seconds = 1000.0
    assert both() == (0, 0)
