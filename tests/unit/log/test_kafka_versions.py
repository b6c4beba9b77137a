"""Given a version of kafka-python, when it is used, then its repairs are known to fit it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module

import kafka
import pytest

import kafka_python_defects
from lethe.consumers.log.kafka import versions
from lethe.consumers.log.kafka.connection import Connection
from lethe.consumers.log.kafka.server import Server
from lethe.consumers.log.kafka.versions import REPAIRS, Repair, check_version, is_there
from lethe.engine.errors import InvalidData


@pytest.fixture(autouse=True)
def check_anew() -> Iterator[None]:
    check_version.cache_clear()
    yield
    check_version.cache_clear()


def test_each_repair_has_a_reproduction_and_each_reproduction_a_repair() -> None:
    defects = [defect.__name__ for defect in kafka_python_defects.DEFECTS]
    assert sorted(repair.defect for repair in REPAIRS) == sorted(defects)


@pytest.mark.parametrize("repair", REPAIRS, ids=lambda repair: repair.defect)
def test_each_repair_exists_and_so_do_the_parts_that_it_needs(repair: Repair) -> None:
    module, _, name = repair.by.partition(".")
    assert hasattr(import_module(f"lethe.consumers.log.kafka.{module}"), name)
    assert [part for part in repair.parts if not is_there(part)] == []


def test_a_tested_version_is_used_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert kafka.__version__ in versions.TESTED
    with caplog.at_level(logging.DEBUG):
        check_version()
    assert caplog.records == []


def test_another_version_with_all_parts_is_used_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka, "__version__", "3.0.99")
    check_version()
    check_version()
    [record] = caplog.records
    assert "Lethe was not tested with kafka-python 3.0.99" in record.getMessage()


@pytest.mark.parametrize(
    "part",
    [
        "kafka.cluster:ClusterMetadata._no_such",
        "kafka.cluster:NoSuchClass.config",
        "kafka.no_such_module:Class.attribute",
    ],
)
def test_another_version_without_a_part_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(kafka, "__version__", "3.0.99")
    repair = Repair("repairs.refuse_new_topics", "metadata_requests_create_topics", (part,))
    monkeypatch.setattr(versions, "REPAIRS", (*REPAIRS, repair))
    connection = Connection(Server(("127.0.0.1:1",), "tests", {}, 0.1))
    with pytest.raises(InvalidData, match=r"3\.0\.99 cannot be used: it has no .*==3\.0") as caught:
        connection.open(kafka.KafkaConsumer)
    assert part.partition(":")[2] in str(caught.value)
    assert "\n" not in str(caught.value)
