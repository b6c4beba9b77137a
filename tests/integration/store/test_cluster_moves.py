"""What happens to a cluster while deletions flow: slots move, primaries die, replicas take over.

No deletion may be lost or applied twice, whatever the promoted replica had not yet received.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import redis

from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.errors import NotDurable, StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys, commit_partition
from lethe.engine.store.server import barrier
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.cluster import Cluster, every_server
from lethe.engine.store.server.connection import connect, reachable
from lethe.engine.store.server.rewrite import ask_for_rewrite, ended
from tests.support.cluster import ClusterProcesses, lagging, models_of, tag_slot, wait_until
from tests.support.crash_lane import check_row_keys
from tests.support.invariants import check_model, ledger_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.workloads import MAIN, WORKLOADS

pytestmark = pytest.mark.redis

FAILOVERS = int(os.environ.get("LETHE_TEST_FAILOVERS", "4"))
PER_TRAFFIC = 9
ROWS = 10  # at most deleted of each model while one thing happens, one a request


def drain(platform: Platform, worker: DeletionWorker, refresher: RefreshWorker) -> None:
    """Work until everything is decided; connections that broke say so once each."""
    deadline = time.monotonic() + 60.0
    while True:
        try:
            platform.drain(worker, refresher)
        except TRANSIENT:
            worker.recover()
            refresher.recover()
            assert time.monotonic() < deadline
            continue
        return


class Traffic:
    """Deletions of models on all nodes, one row a request, while something else happens."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster
        self.platform = Platform(MemoryLog(), cluster.url)
        self.models = models_of(cluster)
        self.at_step: AtStep = no_hook
        self.sent = 0
        for model in self.models:
            self.platform.register(model, budget=10.0)
        self._worker = self.platform.deletion_worker(at_step=self._reach)
        self._refresher = self.platform.refresh_worker()

    def _reach(self, step: str) -> None:
        self.at_step(step)

    def send(self) -> None:
        """Ask each model to delete its next row."""
        for model in self.models:
            self.platform.send_index(model, self.sent)
        self.sent += 1

    def turn(self) -> None:
        """Run the deletion worker once; recover as its loop does, but do not pause."""
        self.platform.turn(self._worker)

    def during(self, trouble: Callable[[], None]) -> None:
        """Send and work until ``trouble``, which runs beside it, has ended; then drain."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                trouble()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        end = self.sent + ROWS
        while thread.is_alive():
            if self.sent < end:
                self.send()
            self.turn()
            time.sleep(0.02)
        thread.join()
        assert not failed, failed
        self.drain()

    def drain(self) -> None:
        """Work until everything is decided."""
        drain(self.platform, self._worker, self._refresher)

    def check(self) -> None:
        """Check that each row that was named was deleted, once, and what that leaves."""
        self.platform.reconnect()
        wait_until(lambda: bool(self.platform.raw().ping()))
        for model in self.models:
            assert len(ledger_of(self.platform, model)) == self.sent
            check_model(self.platform, model)

    def slot(self, model: int) -> int:
        """Return the slot of one of the models."""
        return tag_slot(ModelKeys(self.models[model]).partition.index)


@pytest.fixture
def new_traffic(cluster: ClusterProcesses) -> Iterator[Callable[[], Traffic]]:
    """Make traffic on an empty cluster; it ends with the test."""
    made: list[Traffic] = []

    def make() -> Traffic:
        cluster.repair()
        made.append(Traffic(cluster))
        return made[-1]

    yield make
    cluster.repair()
    for one in made:
        one.platform.close()


@pytest.fixture
def traffic(new_traffic: Callable[[], Traffic]) -> Traffic:
    """Three models, one on each primary."""
    return new_traffic()


def fail_over(traffic: Traffic, model: int, *, lag: float) -> None:
    """Kill a model's primary, wait for its replica in its place, and start it again.

    The replica lacks what was acknowledged in the last ``lag`` seconds.
    """
    cluster, slot = traffic.cluster, traffic.slot(model)
    victim = cluster.owner(slot)
    with lagging(cluster, victim) if lag else contextlib.nullcontext():
        time.sleep(lag)
        cluster.kill(victim)
    cluster.wait_until_moved(slot, victim)
    cluster.restart(victim)
    wait_until(cluster.whole)


def test_primaries_die_while_deletions_flow(new_traffic: Callable[[], Traffic]) -> None:
    """Given models on each primary, each is killed in turn, every other time with a lag."""
    for first in range(0, FAILOVERS, PER_TRAFFIC):
        traffic = new_traffic()
        for number in range(first, min(first + PER_TRAFFIC, FAILOVERS)):
            traffic.during(partial(fail_over, traffic, number % 3, lag=0.3 * (number % 2)))
        traffic.check()


@pytest.mark.parametrize("name", MAIN)
def test_a_model_of_each_kind_outlives_its_primary(cluster: ClusterProcesses, name: str) -> None:
    """Given a replica that lacks the last commits of a model, it is rebuilt there all the same."""
    with contextlib.closing(Platform(MemoryLog(), cluster.url)) as platform:
        load, slot = WORKLOADS[name](platform), tag_slot(commit_partition("m"))
        load.register()
        load.work()
        victim = cluster.owner(slot)
        with lagging(cluster, victim):
            load.work()
            cluster.kill(victim)
        cluster.wait_until_moved(slot, victim)
        platform.reconnect()
        wait_until(lambda: bool(platform.raw().ping()))
        load.ask()
        drain(platform, *platform.pair)
        platform.order("m", RefreshSize.REBUILD)
        drain(platform, *platform.pair)
        load.work()
        load.judge()


def test_encrypted_rows_lie_on_a_cluster_and_their_keys_on_a_server(
    cluster: ClusterProcesses, redis_url: str, redis_client: redis.Redis
) -> None:
    platform = Platform(MemoryLog(), cluster.url, keys_url=redis_url)
    with contextlib.closing(platform):
        assert platform.store.row_keys is not None
        assert not platform.store.row_keys.is_on(platform.store.client)
        platform.register("m", budget=10.0)
        assert redis_client.dbsize() > 0
        platform.delete("m", 0, 1)
        check_model(platform)
        check_row_keys(platform)


@pytest.mark.parametrize("step", [Step.LOAD, Step.APPEND, Step.APPLY, Step.PUBLISH, Step.ADVANCE])
def test_a_primary_dies_at_a_step_of_a_request(traffic: Traffic, step: Step) -> None:
    """Given a commit that is acknowledged, or not yet, the next primary gets it from the log."""
    traffic.send()
    traffic.drain()
    victim = traffic.cluster.owner(traffic.slot(0))
    killed: list[str] = []

    def kill(reached: str) -> None:
        if reached == step and not killed:
            killed.append(victim)
            traffic.cluster.kill(victim)

    traffic.at_step = kill
    traffic.during(partial(traffic.cluster.wait_until_moved, traffic.slot(0), victim))
    assert killed
    traffic.check()


def test_a_replica_that_lacks_the_last_writes_takes_over(traffic: Traffic) -> None:
    """Given a replica that sleeps while commits are applied, it is promoted, and they are folded.

    The primary had acknowledged these writes.
    """
    cluster = traffic.cluster
    for model in range(3):
        traffic.send()
        traffic.drain()
        victim = cluster.owner(traffic.slot(model))
        before = len(ledger_of(traffic.platform, traffic.models[model]))
        with lagging(cluster, victim) as replica:
            traffic.send()
            traffic.drain()
            cluster.kill(victim)
        cluster.wait_until_moved(traffic.slot(model), victim)
        stored = cluster.client(replica).hlen(ModelKeys(traffic.models[model]).ledger)
        assert stored == before, "the replica has what it should lack"
        traffic.send()
        traffic.drain()
        cluster.restart(victim)
        wait_until(cluster.whole)
    traffic.check()


def test_what_only_the_store_has_does_not_count_before_a_replica_has_it(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a replica that hangs, and that no node gives up meanwhile, however busy the machine."""
    monkeypatch.setattr(barrier, "_BARRIER_SECONDS", 0.3)
    primary = cluster.primaries()[0]
    with cluster.patient(), connect(cluster.url) as client:
        waits = Barrier(client, required=False)
        with (
            lagging(cluster, primary),
            pytest.raises(NotDurable, match=r"no replica .* a failover would lose them"),
        ):
            waits.sync(client)
    cluster.repair()


def test_a_node_that_hangs_does_not_hold_up_who_asks_where_keys_are(
    cluster: ClusterProcesses,
) -> None:
    """Given a client that is told of the hanging node first."""
    with lagging(cluster, cluster.primaries()[0]) as replica:
        others = ",".join(one for one in cluster.nodes if one != replica)
        with connect(f"redis+cluster://{replica},{others}") as client:
            begin = time.monotonic()
            client.set("a", 1)
            assert time.monotonic() - begin < 10.0
    cluster.repair()


def test_no_rewrite_counts_while_a_node_is_away(cluster: ClusterProcesses) -> None:
    """Given a replica that is down: its files still have what was erased."""
    with connect(cluster.url) as client:
        rewrites = ask_for_rewrite(client)
        assert rewrites is not None
        wait_until(lambda: ended(client, rewrites) is True)
        cluster.kill(cluster.replica_of(cluster.primaries()[0]))
        wait_until(lambda: every_server(client) is None)
        assert ask_for_rewrite(client) is None
        assert ended(client, rewrites) is None
        cluster.repair()
        assert ended(client, rewrites) is True


def test_a_cluster_that_is_down_is_an_unavailable_store(cluster: ClusterProcesses) -> None:
    """Given a primary and its replica that are down, no node's answer counts, whoever asks."""
    first, other, *_ = cluster.primaries()
    with connect(cluster.url) as client:
        assert isinstance(client, Cluster)
        key = client.keys_on_each("key")[other]
        for address in (cluster.replica_of(first), first):
            cluster.kill(address)
        wait_until(lambda: cluster.client(other).cluster("INFO")["cluster_state"] == "fail")
        pipeline = client.pipeline(transaction=False)
        pipeline.get(key)
        with pytest.raises(StoreUnavailable, match="The cluster is down"), reachable(client):
            pipeline.execute(raise_on_error=False)
    cluster.repair()


def test_slots_move_at_once_while_deletions_flow(traffic: Traffic) -> None:
    """Given Valkey's own migration, which hands a slot over whole, everything goes on."""
    cluster = traffic.cluster

    def move() -> None:
        for model in range(3):
            cluster.migrate(traffic.slot(model))

    traffic.during(move)
    traffic.check()
    traffic.platform.order(traffic.models[0], RefreshSize.REBUILD)
    traffic.drain()
    assert traffic.platform.load(traffic.models[0]).meta.generation == 1
    traffic.check()


def test_slots_move_key_by_key_while_deletions_flow(traffic: Traffic) -> None:
    """Given the older way, scripts wait while a slot is on two nodes, and single keys do not."""
    cluster, slot = traffic.cluster, traffic.slot(0)
    source = cluster.owner(slot)
    target = next(one for one in cluster.primaries() if one != source)
    names = {one: cluster.id_of(one) for one in (source, target)}
    asked: list[bytes | None] = []

    def move() -> None:
        cluster.client(target).execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[source])
        cluster.client(source).execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[target])
        keys = cluster.client(source).execute_command("CLUSTER GETKEYSINSLOT", slot, 10_000)
        port = target.rpartition(":")[2]
        for number, key in enumerate(keys):
            cluster.client(source).execute_command("MIGRATE", "127.0.0.1", port, key, 0, 5000)
            if number == len(keys) // 2:
                time.sleep(2.0)
                head = ModelKeys(traffic.models[0]).head
                with connect(cluster.url) as client:
                    asked.append(client.hget(head, "commit"))
        for node in (target, source):
            cluster.client(node).execute_command("CLUSTER SETSLOT", slot, "NODE", names[target])
        wait_until(cluster.whole)

    traffic.during(move)
    assert asked[0] is not None
    traffic.check()


def test_a_command_follows_its_key(cluster: ClusterProcesses) -> None:
    """Given a client of before the move, MOVED is followed, in transactions too, and ASK.

    A transaction on a slot that is on two nodes is refused for a while: nothing of it happens.
    """
    with connect(cluster.url) as client:
        assert isinstance(client, Cluster)
        client.set("{a}1", 1)
        slot = int(client.primaries()[client.address_of(("GET", "{a}1"))].cluster("KEYSLOT", "{a}"))
        source = cluster.owner(slot)
        target = cluster.migrate(slot)
        pipeline = client.pipeline(transaction=True)
        pipeline.incr("{a}1")
        pipeline.incr("{a}2")
        assert pipeline.execute() == [2, 1]
        assert client.address_of(("GET", "{a}1")) == target

        names = {one: cluster.id_of(one) for one in (source, target)}
        cluster.client(source).execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[target])
        cluster.client(target).execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[source])
        assert client.set("{a}3", 3)
        assert client.get("{a}3") == b"3"
        assert client.get("{a}1") == b"2"
        pipeline.incr("{a}1")
        pipeline.incr("{a}3")
        with pytest.raises(StoreUnavailable, match="slots of the cluster moved"), reachable(client):
            pipeline.execute()
        assert client.get("{a}1") == b"2"
        for node in (source, target):
            cluster.client(node).execute_command("CLUSTER SETSLOT", slot, "STABLE")
