"""Fixtures that every test may use: real servers, started when the first test asks for one."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import redis
import structlog
from hypothesis import HealthCheck, settings

from tests.support.cluster import ClusterProcesses, running_cluster
from tests.support.servers import KafkaProcess, Missing, ValkeyProcess, own_redis, shared_kafka
from tests.support.tiers import is_thorough

_SERVERS = {"cluster", "redis_url", "kafka_bootstrap", "private_valkey", "private_kafka"}


def pytest_configure(config: pytest.Config) -> None:
    """Make warnings and draws the same on every machine.

    kafka-python 3.0 can be imported on Python 3.11, although it warns of itself there.
    """
    warned = r"(read_text|open_text) is deprecated:DeprecationWarning:(kafka|importlib)\..*"
    config.addinivalue_line("filterwarnings", f"ignore:{warned}")
    # What a command starts ends with it: a test's directory is removed.
    os.environ["LETHE_EMBEDDED_LINGER"] = "0"
    # The thread of a Kafka client draws its pauses from `random` while Hypothesis looks on.
    shared = "hypothesis.errors.HypothesisDeprecationWarning"
    config.addinivalue_line("filterwarnings", f"ignore:Do not use the `random` module:{shared}")
    # The same draws everywhere and on every machine: to find new ones is for `make fuzz`.
    settings.register_profile(
        "lethe",
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("lethe")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what `make test` leaves out."""
    if is_thorough(item.nodeid, kafka=item.get_closest_marker("kafka") is not None):
        item.add_marker(pytest.mark.thorough)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that no process is left alone with it at the end.

    Refuse a pytest in which pytest-xdist cannot name groups: they would be split in silence.
    """
    items.sort(key=lambda item: ("simulation" not in item.nodeid, not _is_slow(item)))
    for item in items:
        started = _SERVERS.intersection(getattr(item, "fixturenames", ()))
        if started and item.nodeid.startswith("tests/unit/"):
            raise pytest.UsageError(f"{item.nodeid} starts a server: it is no unit test")
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} is not in its xdist_group; see pyproject.toml")


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def give_up(missing: Missing) -> NoReturn:
    """Skip on a laptop; fail on CI, where a skipped test would be a test that nobody runs."""
    if os.environ.get("CI") == "true":
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))


def _worker_number() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Undo what a test configured: the next one's log lines would be lost or elsewhere."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def session_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that all processes of this test run share, and no other run."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def kafka_bootstrap(session_dir: Path) -> Iterator[str]:
    """The address of a real Kafka, one for the whole run: use `topic_prefix` in names."""
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(shared_kafka(session_dir))
        except Missing as missing:
            give_up(missing)
        yield address


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Redis or Valkey of this process, with acknowledged writes on disk."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(own_redis(tmp_path_factory.mktemp("redis"), _worker_number()))
        except Missing as missing:
            give_up(missing)
        yield url


@pytest.fixture(scope="session")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """A real cluster of this process: use `cluster`, which empties it."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(running_cluster(tmp_path_factory.mktemp("cluster")))
        except Missing as missing:
            give_up(missing)
        yield made


@pytest.fixture
def cluster(started_cluster: ClusterProcesses) -> ClusterProcesses:
    """A real cluster without keys, whole again after what the last test did."""
    started_cluster.repair()
    return started_cluster


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of an empty database."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        yield client


@pytest.fixture
def topic_prefix() -> str:
    """A string that no other test uses: put it before topic and group names."""
    return f"t{uuid.uuid4().hex[:12]}."


@pytest.fixture
def private_kafka(tmp_path: Path) -> Iterator[Callable[[], KafkaProcess]]:
    """Start brokers that the test may stop, kill and start again; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start() -> KafkaProcess:
            broker = KafkaProcess(tmp_path / f"kafka-{uuid.uuid4().hex[:6]}")
            stack.callback(broker.close)
            try:
                broker.start()
            except Missing as missing:
                give_up(missing)
            return broker

        yield start


@pytest.fixture
def private_valkey(tmp_path: Path) -> Iterator[Callable[..., ValkeyProcess]]:
    """Start servers that the test may stop, kill and start again; they end with the test.

    Settings are passed by keyword: ``private_valkey(appendfsync="everysec")``.
    """
    with contextlib.ExitStack() as stack:

        def start(**settings: str) -> ValkeyProcess:
            named = {name.replace("_", "-"): value for name, value in settings.items()}
            server = ValkeyProcess(tmp_path / f"valkey-{uuid.uuid4().hex[:6]}", named)
            stack.callback(server.close)
            try:
                server.start()
            except Missing as missing:
                give_up(missing)
            return server

        yield start
