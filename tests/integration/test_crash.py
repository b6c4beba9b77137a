"""kill -9 at every step, servers that are killed and restarted: the same theta, no gap, no repeat.

The steps are those of design page 3.1, by the names that the workers give them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from engine.policy import Size
from tests.servers import KafkaProcess, ValkeyProcess
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.worker_process import Death, WorkerProcess

from .conftest import KAFKA, log_of

DELETION_STEPS = [
    "poll",
    "validate",
    "load",
    "compute",
    "commit",
    "durable",
    "publish",
    "erase",
    "advance",
]
REFRESH_STEPS = ["refresh_snapshot", "refresh_write"]
SECONDS = 40.0


def feed(platform: Platform, true: Callable[[], bool], *, pause: float = 0.05) -> int:
    """Send requests, repeats and refresh orders while ``true``; return how many requests."""
    deadline = time.monotonic() + SECONDS
    sent = 0
    total = len(platform.data["m"].X) - 5
    while true():
        assert time.monotonic() < deadline, "the workers did not come to their end"
        platform.send_index("m", sent % total, request_id=f"feed-{sent % total}")
        if sent % 6 == 1:  # a model that is not registered is loaded anew each time
            platform.send("nobody", "row", request_id=f"nobody-{sent}")
        if sent % 6 == 3:
            platform.order("m", [Size.REBUILD, Size.COMPACT, Size.COMPLETE][sent // 6 % 3])
        sent += 1
        time.sleep(pause)
    return sent


def finish(platform: Platform) -> None:
    """Drain with this process's workers and check everything."""
    platform.drain()
    statuses = {receipt.status for receipt in platform.finals().values()}
    assert statuses <= {"APPLIED", "ALREADY_APPLIED"}
    assert len(platform.finals()) == sum(model == "m" for model, _ in platform.asked)
    assert all(r.code == "UNKNOWN_MODEL" for r in platform.finals("nobody").values())
    assert len(platform.finals("nobody")) == sum(model == "nobody" for model, _ in platform.asked)
    check_model(platform)


@pytest.mark.parametrize("kind", ["streams", KAFKA])
def test_killed_at_every_step(platform_on: Callable[..., Platform], names: str, kind: str) -> None:
    # Given a worker process that dies at each step in turn, early and in full run
    platform = platform_on(kind, partitions=1)
    platform.register("m", "benign", "linear", budget=10.0)
    deaths: list[Death] = [(step, 2) for step in DELETION_STEPS[3:]]
    deaths += [("poll", 3), ("validate", 2), ("load", 1)]
    deaths += [(step, 1) for step in REFRESH_STEPS]
    session = 0.5 if kind == "streams" else 1.5
    process = WorkerProcess(platform, names, deaths, session_seconds=session)
    # When requests keep coming
    try:
        feed(platform, process.running)
        process.check()
    finally:
        process.stop()
    # Then a restart reaches what retraining says, with one final receipt each
    finish(platform)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_two_processes_in_one_group_and_one_is_killed(
    platform_on: Callable[..., Platform], names: str
) -> None:
    platform = platform_on("kafka", partitions=2)
    for name in ("m", "n", "o", "p"):
        platform.register(name, "benign", "linear", budget=10.0)
    doomed = WorkerProcess(platform, names, [("durable", 4)])
    other = WorkerProcess(platform, names)
    try:
        for i in range(12):
            for name in ("m", "n", "o", "p"):
                platform.send_index(name, i)
            time.sleep(0.1)
        deadline = time.monotonic() + SECONDS
        while any(len(ledger_of(platform, name)) < 12 for name in ("m", "n", "o", "p")):
            other.check_alive()
            assert time.monotonic() < deadline, "the other did not take over"
            time.sleep(0.1)
        doomed.check()
    finally:
        doomed.stop()
        other.stop()
    platform.drain()
    for name in ("m", "n", "o", "p"):
        check_model(platform, name)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_the_broker_is_killed_and_restarted(
    private_kafka: Callable[[], KafkaProcess], redis_url: str, redis_client: object, names: str
) -> None:
    del redis_client
    broker = private_kafka()
    log = log_of("kafka", redis_url, broker.bootstrap)
    platform = Platform(log, redis_url, 1, broker.bootstrap)
    platform.register("m", "benign", "linear", budget=10.0)
    process = WorkerProcess(platform, names, session_seconds=6.0)
    try:
        for i in range(10):
            platform.send_index("m", i)
        broker.kill()
        broker.start()
        for i in range(10, 20):
            platform.send_index("m", i)
        deadline = time.monotonic() + SECONDS
        while len(ledger_of(platform)) < 20:
            process.check_alive()
            assert time.monotonic() < deadline, "the worker did not go on"
            time.sleep(0.1)
    finally:
        process.stop()
    finish(platform)
    platform.close()


def test_the_store_is_killed_and_restarted(
    private_valkey: Callable[..., ValkeyProcess], names: str
) -> None:
    """In single-node mode the log goes with it: state and log are recovered together."""
    server = private_valkey()
    platform = Platform(log_of("streams", server.url), server.url, 1)
    platform.register("m", "benign", "logistic", budget=0.05)
    process = WorkerProcess(platform, names)
    try:
        for i in range(60):
            platform.send_index("m", i)
            if i in (20, 40):
                server.kill()
                server.start()
        deadline = time.monotonic() + SECONDS
        while len(ledger_of(platform)) < 60:
            process.check_alive()
            assert time.monotonic() < deadline, "the worker did not go on"
            time.sleep(0.1)
    finally:
        process.stop()
    platform.reconnect()
    finish(platform)
    platform.close()


def test_a_cold_refresh_process_rebuilds_while_deletions_flow(
    platform_on: Callable[..., Platform], names: str
) -> None:
    platform = platform_on("streams", partitions=1)
    platform.register("m", "benign", "logistic", budget=10.0)
    deleting = WorkerProcess(platform, names, roles="deletions")
    refreshing = None
    try:
        for i in range(10):
            platform.send_index("m", i)
        # It starts with nothing but the store, and finds the job
        platform.order("m", Size.REBUILD)
        refreshing = WorkerProcess(platform, names, roles="refresh")
        deadline = time.monotonic() + SECONDS
        sent = 10
        while platform.load().meta.generation < 3:
            deleting.check_alive()
            refreshing.check_alive()
            assert time.monotonic() < deadline, "no rebuild came"
            if sent < 100:
                platform.send_index("m", sent)
                sent += 1
            if sent % 10 == 0:
                platform.order("m", Size.REBUILD)
            time.sleep(0.03)
    finally:
        deleting.stop()
        if refreshing is not None:
            refreshing.stop()
    assert sent > 20
    finish(platform)
