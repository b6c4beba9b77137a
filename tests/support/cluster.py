"""A real cluster of the bundled Valkey: three primaries, a replica of each."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from lethe.engine.store.layout.keys import COMMIT_PARTITIONS, ModelKeys, PartitionKeys
from tests.support.servers import ValkeyProcess, free_port

PRIMARIES = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 1000
PATIENT_MS = 60_000
FORM_SECONDS = 30.0

_SETTINGS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
    "cluster-replica-validity-factor": "0",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
    "appendfsync": "everysec",
}


def tag_slot(partition: int) -> int:
    """Return the slot of a commits partition."""
    return key_slot(PartitionKeys(partition).tag.encode())


def slots_by_tag(nodes: int = PRIMARIES) -> list[list[int]]:
    """Return the slots of each node: ranges that give each about as many commits partitions."""
    slots = sorted(map(tag_slot, range(COMMIT_PARTITIONS)))
    ends = [slots[(i + 1) * COMMIT_PARTITIONS // nodes - 1] + 1 for i in range(nodes - 1)]
    bounds = [0, *ends, SLOTS]
    return [list(range(*pair)) for pair in pairwise(bounds)]


def wait_until(true: Callable[[], bool], seconds: float = FORM_SECONDS) -> None:
    """Wait until something holds; servers that are away do not count as such."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(redis.RedisError):
            if true():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not after {seconds:g} s")
        time.sleep(0.02)


def models_of(cluster: ClusterProcesses, each: int = 1) -> list[str]:
    """Return names of models, so many on each primary."""
    names: dict[str, list[str]] = {address: [] for address in cluster.primaries()}
    for number in count():
        name = f"model-{number}"
        names[cluster.owner(tag_slot(ModelKeys(name).partition.index))].append(name)
        if all(len(found) >= each for found in names.values()):
            return [name for found in names.values() for name in found[:each]]
    raise AssertionError


class ClusterProcesses:
    """Six servers that form a cluster; each can be killed and started again."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.nodes: dict[str, ValkeyProcess] = {}
        self._clients: dict[str, redis.Redis] = {}

    @property
    def url(self) -> str:
        """Its address, for `connect`."""
        return "redis+cluster://" + ",".join(self.nodes)

    def client(self, address: str) -> Any:
        """Return a client of one node."""
        return self._clients[address]

    def add(self) -> str:
        """Start one more server, alone; return its address."""
        # Port + 10,000, the default for the bus, may be taken by an outgoing connection.
        settings = _SETTINGS | {"cluster-port": str(free_port())}
        node = ValkeyProcess(self.data / f"node-{len(self.nodes)}", settings)
        address = f"127.0.0.1:{node.port}"
        self.nodes[address] = node
        node.start()
        self._clients[address] = redis.Redis.from_url(node.url, decode_responses=True)
        return address

    def start(self) -> None:
        """Start the servers, and wait until each knows of all, and each replica has its copy."""
        addresses = [self.add() for _ in range(2 * PRIMARIES)]
        primaries, replicas = addresses[:PRIMARIES], addresses[PRIMARIES:]
        for number, (address, slots) in enumerate(zip(primaries, slots_by_tag(), strict=True)):
            self.client(address).execute_command("CLUSTER ADDSLOTSRANGE", slots[0], slots[-1])
            self.client(address).execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for address in addresses[1:]:
            self.meet(address)
        wait_until(lambda: all(self._is_met(one) for one in addresses))
        for primary, replica in zip(primaries, replicas, strict=True):
            self.client(replica).execute_command("CLUSTER REPLICATE", self.id_of(primary))
        wait_until(self.whole)

    def meet(self, address: str) -> None:
        """Have a server join."""
        node, first = self.nodes[address], next(iter(self.nodes))
        bus = node.settings["cluster-port"]
        self.client(first).execute_command("CLUSTER MEET", "127.0.0.1", node.port, bus)

    def _is_met(self, address: str) -> bool:
        seen = self.nodes_as_seen_by(address)
        return seen.keys() == self.nodes.keys() and not any(
            "handshake" in node["flags"] for node in seen.values()
        )

    def id_of(self, address: str) -> str:
        """Return a node's id."""
        return str(self.client(address).execute_command("CLUSTER MYID"))

    def nodes_as_seen_by(self, address: str) -> dict[str, dict[str, Any]]:
        """Return the nodes that one node knows, by address, with flags, slots and ids."""
        known: Any = self.client(address).cluster("NODES")
        return dict(known)

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """Let no node be given up within the block, however long it does not answer."""
        self._set_node_timeout(PATIENT_MS)
        try:
            yield
        finally:
            self._set_node_timeout(NODE_TIMEOUT_MS)

    def _set_node_timeout(self, milliseconds: int) -> None:
        for client in self._clients.values():
            client.config_set("cluster-node-timeout", milliseconds)

    def whole(self) -> bool:
        """Return whether the servers that run agree, serve all slots, and each has a known copy."""
        running = [one for one, node in self.nodes.items() if node.pid]
        seen = [self.nodes_as_seen_by(one) for one in running]
        owners = [
            {place: one["slots"] for place, one in nodes.items() if one["slots"]} for nodes in seen
        ]
        infos: list[Any] = [self.client(one).info("replication") for one in running]
        states: list[Any] = [self.client(one).cluster("INFO") for one in running]
        copies = [info for info in infos if info["role"] == "slave"]
        return (
            all(one == owners[0] for one in owners)
            and not any("fail" in nodes[one]["flags"] for nodes in seen for one in running)
            and len(copies) == len(infos) - len(owners[0])
            and all(info["master_link_status"] == "up" for info in copies)
            and all(self._has_copy(one) for one in owners[0])
            and all(self._lists_copies(one) for one in running)
            and all(state["cluster_state"] == "ok" for state in states)
        )

    def _has_copy(self, address: str) -> bool:
        info: Any = self.client(address).info("replication")
        return bool(info["connected_slaves"]) and bool(info["slave0"]["state"] == "online")

    def _lists_copies(self, address: str) -> bool:
        """Return whether a node names a replica of each primary, once it has heard from it.

        Until then, clients that ask this node do not know that there is one to wait for.
        """
        ranges = self.client(address).execute_command("CLUSTER SLOTS")
        return all(replicas for _, _, _, *replicas in ranges)

    def owner(self, slot: int) -> str:
        """Return the address of a slot's primary."""
        asked = next(one for one, node in self.nodes.items() if node.pid)
        for first, last, primary, *_ in self.client(asked).execute_command("CLUSTER SLOTS"):
            if first <= slot <= last:
                return f"{primary[0]}:{primary[1]}"
        raise LookupError(slot)

    def restart(self, address: str) -> None:
        """Start a killed server again."""
        self.nodes[address].start()

    def migrate(self, slot: int) -> str:
        """Move a slot to another primary, whole; return whose it is then."""
        source = self.owner(slot)
        target = next(one for one in self.primaries() if one != source)
        self.client(source).execute_command(
            *("CLUSTER MIGRATESLOTS SLOTSRANGE", slot, slot, "NODE", self.id_of(target))
        )
        self.wait_until_moved(slot, source)
        return target

    def wait_until_moved(self, slot: int, source: str) -> None:
        """Wait until a slot belongs to another server."""
        wait_until(lambda: self.owner(slot) != source)

    def kill(self, address: str) -> None:
        """Kill one server."""
        self.nodes[address].kill()

    def repair(self) -> None:
        """Start what was killed, wait until the cluster is whole, and empty it."""
        for node in self.nodes.values():
            if not node.pid:
                node.start()
        wait_until(self.whole)
        for address in self.primaries():
            self.client(address).flushall()
            self.client(address).wait(1, 5000)

    def primaries(self) -> list[str]:
        """Return the servers that have slots."""
        return list(dict.fromkeys(map(self.owner, range(0, SLOTS, SLOTS // 16))))

    def replica_of(self, address: str) -> str:
        """Return a primary's replica."""
        name = self.id_of(address)
        seen = self.nodes_as_seen_by(address)
        return next(place for place, node in seen.items() if node["master_id"] == name)

    def close(self) -> None:
        """Stop all servers."""
        for client in self._clients.values():
            client.close()
        for node in self.nodes.values():
            node.close()


@contextlib.contextmanager
def running_cluster(data: Path) -> Iterator[ClusterProcesses]:
    """Yield a cluster, which ends with the block."""
    cluster = ClusterProcesses(data)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@contextlib.contextmanager
def lagging(cluster: ClusterProcesses, primary: str) -> Iterator[str]:
    """Let a primary's replica receive nothing more; it is well again afterwards."""
    replica = cluster.replica_of(primary)
    os.kill(cluster.nodes[replica].pid, signal.SIGSTOP)
    try:
        cluster.client(primary).client_kill_filter(_type="replica")
        yield replica
    finally:
        os.kill(cluster.nodes[replica].pid, signal.SIGCONT)
