"""A producer that chooses partitions otherwise is noticed, and its requests are processed."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.engine.store.layout.keys import partition_index
from tests.support.platform import Platform

pytestmark = pytest.mark.redis


def send_to(platform: Platform, model_id: str, partition: int, row: str) -> None:
    body = {"request_id": f"{model_id}-{row}", "model_id": model_id, "row_ids": [row]}
    value = json.dumps(body).encode()
    message = Message(topics.DELETIONS, model_id.encode(), value, partition=partition)
    platform.producer.publish([message])


def test_a_model_in_another_partition_is_said_once_and_its_requests_are_applied(
    memory: Platform,
) -> None:
    """As librdkafka sends by default."""
    for model_id in ("m", "n"):
        memory.register(model_id)
    with capture_logs() as logs:
        for model_id in ("m", "n"):
            home = partition_index(model_id.encode(), memory.partitions)
            send_to(memory, model_id, 1 - home, "row-1")
            send_to(memory, model_id, home, "row-2")
            send_to(memory, model_id, 1 - home, "row-3")
            memory.drain()

    [said] = [one for one in logs if one.get("action") == "partitioner"]
    home = partition_index(b"m", memory.partitions)
    assert (said["model"], said["partition"], said["expected"]) == ("m", 1 - home, home)
    for model_id in ("m", "n"):
        finals = memory.finals(model_id)
        assert {one.status for one in finals.values()} == {"APPLIED"}
        assert len(finals) == 3


def test_producers_that_do_as_kafkas_own_are_not_complained_of(memory: Platform) -> None:
    memory.register("m")
    with capture_logs() as logs:
        memory.send("m", "row-1")
        memory.drain()
    assert not [one for one in logs if one.get("action") == "partitioner"]
