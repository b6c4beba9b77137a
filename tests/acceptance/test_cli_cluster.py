"""Every command on a store that is a cluster, with Kafka as the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lethe.consumers import ModelSubscriber
from lethe.engine.store.layout.keys import commit_partition
from tests.acceptance.test_cli_serve import call, serving_at
from tests.support.audited import FIT
from tests.support.cluster import ClusterProcesses, models_of, tag_slot
from tests.support.command import Lethe, Within
from tests.support.servers import KafkaProcess
from tests.support.training import FEATURES, write

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka"),
]


def test_commands_on_a_cluster(
    private_kafka: Callable[[], KafkaProcess],
    cluster: ClusterProcesses,
    redis_url: str,
    redis_client: Any,
    tmp_path: Path,
) -> None:
    """Given a model on each primary: the main job, also while one of them dies."""
    kafka = {"LETHE_KAFKA_BOOTSTRAP_SERVERS": private_kafka().bootstrap, "LETHE_PARTITIONS": "4"}

    # Addresses of another kind of store, and nothing is written to either.
    node = f"redis://{cluster.primaries()[0]}"
    refused = Within(tmp_path / "data", LETHE_REDIS_URL=node, **kafka)("status", code=2)
    assert "is a node of a cluster; write redis+cluster://" in refused.err
    single = urlsplit(redis_url)._replace(scheme="redis+cluster", path="").geturl()
    refused = Within(tmp_path / "data", LETHE_REDIS_URL=single, **kafka)("status", code=2)
    assert "is a single server: write redis://" in refused.err
    assert redis_client.dbsize() == 0
    assert sum(cluster.client(one).dbsize() for one in cluster.primaries()) == 0

    key, trusted = tmp_path / "key.pem", tmp_path / "trusted"
    settings = {"LETHE_REDIS_URL": cluster.url, **kafka}
    settings |= {"LETHE_SIGNING_KEY": str(key), "LETHE_TRUSTED_KEYS": str(trusted)}
    trusted.write_text(Within(tmp_path / "data")("key", "new", str(key)).out)
    lethe = Within(tmp_path / "data", **settings)
    rows = str(write(tmp_path / "rows.parquet", logistic=False))
    more = tmp_path / "more.csv"
    more.write_text(f"id,household,{','.join(FEATURES)},y\nnew,h9999,1,2,3,4,5\n")
    models = models_of(cluster)
    for model in models:
        lethe("register", model, "--data", rows, *FIT, "--kind", "linear")
        lethe("delete", model, "--row", "u0", "--request-id", f"r-{model}")
        lethe("insert", model, "--data", str(more), "--id", "id", "--subject", "household")
    lethe("erase", "h1", "--erasure-id", "e1")
    lethe("work", "--until-idle")
    lethe("refresh", models[0], "--size", "rebuild")
    lethe("work", "--until-idle")

    assert "COMPLETE" in lethe("erasures", "e1").out
    assert {one["model_id"] for one in lethe("status", "--json").document["models"]} == {*models}
    checked = lethe("check").out
    assert ": 3 primaries" in checked
    lethe("verify", models[0], "--digest")  # it was rebuilt
    for model in models:
        lethe("verify", model)
        lethe("audit", model)
        lethe("versions", model)
        lethe("export", model, "--out", str(tmp_path / f"{model}.npz"))
        assert "APPLIED" in lethe("receipt", f"r-{model}").out

    # A worker of its own goes on when a primary dies.
    slot = tag_slot(commit_partition(models[0]))
    beside = Lethe(tmp_path / "data", **settings)
    with beside.working():
        for model in models:
            beside("delete", model, "--row", "u10", "--wait", "60")
        victim = cluster.owner(slot)
        cluster.kill(victim)
        cluster.wait_until_moved(slot, victim)
        for model in models:
            beside("delete", model, "--row", "u11", "--wait", "60")
    for model in models:
        lethe("verify", model)
        lethe("audit", model)
    with ModelSubscriber.connect(
        kafka=kafka["LETHE_KAFKA_BOOTSTRAP_SERVERS"], redis=cluster.url, trusted_keys=trusted
    ) as subscriber:
        newest = subscriber.latest(models[0])
    with serving_at(beside.start("serve", "--port", "0", "--json")) as url:
        status, document = call(url, "GET", f"/v1/models/{models[0]}/parameters")
    assert (status, document.get("version")) == (200, newest.version), document
    lethe("unregister", models[0], "--yes")
    lethe("work", "--until-idle")
    cluster.repair()
