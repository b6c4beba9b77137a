"""``lethe dead-letters``: a request that could not be read is seen, understood and sent again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Within
from tests.support.training import write

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_dead_letters")]

FIT = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1")
CAMEL = {"requestId": "r1", "modelId": "churn", "rowIds": ["u1"]}
"""What a producer in Java may send."""


def send(data_dir: Path, *values: bytes, topic: str = topics.DELETIONS) -> None:
    settings = Settings(data_dir=data_dir)
    with open_runtime(settings) as runtime, closing(runtime.log.producer()) as producer:
        producer.publish([Message(topic, b"", value) for value in values])


@pytest.fixture(scope="module")
def lethe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Within]:
    data = str(write(tmp_path_factory.mktemp("files") / "rows.parquet", logistic=False))
    with EmbeddedValkey(tmp_path_factory.mktemp("letters")) as server:
        lethe = Within(server.data_dir)
        lethe("register", "churn", "--data", data, *FIT)
        yield lethe


def test_without_any_nothing_is_said(lethe: Within) -> None:
    assert "no dead letter" in lethe("dead-letters", "list").out
    assert "dead letters" not in lethe("status").out
    assert "OK    dead letters: none" in lethe("check").out


def test_what_could_not_be_read_is_counted_with_its_reason(lethe: Within) -> None:
    send(lethe.data_dir, b"not json", json.dumps(CAMEL).encode())
    lethe("work", "--until-idle")

    why = "request_id: is missing; requestId: do you mean request_id?"
    status, check = lethe("status"), lethe("check", code=1)
    assert "dead letters: 2, the newest of " in status.out
    assert why in status.out
    assert "FAIL  dead letters: 2, the newest of " in check.out
    document = lethe("status", "--json").document
    assert document["dead_letters"] == 2
    assert document["last_dead_letter"]["detail"].startswith(why)
    listed = lethe("dead-letters", "list", "--json").document["dead_letters"]
    assert [one["number"] for one in listed] == [1, 0]
    assert listed[1]["detail"].startswith("the value is not JSON")
    assert {one["source"]["topic"] for one in listed} == {"lethe.deletions"}
    assert json.loads(lethe("dead-letters", "show", "1", "--json").document["value"]) == CAMEL
    assert '"rowIds": ["u1"]' in lethe("dead-letters", "show", "1").out


def test_a_replay_sends_the_same_bytes_to_the_same_topic(lethe: Within) -> None:
    answer = lethe("dead-letters", "replay", "0", "1")
    lethe("work", "--until-idle")

    assert "2 records sent again to lethe.deletions" in answer.out
    listed = lethe("dead-letters", "list", "--json").document
    assert listed["kept"] == 4  # they are as wrong as they were
    values = [lethe("dead-letters", "show", str(n), "--json").document["value"] for n in range(4)]
    assert values[:2] == values[2:]


def test_values_of_rows_are_replayed_from_their_topic_and_are_in_no_letter(lethe: Within) -> None:
    bad = {"request_id": "r", "model_id": "churn", "op": "insert", "rows": [{"id": "secret"}]}
    send(lethe.data_dir, json.dumps(bad).encode(), topic=topics.ROW_CHANGES)
    lethe("work", "--until-idle")

    last = lethe("dead-letters", "list", "--json").document["dead_letters"][0]
    shown = lethe("dead-letters", "show", str(last["number"]))
    assert last["source"]["topic"] == "lethe.row-changes"
    assert "secret" not in shown.out
    refused = lethe("dead-letters", "replay", "999", str(last["number"]), code=2)
    assert "there is no dead letter 999" in refused.err
