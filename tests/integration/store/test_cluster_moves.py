"""What happens to a cluster while deletions flow: slots move, primaries die, replicas take over.

No deletion may be lost or applied twice, whatever the promoted replica had not yet received.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import redis

from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.engine.errors import StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.cluster import Cluster
from lethe.engine.store.server.connection import connect, reachable
from tests.support.cluster import ClusterProcesses, models_of, tag_slot, wait_until
from tests.support.invariants import check_model, ledger_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform

pytestmark = pytest.mark.redis

ROWS = 100  # of each model, one a request


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
        end = self.sent + ROWS // 10
        while thread.is_alive():
            if self.sent < end:
                self.send()
            self.turn()
            time.sleep(0.02)
        thread.join()
        assert not failed, failed
        self.drain()

    def drain(self) -> None:
        """Work until everything is decided; connections that broke say so once each."""
        deadline = time.monotonic() + 60.0
        while True:
            try:
                self.platform.drain(self._worker, self._refresher)
            except TRANSIENT:
                self._worker.recover()
                self._refresher.recover()
                assert time.monotonic() < deadline
                continue
            return

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
def traffic(cluster: ClusterProcesses) -> Iterator[Traffic]:
    """Three models, one on each primary."""
    made = Traffic(cluster)
    yield made
    cluster.repair()
    made.platform.close()


def fail_over(traffic: Traffic, model: int) -> None:
    """Kill a model's primary, wait for a replica in its place, and start the former one again."""
    cluster, slot = traffic.cluster, traffic.slot(model)
    victim = cluster.owner(slot)
    cluster.kill(victim)
    cluster.wait_until_moved(slot, victim)
    cluster.restart(victim)
    wait_until(cluster.whole)


def test_a_primary_of_each_model_dies_while_deletions_flow(traffic: Traffic) -> None:
    for model in range(3):
        traffic.during(partial(fail_over, traffic, model))
    traffic.check()


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
        replica = cluster.nodes[cluster.replica_of(victim)]
        before = len(ledger_of(traffic.platform, traffic.models[model]))
        os.kill(replica.pid, signal.SIGSTOP)
        cluster.client(victim).client_kill_filter(_type="replica")  # what follows is not sent
        try:
            traffic.send()
            traffic.drain()
        finally:
            cluster.kill(victim)
            os.kill(replica.pid, signal.SIGCONT)
        cluster.wait_until_moved(traffic.slot(model), victim)
        ledger = ModelKeys(traffic.models[model]).ledger
        stored = redis.Redis.from_url(replica.url)
        with contextlib.closing(stored):
            assert stored.hlen(ledger) == before, "the replica has what it should lack"
        traffic.send()
        traffic.drain()
        cluster.restart(victim)
        wait_until(cluster.whole)
    traffic.check()


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
