"""Queries with confluent-kafka, without a server: what librdkafka says while a broker is gone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from lethe.consumers.log.kafka import settings
from lethe.consumers.log.kafka.server import Server
from lethe.engine.errors import LogUnavailable
from tests.conftest import need_confluent
from tests.unit.log.test_kafka_reading import ONE

NO_OFFSET = -1001


class Librdkafka:
    """Both clients: it answers each query with the next of ``ends``; the last one stays."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    def next(self) -> int:
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    def list_offsets(self, targets: dict[Any, Any], **_: Any) -> dict[Any, Any]:
        answers = {}
        for target in targets:
            answers[target] = Future[Any]()
            answers[target].set_result(SimpleNamespace(offset=self.next()))
        return answers

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        end = self.next()
        return min(0, end), end


@pytest.fixture
def end_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Librdkafka], int]:
    """Return the end of a partition, as one query or the other says."""
    need_confluent()
    from lethe.consumers.log.kafka.confluent.cluster import ConfluentCluster

    monkeypatch.setattr(settings, "RETRY_SECONDS", 0.0)
    cluster = ConfluentCluster(Server(("h:1",), "tests", {}, 1.0))
    monkeypatch.setattr(cluster, "describe", lambda _: {})
    monkeypatch.setattr(cluster, "described", lambda _: {ONE: 0})

    def asked(query: str, client: Librdkafka) -> int:
        monkeypatch.setattr(cluster, "_admin", client)
        monkeypatch.setattr(cluster, "_offsets", client)
        return cluster.ends([ONE])[ONE] if query == "ends" else cluster.bounds(ONE).end

    return asked


@pytest.mark.parametrize("query", ["ends", "bounds"])
def test_an_offset_that_is_none_is_asked_for_again(
    end_of: Callable[[str, Librdkafka], int], query: str
) -> None:
    """A log that ended below its known end has lost commits, and its models halt."""
    assert end_of(query, Librdkafka(NO_OFFSET, NO_OFFSET, 470)) == 470


@pytest.mark.parametrize("query", ["ends", "bounds"])
def test_a_broker_that_keeps_answering_none_is_unavailable(
    end_of: Callable[[str, Librdkafka], int], query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REQUEST_SECONDS", 0.05)
    with pytest.raises(LogUnavailable):
        end_of(query, Librdkafka(NO_OFFSET))
