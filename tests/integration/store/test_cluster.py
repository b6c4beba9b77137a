"""A store on a real cluster of three primaries: the main paths, and addresses that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from pydantic import SecretStr

from lethe.consumers.audit.health.checks import check_store
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import open_runtime
from lethe.engine.errors import InvalidData, StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import LOSSES, SETTLED, TOPICS, ModelKeys
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.cluster import Cluster, every_server, slot_of
from lethe.engine.store.server.connection import connect, memory_policies, reachable
from lethe.engine.store.server.rewrite import ask_for_rewrite, ended
from lethe.engine.store.server.row_keys import RowKeys
from lethe.engine.store.topics import KnownTopic, KnownTopics, Loss
from tests.support import erasures
from tests.support.cluster import ClusterProcesses, models_of, slots_by_tag, tag_slot, wait_until
from tests.support.command import Lethe
from tests.support.invariants import check_model
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.servers import ROOT

pytestmark = pytest.mark.redis

ACL = ROOT / "deploy" / "valkey-users.acl"


@pytest.fixture
def platform(cluster: ClusterProcesses) -> Iterator[Platform]:
    """A platform whose store is the cluster."""
    made = Platform(MemoryLog(), cluster.url)
    yield made
    made.close()


@pytest.fixture
def client(cluster: ClusterProcesses) -> Iterator[Cluster]:
    """A client of the cluster."""
    with connect(cluster.url) as made:
        assert isinstance(made, Cluster)
        yield made


def test_models_on_all_nodes_are_deleted_from_and_refreshed(
    cluster: ClusterProcesses, platform: Platform
) -> None:
    """Given models on each primary, one poll for all of them leaves what retraining gives."""
    models = models_of(cluster)
    for model, kind in zip(models, ("linear", "logistic", "linear"), strict=True):
        platform.register(model, kind=kind, budget=10.0)
    for model in models:
        platform.send_index(model, 0, 1, 2)
        platform.send_index(model, 3)
    platform.drain()
    for model in models:
        platform.refresh(model, RefreshSize.REBUILD)
        platform.delete(model, 4)
        assert platform.load(model).meta.generation == 1
        check_model(platform, model)
    for address in cluster.primaries():
        assert cluster.client(address).dbsize(), f"{address} has no keys"


def test_an_erasure_asks_models_on_all_nodes(cluster: ClusterProcesses, platform: Platform) -> None:
    models = models_of(cluster)
    for model in models:
        erasures.register(platform, model)
    worker = erasures.erasure_worker(platform)
    erasures.erase(platform, "subject-1", "e1")
    erasures.drain(platform, worker)
    worker.close()
    outcome = erasures.outcomes(erasures.finals(platform)["e1"])
    assert outcome == dict.fromkeys(models, ("APPLIED", erasures.SUBJECT_ROWS))


def test_what_waits_for_the_disk_waits_for_each_primary_and_its_replica(
    cluster: ClusterProcesses, platform: Platform
) -> None:
    assert platform.store.barrier.waits
    platform.store.wait_durable()
    for address in cluster.primaries():
        for server in (address, cluster.replica_of(address)):
            assert cluster.client(server).keys(f"{SETTLED}:*"), server


def test_each_role_may_do_on_a_cluster_what_it_does(
    cluster: ClusterProcesses, platform: Platform
) -> None:
    """Given the rights of deploy/: slots are read, and who writes waits for disks and replicas."""
    [model, *_] = models_of(cluster)
    platform.register(model)
    users = [line.split()[1:] for line in ACL.read_text().splitlines() if "lethe-" in line]
    try:
        for name, *rights in users:
            rights[2] = ">secret"  # the place of the hash
            for address in cluster.nodes:
                cluster.client(address).execute_command("ACL SETUSER", name, *rights)
            url = cluster.url.replace("://", f"://{name}:secret@")
            with connect(url) as role:
                assert role.hget(ModelKeys(model).head, "commit") == b"1"
                if name != "lethe-subscriber":
                    assert len(memory_policies(role)) == 6
                if name in ("lethe-worker", "lethe-operator", "lethe-refresh"):
                    Barrier(role, required=False).sync(role)
    finally:
        for address in cluster.nodes:
            cluster.client(address).acl_deluser(*(name for name, *_ in users))
    assert len(users) == 5


def test_the_ranges_of_the_docs_spread_the_tags() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for slots in slots_by_tag():
        tags = [f"c{i:02d}" for i in range(16) if slots[0] <= tag_slot(i) <= slots[-1]]
        assert f"| {slots[0]}-{slots[-1]} | {' '.join(tags)} |" in page


def test_commands_find_their_nodes(client: Cluster) -> None:
    """Given keys on all nodes: pipelines, transactions on one, scans, scripts, watched keys."""
    keys = [f"key-{i}" for i in range(60)]
    pipeline = client.pipeline(transaction=False)
    for i, key in enumerate(keys):
        pipeline.set(key, i)
        pipeline.get(key)
    assert pipeline.execute()[1::2] == [b"%d" % i for i in range(60)]
    assert sorted(client.scan_iter("key-*")) == sorted(key.encode() for key in keys)
    assert client.eval("return redis.call('GET', KEYS[1])", 1, "key-7") == b"7"
    client.hset("hash", mapping={str(i): i for i in range(1000)})
    assert len(dict(client.hscan_iter("hash", count=10))) == 1000
    watched: Any
    with client.pipeline() as watched:
        watched.watch("key-1")
        assert watched.get("key-1") == b"1"
        watched.multi()
        watched.set("key-1", "one")
        client.set("key-1", "another's")
        with pytest.raises(redis.WatchError):
            watched.execute()


def test_an_error_is_that_of_its_own_command(client: Cluster) -> None:
    client.set("text", "a")
    pipeline = client.pipeline(transaction=False)
    pipeline.hget("text", "a")
    pipeline.set("other", 1)
    first, second = pipeline.execute(raise_on_error=False)
    assert isinstance(first, redis.ResponseError)
    assert second is True
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.hget("text", "a")


@pytest.mark.parametrize("command", ["INFO", "KEYS", "FLUSHALL", "WAITAOF", "SCRIPT LOAD"])
def test_what_is_meant_for_a_server_is_not_sent_to_any(command: str) -> None:
    with pytest.raises(TypeError, match="names no key"):
        slot_of((command, "something"))


def test_a_transaction_across_nodes_is_refused(client: Cluster) -> None:
    pipeline = client.pipeline(transaction=True)
    pipeline.set("a", 1)
    pipeline.set("b", 1)
    with pytest.raises(TypeError, match="2 slots"):
        pipeline.execute()
    assert client.get("a") is None


def test_every_node_rewrites_its_files(client: Cluster) -> None:
    servers = every_server(client)
    assert servers is not None
    assert len(servers) == 6
    before = [int(server.info("persistence")["aof_rewrites"]) for server in servers]
    rewrites = ask_for_rewrite(client)
    assert rewrites is not None
    wait_until(lambda: ended(client, rewrites) is True)
    after = [int(server.info("persistence")["aof_rewrites"]) for server in servers]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1] * 6
    assert set(memory_policies(client).values()) == {"noeviction"}


def test_a_lost_topic_is_noted_across_nodes(client: Cluster) -> None:
    known = KnownTopics(client)
    known.accept(KnownTopic("id", 4), Loss("lethe.deletions", "made again", "now"))
    assert known.read() == {"lethe.deletions": KnownTopic("id", 4)}
    assert [loss.topic for loss in known.losses()] == ["lethe.deletions"]
    assert slot_of(("GET", TOPICS)) != slot_of(("GET", LOSSES))


def test_row_keys_lie_on_one_server(client: Cluster) -> None:
    with pytest.raises(InvalidData, match="LETHE_ROW_KEYS_URL names a cluster"):
        RowKeys(client)


def test_a_check_counts_the_nodes(cluster: ClusterProcesses, platform: Platform) -> None:
    runtime: Any = type("Runtime", (), {})()
    runtime.redis_url, runtime.log = cluster.url, platform.log
    runtime.settings = Settings(redis_url=SecretStr(cluster.url))
    first, *others = check_store(platform.store, runtime)
    assert first.detail.endswith(": 3 primaries")
    assert all(check.ok for check in others)


# -- what is wrong, in one line ---------------------------------------------------------------


def keys_in(cluster: ClusterProcesses) -> int:
    """Return how many keys there are on all nodes."""
    return sum(int(cluster.client(one).dbsize()) for one in cluster.primaries())


def test_a_cluster_without_kafka(cluster: ClusterProcesses, tmp_path: Path) -> None:
    answer = Lethe(tmp_path, LETHE_REDIS_URL=cluster.url)("work", "--until-idle", code=2)
    assert "a cluster, which cannot hold the log: give --kafka" in answer.err
    assert keys_in(cluster) == 0


def test_a_node_that_is_named_as_a_single_server(cluster: ClusterProcesses, tmp_path: Path) -> None:
    for address in cluster.nodes:
        settings = Settings(redis_url=SecretStr(f"redis://{address}"), data_dir=tmp_path)
        with (
            open_runtime(settings) as runtime,
            pytest.raises(InvalidData, match=rf"{address} is a node .* write redis\+cluster://"),
        ):
            runtime.ensure_topics()
    assert keys_in(cluster) == 0


def test_a_subscriber_that_names_a_node_is_told_what_to_write(cluster: ClusterProcesses) -> None:
    with (
        connect(f"redis://{cluster.primaries()[0]}") as client,
        pytest.raises(StoreUnavailable, match=r"write redis\+cluster://"),
        reachable(client),
    ):
        [client.get(f"key-{i}") for i in range(100)]


def test_a_single_server_that_is_named_as_a_cluster(
    redis_url: str, redis_client: redis.Redis
) -> None:
    url = urlsplit(redis_url)._replace(scheme="redis+cluster", path="").geturl()
    with (
        connect(url) as client,
        pytest.raises(InvalidData, match="is a single server: write redis:// or rediss://"),
    ):
        client.set("a", 1)
    assert redis_client.dbsize() == 0


def test_a_cluster_with_slots_that_nobody_has(cluster: ClusterProcesses) -> None:
    primary = cluster.primaries()[0]
    cluster.client(primary).execute_command("CLUSTER DELSLOTS", 0, 1, 2)
    try:
        with (
            connect(f"redis+cluster://{primary}") as client,
            pytest.raises(StoreUnavailable, match=r"no node for 3 of its 16384 slots.* 0; give"),
        ):
            client.set("a", 1)
    finally:
        cluster.client(primary).execute_command("CLUSTER ADDSLOTS", 0, 1, 2)
    cluster.repair()


def test_a_cluster_that_is_not_there() -> None:
    with (
        connect("redis+cluster://user:hunter2@127.0.0.1:1,127.0.0.1:2") as client,
        pytest.raises(StoreUnavailable) as found,
        reachable(client),
    ):
        client.get("a")
    assert "the store at 127.0.0.1:1 cannot be reached" in str(found.value)
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("redis+cluster://127.0.0.1:1/3", "names database 3: a cluster has database 0 only"),
        ("redis+cluster://127.0.0.1:x", "is not a usable address"),
        ("redis+cluster://127.0.0.1:1,", "is not a usable address"),
        ("redis+cluster://127.0.0.1:1?nonsense=1", "is not a usable address"),
    ],
)
def test_an_address_that_is_none(url: str, line: str) -> None:
    with pytest.raises(InvalidData, match=line):
        connect(url)
