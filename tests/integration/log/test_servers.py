"""The servers that the other tests stand on: they answer, keep what they acknowledged, and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from tests.conftest import give_up
from tests.support import servers
from tests.support.servers import (
    KAFKA_SCRIPT,
    ROOT,
    KafkaProcess,
    Missing,
    ValkeyProcess,
    kafka_script,
    numbered_database,
    shared_kafka,
)


def _create(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(name=topic, num_partitions=1, replication_factor=1)])
    finally:
        admin.close()


def _produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", max_block_ms=20_000)
    try:
        producer.send(topic, value).get(timeout=20)
    finally:
        producer.close()


def _consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, allow_auto_create_topics=False)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(values) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                values += [record.value for record in records]
        return values
    finally:
        consumer.close()


def _alive(pid: int) -> bool:
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(shown.stdout.strip()) and not shown.stdout.startswith("Z")


def _wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 40
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _alive(pid)


@pytest.mark.kafka
def test_kafka_gives_back_what_it_was_given(kafka_bootstrap: str, topic_prefix: str) -> None:
    topic = topic_prefix + "one"
    _create(kafka_bootstrap, topic)
    _produce(kafka_bootstrap, topic, b"hello")
    assert _consume(kafka_bootstrap, topic, 1) == [b"hello"]


@pytest.mark.kafka
def test_kafka_makes_no_topic_by_itself(kafka_bootstrap: str, topic_prefix: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=kafka_bootstrap, max_block_ms=2_000, allow_auto_create_topics=True
    )
    try:
        with pytest.raises(KafkaError):
            producer.send(topic_prefix + "misspelt", b"lost?").get(timeout=5)
    finally:
        producer.close()


@pytest.mark.kafka
@pytest.mark.slow
def test_a_private_kafka_keeps_its_data_over_a_restart_and_a_kill(
    private_kafka: Callable[[], KafkaProcess],
) -> None:
    broker = private_kafka()
    address = broker.bootstrap
    _create(address, "kept")
    _produce(address, "kept", b"before")

    broker.stop()
    broker.start()
    _produce(address, "kept", b"between")
    broker.kill()
    broker.start()

    assert broker.bootstrap == address
    assert _consume(address, "kept", 2) == [b"before", b"between"]


@pytest.mark.kafka
@pytest.mark.slow
def test_two_brokers_run_at_once_and_start_is_idempotent(
    private_kafka: Callable[[], KafkaProcess],
) -> None:
    one, two = private_kafka(), private_kafka()
    assert one.bootstrap != two.bootstrap
    again = subprocess.run(
        [KAFKA_SCRIPT, "start", "--port", "0", "--data", one.data],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, again.stdout) == (0, one.bootstrap + "\n")
    one.stop()
    state = [
        subprocess.run(
            [KAFKA_SCRIPT, "status", "--data", broker.data], capture_output=True, check=False
        )
        for broker in (one, two)
    ]
    assert [done.returncode for done in state] == [1, 0]


def test_the_script_says_how_to_get_java(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, KAFKA_SCRIPT, "start", "--data", tmp_path / "data"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "apt-get install openjdk-17-jre-headless maven" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.redis
def test_redis_gives_back_what_it_was_given(redis_client: redis.Redis) -> None:
    assert redis_client.dbsize() == 0
    redis_client.set("k", "v")
    assert redis_client.get("k") == b"v"


@pytest.mark.redis
def test_a_private_valkey_killed_keeps_every_acknowledged_write(
    private_valkey: Callable[..., ValkeyProcess],
) -> None:
    server = private_valkey()
    for round_number in range(3):
        with redis.Redis.from_url(server.url) as client:
            for i in range(50):
                client.set(f"{round_number}:{i}", i)
            server.kill()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.dbsize() == 50 * (round_number + 1)


@pytest.mark.redis
def test_a_killed_test_run_leaves_no_valkey_behind(tmp_path: Path) -> None:
    pid = _killed_run(
        "server = ValkeyProcess(root); server.start(); print(server._process.pid)", tmp_path
    )
    assert _wait_until_gone(pid)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_killed_test_run_leaves_no_shared_kafka_behind(
    tmp_path: Path, private_kafka: Callable[[], KafkaProcess]
) -> None:
    private_kafka()  # skips, or fails on CI, where no broker of our own can run
    pid = _killed_run(
        "context = shared_kafka(root); context.__enter__();"
        "print((root / 'kafka' / 'broker.pid').read_text())",
        tmp_path,
    )
    assert _wait_until_gone(pid)


@pytest.mark.kafka
@pytest.mark.slow
def test_the_users_of_one_run_share_a_kafka_and_the_last_one_stops_it(
    tmp_path: Path,
    private_kafka: Callable[[], KafkaProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    private_kafka().stop()  # skips, or fails on CI, where no broker of our own can run
    monkeypatch.delenv("LETHE_TEST_KAFKA", raising=False)
    monkeypatch.setattr(servers, "start_kafka_container", lambda: None)
    data = str(tmp_path / "kafka")
    with shared_kafka(tmp_path) as first:
        with shared_kafka(tmp_path) as second:
            assert first == second
        assert kafka_script("status", "--data", data) == first
    with pytest.raises(RuntimeError):
        kafka_script("status", "--data", data)


def test_a_missing_server_fails_on_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="get it so"):
        give_up(Missing("get it so"))
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="get it so"):
        give_up(Missing("get it so"))


def _killed_run(program: str, root: Path) -> int:
    """Run ``program`` in a process, kill it with SIGKILL; return the pid that it printed."""
    lines = [
        "import pathlib, sys, time",
        "import tests.support.servers as servers",
        "from tests.support.servers import *",
        # A container is not a process that could be looked for by its id.
        "servers.start_kafka_container = lambda: None",
        "root = pathlib.Path(sys.argv[1])",
        program,
        "sys.stdout.flush(); time.sleep(600)",
    ]
    command = [sys.executable, "-c", "\n".join(lines), str(root)]
    environment = {k: v for k, v in os.environ.items() if k != "LETHE_TEST_KAFKA"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as run:
        assert run.stdout is not None
        try:
            pid = int(run.stdout.readline())
            assert _alive(pid)
        finally:
            run.send_signal(signal.SIGKILL)
    return pid


@pytest.mark.parametrize(
    ("url", "number", "expected"),
    [
        ("redis://h:1", 0, "redis://h:1/0"),
        ("redis://:pw@h:1/2", 3, "redis://:pw@h:1/5"),
    ],
)
def test_workers_of_one_run_use_different_databases(url: str, number: int, expected: str) -> None:
    assert numbered_database(url, number) == expected
