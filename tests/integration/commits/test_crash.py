"""Dying at every step, servers that are killed and restarted: the same theta, no gap, no repeat.

The steps are those of `consumers.service.telemetry.steps`: what is not in that list is not tried,
and what is in it and never reached makes the test fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.refresh.size import RefreshSize
from tests.integration.conftest import KAFKA, log_of
from tests.support.crash_lane import finish, many_rows
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.servers import KafkaProcess, ValkeyProcess
from tests.support.worker_process import EVERY, FOLDING, REGISTERING, ROOT, WAYS, Way, WorkerProcess

SECONDS = 120.0
LANE_SECONDS = 700.0
LANES = 5


def deaths_of(way: Way) -> list[list[tuple[str, int, Way]]]:
    """Every step in turn, of a registration twice: a new model, and one that is replaced.

    What belongs together lies in one list: a fold has something to do where somebody died before.
    """
    working = [step for step in Step if step not in REGISTERING]
    left: tuple[str, int, Way] = (Step.APPLY, 1, "kill")
    deaths: list[list[tuple[str, int, Way]]] = [
        [left, (step, 1, way)] if step in FOLDING else [(step, 1, way)] for step in working
    ]
    return deaths + [[(step, 1, way), (step, 1, way)] for step in REGISTERING]


@pytest.mark.parametrize("kind", ["streams", "streams-one-way-each", KAFKA])
def test_dying_at_every_named_step_in_every_way_loses_and_doubles_nothing(
    request: pytest.FixtureRequest,
    private_valkey: Callable[..., ValkeyProcess],
    topic_prefix: str,
    kind: str,
) -> None:
    """Also a lost connection at every step, through which the process lives.

    On Kafka a death takes over a second, most of it waiting for the dead member's session to end:
    there each step has one way by turns, and every way with LETHE_TEST_EVERY_WAY=1 (`make crash`).
    `make test` has the same on Redis Streams.
    """
    # Given lanes, each with a log, a store and a model of its own
    bootstrap = request.getfixturevalue("kafka_bootstrap") if kind == "kafka" else ""
    url, keys_url = private_valkey().url, private_valkey().url
    every_way = kind == "streams" or bool(os.environ.get("LETHE_TEST_EVERY_WAY"))
    wanted = {
        (step, way)
        for i, step in enumerate(Step)
        for j, way in enumerate(WAYS)
        if every_way or i % len(WAYS) == j
    }
    deaths = [
        together
        for way in WAYS
        for together in deaths_of(way)
        if (together[-1][0], together[-1][2]) in wanted
    ]
    many = 2 if kind == "streams-one-way-each" else LANES
    lanes = [[death for together in deaths[i::many] for death in together] for i in range(many)]
    lanes[-1] = [*lanes[-1], (EVERY, 1, "fault")]
    # When workers die at every step while requests, repeats, garbage and refreshes come
    running = [
        run_lane(
            f"{topic_prefix}{i}.",
            f"{url}/{i}",
            f"{keys_url}/{i}",
            bootstrap,
            deaths,
            discloses=i % 2 == 1,
        )
        for i, deaths in enumerate(lanes)
    ]
    try:
        said = [lane.communicate(timeout=LANE_SECONDS)[1] for lane in running]
    finally:
        for lane in running:
            lane.kill()  # its workers end with it
            lane.communicate()
    # Then each lane ends as it should: every death was died, and all is as retraining says
    for lane, words in zip(running, said, strict=True):
        assert lane.returncode == 0, words[-6000:]
    died = {(step, way) for deaths in lanes for step, _, way in deaths}
    assert died - {(EVERY, "fault"), (Step.APPLY, "kill")} == wanted - {(Step.APPLY, "kill")}
    assert {step for step, _ in wanted} == set(Step)


def run_lane(
    prefix: str,
    url: str,
    keys_url: str,
    bootstrap: str,
    deaths: list[tuple[str, int, Way]],
    *,
    discloses: bool,
) -> subprocess.Popen[str]:
    """Start a lane; its process checks everything at its end.

    ``discloses``: its models keep what their versions disclose.
    """
    orders = {
        "prefix": prefix,
        "url": url,
        "keys_url": keys_url,
        "bootstrap": bootstrap,
        "deaths": deaths,
        "discloses": discloses,
        "session_seconds": 1.0 if bootstrap else 0.3,
    }
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.support.crash_lane",
         json.dumps(orders)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def deleted(platform: Platform, rows: int, model_id: str = "m") -> bool:
    """Return whether so many rows of a model are deleted."""
    return len(ledger_of(platform, model_id)) >= rows


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_two_processes_in_one_group_and_one_is_killed(
    platform_on: Callable[..., Platform], names: str
) -> None:
    platform, models = platform_on("kafka", partitions=2), ("m", "n", "o", "p")
    for name in models:
        platform.register(name, many_rows(), budget=10.0)
    doomed = WorkerProcess(platform, names, [(Step.APPLY, 4)])
    other = WorkerProcess(platform, names)
    try:
        sent = 0
        deadline = time.monotonic() + SECONDS
        while sent < 12 or doomed.running():  # the other may have come first, and have it all
            other.check_alive()
            assert time.monotonic() < deadline, "it did not die"
            for name in models:
                platform.send_index(name, sent)
            sent += 1
            time.sleep(0.1)
        doomed.check()
        for name in models:
            other.wait_until(partial(deleted, platform, sent, name))
    finally:
        doomed.stop()
        other.stop()
    platform.drain()
    for name in models:
        check_model(platform, name)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_the_broker_is_killed_and_restarted(
    private_kafka: Callable[[], KafkaProcess], redis_url: str, redis_client: object, names: str
) -> None:
    del redis_client
    broker = private_kafka()
    log = log_of("kafka", redis_url, broker.bootstrap)
    with closing(Platform(log, redis_url, 1, broker.bootstrap)) as platform:
        platform.register("m", "benign", "linear", budget=10.0)
        process = WorkerProcess(platform, names, session_seconds=6.0)
        try:
            for i in range(10):
                platform.send_index("m", i)
            process.wait_until(partial(deleted, platform, 1))  # it has begun
            broker.kill()
            broker.start()
            for i in range(10, 20):
                platform.send_index("m", i)
            process.wait_until(partial(deleted, platform, 20))
        finally:
            process.stop()
        finish(platform)


def test_the_store_is_killed_and_restarted(
    private_valkey: Callable[..., ValkeyProcess], names: str
) -> None:
    """In single-node mode the log goes with it: state and log are recovered together."""
    server = private_valkey()
    with closing(Platform(log_of("streams", server.url), server.url, 1)) as platform:
        platform.register("m", "benign", "logistic", budget=0.05)
        process = WorkerProcess(platform, names)
        try:
            for i in range(60):
                if i in (20, 40):
                    process.wait_until(partial(deleted, platform, i - 15))
                    server.kill()
                    server.start()
                    platform.reconnect()
                platform.send_index("m", i)
            process.wait_until(partial(deleted, platform, 60))
        finally:
            process.stop()
        platform.reconnect()
        finish(platform)


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
        ordered = platform.load().meta.generation
        platform.order("m", RefreshSize.REBUILD)
        refreshing = WorkerProcess(platform, names, roles="refresh")
        deadline = time.monotonic() + SECONDS
        sent = 10
        while ordered < 3:
            deleting.check_alive()
            refreshing.check_alive()
            assert time.monotonic() < deadline, "no rebuild came"
            if sent < 100:
                platform.send_index("m", sent)
                sent += 1
            generation = platform.load().meta.generation
            if generation > ordered:
                ordered = generation
                platform.order("m", RefreshSize.REBUILD)
            time.sleep(0.03)
    finally:
        deleting.stop()
        if refreshing is not None:
            refreshing.stop()
    assert sent > 20
    finish(platform)
