"""Topics of requests that are deleted and made again, and how a person goes on by the command."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from lethe.consumers.contract import topics
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.audited import FIT
from tests.support.command import Within
from tests.support.kafka_log import kafka_log
from tests.support.servers import KafkaProcess
from tests.support.training import write

pytestmark = [pytest.mark.redis, pytest.mark.slow]

REQUESTS = (topics.DELETIONS, topics.ERASURES)


@dataclass(frozen=True)
class Place:
    """A command with servers, and what an administrator can do to a topic."""

    lethe: Within
    delete: Callable[[str], None]
    create: Callable[[str], None]


@pytest.fixture
def on_streams(tmp_path: Path) -> Iterator[Place]:
    with EmbeddedValkey(tmp_path / "data") as server, redis.Redis.from_url(server.url) as client:

        def delete(topic: str) -> None:
            client.delete(f"lethe:log:{{{topic}}}:topic")

        def create(topic: str) -> None:
            fields: Any = {"id": str(uuid.uuid4()), "partitions": 16, "compacted": 0}
            fields |= {"max_message_bytes": 1_114_112, "retention_ms": -1}
            client.hset(f"lethe:log:{{{topic}}}:topic", mapping=fields)

        yield Place(Within(server.data_dir), delete, create)


@pytest.fixture
def on_kafka(
    private_kafka: Callable[[], KafkaProcess], redis_url: str, redis_client: Any, tmp_path: Path
) -> Place:
    del redis_client  # it has emptied the database
    broker = private_kafka()
    kafka = {"LETHE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap, "LETHE_PARTITIONS": "2"}
    log: Any = kafka_log(broker.bootstrap)

    def create(topic: str) -> None:
        log.ensure_topics([spec for spec in topics.specs(2) if spec.name == topic])

    return Place(
        Within(tmp_path / "data", LETHE_REDIS_URL=redis_url, **kafka), log.delete_topic, create
    )


@pytest.fixture(
    params=[
        "on_streams",
        pytest.param("on_kafka", marks=[pytest.mark.kafka, pytest.mark.xdist_group("kafka")]),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def lethe(place: Place, tmp_path: Path) -> Within:
    """A model with one deletion that is answered."""
    rows = write(tmp_path / "rows.parquet", logistic=False)
    place.lethe("register", "m", "--data", str(rows), *FIT, "--kind", "linear")
    place.lethe("delete", "m", "--row", "u0", "--request-id", "r0")
    place.lethe("work", "--until-idle")
    return place.lethe


def send(lethe: Within) -> None:
    lethe("delete", "m", "--row", "u1", "--request-id", "r1")
    lethe("erase", "h5", "--erasure-id", "e1")


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
def test_acknowledged_requests_do_not_vanish_without_a_word(
    place: Place, lethe: Within, again: bool
) -> None:
    # Given requests that nobody has read; when their topics are deleted, or made again
    send(lethe)
    for topic in REQUESTS:
        place.delete(topic)
        if again:
            place.create(topic)

    # Then nobody works on, and whoever looks is told what happened and what to do
    for _ in range(2):
        refused = lethe("work", "--until-idle", code=2)
        assert f"lethe recover --topic {topics.DELETIONS}" in refused.err
    failed = lethe("check", "--json", code=1).document
    faults = {one["subject"]: one["detail"] for one in failed["checks"] if not one["ok"]}
    for topic in REQUESTS:
        how = "was made again" if again else "is gone"
        assert f"LOG_RESET: {topic} {how}" in faults[f"topic {topic}"]
        assert f"lethe recover --topic {topic}" in faults[f"topic {topic}"]
    lethe("recover", "--topic", topics.COMMITS, "--yes", code=2)
    lethe("recover", "m", "--topic", topics.DELETIONS, code=2)

    # A person goes on, and is told what may be lost
    for topic in REQUESTS:
        done = lethe("recover", "--topic", topic, "--yes", "--json")
        assert "may be lost. Send it again under the same ids" in done.err
        assert done.document["recovered"] is True
    assert done.document["topic"] == topics.ERASURES
    lethe("recover", "--topic", topics.DELETIONS, "--yes", code=2)  # nothing is lost now
    assert "or it is lost: lethe.deletions lost records" in lethe("receipt", "r1", code=1).err

    # What is sent again takes effect once, and the loss stays known
    send(lethe)
    lethe("delete", "m", "--row", "u0", "--request-id", "r0")
    lethe("work", "--until-idle")
    assert lethe("receipt", "r1", "--json").document["status"] == "APPLIED"
    checked = lethe("check", "--json").document
    said = [one["detail"] for one in checked["checks"] if one["subject"].endswith(".deletions")]
    assert len(said) == 1
    assert "lost records, and work went on without them" in said[0]
    status = lethe("status", "m", "--json").document
    assert status["model_id"] == "m"


def test_workers_that_run_stop_when_a_topic_is_made_again(place: Place, lethe: Within) -> None:
    with lethe.working("--log-format", "json") as worker:
        lethe("delete", "m", "--row", "u3", "--wait", "60")
        place.delete(topics.DELETIONS)
        place.create(topics.DELETIONS)
        _, err = worker.communicate(timeout=60)
    assert worker.returncode == 2
    # Where the position is gone before the ids are compared, `lethe check` has the advice
    assert re.search(r"lethe\.deletions was made again|recreated .*`lethe check`", err)
