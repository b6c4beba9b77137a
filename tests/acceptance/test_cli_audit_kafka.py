"""`lethe audit` and `lethe receipt` on a real Kafka, and when the log has removed old receipts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from lethe.engine.store.layout.keys import commit_partition
from tests.support.audited import FIT
from tests.support.bundles import Bundle
from tests.support.command import Within
from tests.support.servers import KafkaProcess
from tests.support.training import write

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka"),
]


def results(document: Any) -> dict[str, str]:
    return {one["check"]: one["result"] for one in document["checks"]}


def remove_receipts(bootstrap: str, below: int) -> None:
    """Remove the oldest records of each partition, as their retention would."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        places = {TopicPartition("lethe.receipts", index): below for index in range(1)}
        admin.delete_records(places)
    finally:
        admin.close()


def test_receipts_that_kafka_has_removed_are_audited_from_the_state_and_missed_without(
    private_kafka: Callable[[], KafkaProcess], redis_url: str, redis_client: Any, tmp_path: Path
) -> None:
    """Given five requests; when the log loses four receipts; then only the state has them."""
    del redis_client  # it has emptied the database
    broker = private_kafka()
    key, trusted = tmp_path / "key.pem", tmp_path / "trusted"
    kafka = {"LETHE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap, "LETHE_PARTITIONS": "1"}
    signing = {"LETHE_SIGNING_KEY": str(key), "LETHE_TRUSTED_KEYS": str(trusted)}
    lethe = Within(tmp_path / "data", LETHE_REDIS_URL=redis_url, **kafka, **signing)
    trusted.write_text(Within(tmp_path / "data")("key", "new", str(key)).out)
    rows = write(tmp_path / "rows.parquet", logistic=False)
    lethe("register", "m", "--data", str(rows), *FIT, "--kind", "linear")
    for number in range(5):
        lethe("delete", "m", "--row", f"u{number}", "--request-id", f"r{number}")
    lethe("work", "--until-idle")
    sound = lethe("audit", "m", "--strict", "--json").document
    story = lethe("receipt", "r0", "--row", "u0", "--json").document
    assert set(results(sound).values()) == {"OK"}
    assert story["asked"]["rows"] == 1
    commit, version = story["commit"], story["version"]
    assert (commit["commit"], commit["prev"]) == (version["commit"], version["commit_prev"])
    assert commit["opened"] is True
    place = f"lethe.commits/{commit_partition('m')} at offset {commit['offset']}"
    assert commit["place"] == place
    assert story["receipts"][0]["signature"]["valid"] is True
    assert (story["ok"], story["rows"], story["erased"]["done"]) == (True, {"u0": True}, True)

    remove_receipts(broker.bootstrap, 4)
    export = str(tmp_path / "export")
    aged = lethe("audit", "m", "--strict", "--export", export, "--json").document
    offline = Within(tmp_path / "nothing", **signing)
    held = ("--data", str(rows), "--id", "id", "--deleted", str(tmp_path / "gone"))
    (tmp_path / "gone").write_text("u0\nu1\nu2\nu3\nu4\n")
    carried = offline("audit", "--bundle", export, *held, "--strict", "--json").document
    told = lethe("receipt", "r0", "--json").document
    bare = Bundle.read(Path(export))
    for line in bare.receipts:
        if line["partition"] < 0:
            bare.remove(line)
    bare.write(tmp_path / "bare")
    missing = offline("audit", "--bundle", str(tmp_path / "bare"), *held, "--json", code=1).document
    alone = Within(tmp_path / "empty", **kafka, LETHE_TRUSTED_KEYS=str(trusted))
    log_only = alone("audit", "m", "--json", code=1).document

    assert "4 of them kept by the state" in aged["checks"][0]["detail"]
    assert set(results(aged).values()) == {"OK"}
    assert set(results(carried).values()) == {"OK"}
    assert told["receipts"][0]["place"] is None
    assert told["inclusion"]["verified"] is True
    for document in (missing, log_only):
        assert document["failed"] == 0
        found = results(document)
        assert found["chain"] == found["parameters"] == found["signatures"] == "OK"
        assert found["receipts"] == found["rows deleted"] == document["verdict"] == "NOT PROVED"
    assert results(log_only)["state"] == "NOT CHECKED"
