"""Workers say in the store that they live and which partitions they read, by leases that expire.

A lease is renewed whenever a worker polls: what does not poll does not work either. Leases decide
nothing: the log's consumer groups do. Leases are there for people to see, and spare work: a refresh
worker puts off a model whose refresh runs elsewhere, after partitions have moved.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version as package_version
from typing import Any

from pydantic import BaseModel, ConfigDict
from redis.exceptions import RedisError

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Time, rfc3339
from lethe.consumers.log.base import Consumer, Partition
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.workers.drained import PartitionLag
from lethe.engine.errors import LetheError
from lethe.engine.store.layout.keys import WORKERS, worker_lease
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import run_pipeline
from lethe.engine.store.store import ModelStore

LEASE_SECONDS = 30.0
"""How long a worker that was killed still counts as alive: it polls at least each second, but a
store that fails over may be away for some."""

RENEW_SECONDS = 5.0
"""Between two renewals, unless the assignment changes: two short commands a worker."""


def topics_by_role() -> Mapping[str, Sequence[str]]:
    """Return the topics that workers of each role read; the intake reads those of a mapping."""
    return {
        "erasures": (topics.ERASURES,),
        "refresh": (topics.REFRESH_JOBS,),
        "deletions": (topics.ROW_CHANGES, topics.DELETIONS),
    }


class RefreshShown(BaseModel):
    """A refresh that a worker does (``running``), or that waits there.

    ``bytes`` is the memory that it needs, about; 0 if it reads no rows, or is not known yet.
    ``since`` is when it was begun, or ordered.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_id: str
    job_id: str
    reason: str
    running: bool
    bytes: float
    since: Time

    @property
    def line(self) -> str:
        """Return what it does, for a person: ``runs since ..., about 310 MB (error_budget)``."""
        needs = f", about {self.bytes / 1e6:,.0f} MB" if self.bytes else ""
        does = "runs" if self.running else "waits"
        return f"{does} since {rfc3339(self.since)}{needs} ({self.reason})"


class Lease(BaseModel):
    """What a worker says of itself.

    ``partitions`` are indices by topic. A refresh worker has ``refreshes``, those that run first.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    role: str
    host: str
    pid: int
    version: str
    since: Time
    partitions: Mapping[str, tuple[int, ...]] = {}
    refreshes: tuple[RefreshShown, ...] = ()

    @property
    def reads(self) -> str:
        """Return what it reads, for a person: ``lethe.deletions 0-7``."""
        return ", ".join(f"{topic} {ranges(of)}" for topic, of in self.partitions.items()) or "-"


class Announcement:
    """Says in the store what a worker's consumer reads; no work depends on it.

    ``refreshes`` are the refreshes that it says are here.
    """

    def __init__(self, consumer: Consumer, store: ModelStore, role: str) -> None:
        self._consumer = consumer
        self._client = store.client
        self._name = secrets.token_hex(8)
        self._lease = Lease(
            role=role,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=package_version("lethe-engine"),
            since=datetime.now(UTC),
        )
        self.refreshes: tuple[RefreshShown, ...] = ()
        self._said: tuple[object, ...] = ()
        self._due = 0.0
        self._refused = False
        self._try(self._sweep)

    def __call__(self) -> None:
        """Renew the lease where it is time: before each poll."""
        held, now = self._consumer.assignment(), time.monotonic()
        says = held, self.refreshes
        if says != self._said or now >= self._due:
            self._said, self._due = says, now + RENEW_SECONDS
            partitions = {"partitions": _by_topic(held), "refreshes": self.refreshes}
            self._lease = self._lease.model_copy(update=partitions)
            self._try(self._renew)

    def running_elsewhere(self) -> frozenset[str]:
        """Return the models whose refreshes other workers do; raises `StoreUnavailable`."""
        mine = self._lease.host, self._lease.pid
        return frozenset(
            shown.model_id
            for lease in _parsed(self._client)
            for shown in lease.refreshes
            if shown.running and (lease.host, lease.pid) != mine
        )

    def end(self) -> None:
        """Withdraw the lease."""
        self._try(self._withdraw)

    def _renew(self) -> None:
        value, milliseconds = self._lease.model_dump_json(), int(LEASE_SECONDS * 1000)

        def queue(pipe: Any) -> None:
            pipe.set(worker_lease(self._name), value, px=milliseconds)
            pipe.sadd(WORKERS, self._name)

        run_pipeline(self._client, (), queue)

    def _withdraw(self) -> None:
        with reachable(self._client):
            self._client.delete(worker_lease(self._name))
            self._client.srem(WORKERS, self._name)

    def _sweep(self) -> None:
        """Forget the names of workers whose leases have expired."""
        gone = [name for name, value in _stored(self._client) if value is None]
        if gone:
            with reachable(self._client):
                self._client.srem(WORKERS, *gone)

    def _try(self, act: Any) -> None:
        """Do something that no work depends on; if it fails, say so once."""
        try:
            act()
            self._refused = False
        except (LetheError, RedisError) as error:
            if not self._refused:
                logger("work").warning(
                    "this worker cannot announce itself", action="lease", reason=str(error)
                )
            self._refused = True


def read_leases(store: ModelStore) -> list[Lease]:
    """Return the workers that are alive, by role and host. Cost: two round trips.

    Raises
    ------
    StoreUnavailable
        The store cannot be reached, or its user may not read leases.
    """
    return sorted(_parsed(store.client), key=lambda one: (one.role, one.host, one.pid))


def _parsed(client: Any) -> Iterator[Lease]:
    for _, value in _stored(client):
        try:
            yield Lease.model_validate_json(value or b"")
        except ValueError:
            continue  # expired, or of another version of the program


def _stored(client: Any) -> Iterator[tuple[str, bytes | None]]:
    with reachable(client):
        names = sorted(text(name) for name in client.smembers(WORKERS))
        values = client.mget([worker_lease(name) for name in names]) if names else []
    return zip(names, values, strict=True)


def _by_topic(held: Iterable[Partition]) -> dict[str, tuple[int, ...]]:
    grouped = itertools.groupby(sorted(held), key=lambda partition: partition.topic)
    return {topic: tuple(sorted(one.index for one in of)) for topic, of in grouped}


def find_unattended(waiting: Iterable[PartitionLag], leases: Iterable[Lease]) -> list[str]:
    """Return in words which records wait that no living worker reads, a line a role."""
    read = {
        (topic, index) for lease in leases for topic, of in lease.partitions.items() for index in of
    }
    left: dict[str, list[PartitionLag]] = {}
    for lag in waiting:
        if lag.waiting and (lag.partition.topic, lag.partition.index) not in read:
            left.setdefault(lag.partition.topic, []).append(lag)
    lines = []
    for role, names in topics_by_role().items():
        parts = [
            f"{sum(lag.waiting for lag in left[topic])} in {topic} "
            f"{ranges(lag.partition.index for lag in left[topic])}"
            for topic in names
            if topic in left
        ]
        if parts:
            lines.append(
                f"no living worker for {role}, and records wait: {', '.join(parts)}; start "
                "`lethe work`"
            )
    return lines


def ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers in short: ``0-7,12``."""
    ordered = enumerate(sorted(set(numbers)))
    runs = [
        [number for _, number in run]
        for _, run in itertools.groupby(ordered, key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
