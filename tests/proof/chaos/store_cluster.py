"""Three primaries and their replicas, and what can happen to them; the log is Kafka.

Clients reach the nodes themselves, not through a proxy: a cluster tells them its own addresses. A
fault has ended when the cluster is whole again, so that there is a replica of every primary before
the next one dies.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import redis

from lethe.engine.store.layout.keys import ModelKeys, every_partition
from lethe.engine.store.server.connection import connect, text
from lethe.engine.store.server.rewrite import ask_for_rewrite, ended
from tests.proof.chaos.store_pair import Durability, Loss, StorePair
from tests.support.cluster import ClusterProcesses, lagging, tag_slot, wait_until

FAULTS = {
    "a primary is killed": 60,
    "a primary is killed whose replica lags": 60,
    "a replica takes over as it is told": 60,
    "a slot moves": 15,
}
"""What befalls it, and how often beside the other faults of a run."""

_PATIENCE_SECONDS = 120.0  # on a machine that is busy with much else
_LAG_SECONDS = 0.6


@dataclass
class StoreCluster:
    """The six servers. ``losses``: what a replica that took over did not have."""

    directory: Path
    losses: list[Loss] = field(default_factory=list)
    busy: threading.RLock = field(default_factory=threading.RLock)
    durability: Durability = "everysec"
    routes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._cluster = ClusterProcesses(self.directory / "cluster")

    @property
    def url(self) -> str:
        """Where clients begin."""
        return self._cluster.url

    def start(self) -> None:
        """Start all servers, and wait until they form a cluster."""
        self._cluster.start()

    def close(self) -> None:
        """Stop them."""
        self._cluster.close()

    def promise(self, durability: Durability) -> None:
        """Refuse: it promises the same throughout."""
        raise NotImplementedError(f"a cluster that syncs: {durability}")

    def tend(self) -> None:
        """Do nothing: every server has an append-only file."""

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Keep faults away."""
        with self.busy:
            yield

    def rewritten(self) -> dict[str, Path]:
        """Have all nodes write their files anew, as workers do; return where these are."""
        with self.busy, connect(self.url) as client:
            wait_until(self._cluster.whole, _PATIENCE_SECONDS)
            rewrites = ask_for_rewrite(client)
            assert rewrites is not None, "a node is away"
            wait_until(lambda: ended(client, rewrites) is True, _PATIENCE_SECONDS)
        nodes = self._cluster.nodes.items()
        return {f"node {node.data.name}": node.data for _, node in nodes}

    # -- faults -------------------------------------------------------------------------------

    def befall(self, what: str, rng: random.Random) -> str:
        """Let one of `FAULTS` happen, to the primary of a partition of commits; return whom."""
        slot = tag_slot(rng.choice(list(every_partition())).index)
        primary = self._cluster.owner(slot)
        match what:
            case "a primary is killed":
                self._kill(primary, slot, 0.0)
            case "a primary is killed whose replica lags":
                self._kill(primary, slot, rng.uniform(0.1, _LAG_SECONDS))
            case "a replica takes over as it is told":
                replica = self._cluster.replica_of(primary)
                self._cluster.client(replica).execute_command("CLUSTER FAILOVER")
                self._wait_for_another(slot, primary)
            case "a slot moves":
                self._cluster.migrate(slot)
            case _:
                raise ValueError(f"no such fault: {what}")
        wait_until(self._cluster.whole, _PATIENCE_SECONDS)
        return primary

    def _kill(self, primary: str, slot: int, lag: float) -> None:
        """Kill a primary; once its replica has taken over, start it again.

        ``lag``: for so many seconds before, the replica receives nothing.
        """
        begin, replica = time.time(), self._cluster.replica_of(primary)
        with lagging(self._cluster, primary) if lag else contextlib.nullcontext():
            time.sleep(lag)
            before = self._commits(primary)
            self._cluster.kill(primary)
        after = self._commits(replica)  # it cannot have got more since, and nobody writes there yet
        lost = sum(max(0, seen - after.get(model, 0)) for model, seen in before.items())
        how = "failover to a lagging replica" if lag else "failover"
        self.losses.append(Loss(how, self.durability, lost, begin, time.time()))
        self._wait_for_another(slot, primary)
        self._cluster.restart(primary)

    def _wait_for_another(self, slot: int, former: str) -> None:
        wait_until(lambda: self._cluster.owner(slot) != former, _PATIENCE_SECONDS)

    def _commits(self, address: str) -> dict[str, int]:
        """Return the number of the newest commit of each model that a node has."""
        host, _, port = address.rpartition(":")
        found: dict[str, int] = {}
        with redis.Redis(host=host, port=int(port), single_connection_client=True) as node:
            node.execute_command("READONLY")  # else a replica refuses
            for partition in every_partition():
                with contextlib.suppress(redis.ResponseError):  # it is another's
                    for name in map(text, node.smembers(partition.models)):
                        found[name] = int(node.hget(ModelKeys(name).head, "commit") or 0)
        return found


Store: TypeAlias = StorePair | StoreCluster
