"""Asking the servers to rewrite their files, without what was erased since the last rewrite.

An erased record is gone from memory, but the command that once wrote it stays in the append-only
file, and its value in a snapshot, until the server rewrites that file. The server reports when it
did; `docs/erased-data.md` has the arithmetic of the times.

On a cluster all nodes are asked, replicas and nodes that have no slots any more too: each has files
of its own. While one is away, no rewrite counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import redis
from redis.exceptions import ResponseError

from lethe.engine.store.layout.keys import REWRITTEN, every_partition
from lethe.engine.store.server.cluster import every_server
from lethe.engine.store.server.connection import address, reachable

ERASURE_SECONDS = 24 * 3600.0
"""T: this long after its receipt, a deleted row's bytes are in no key and no file of the server."""

LINGER_SECONDS = ERASURE_SECONDS / 2
"""A copy can outlive its row in memory for so long: a refresh that read it before the deletion and
then died may take 6 hours to stage it, and what it staged expires after 6 hours more."""

PERIOD_SECONDS = ERASURE_SECONDS / 4
"""Shortest time between two rewrites, so that one falls between `LINGER_SECONDS` and 3/4 T; the
last quarter is for writing the files, and for a server or a worker that was away."""

_REFUSED = ("no permissions", "unknown command")
_BUSY = ("already in progress", "scheduled")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite requested of one server: of which files, and when by its clock."""

    append_only_file: bool
    snapshot: bool
    asked: int


Rewrites: TypeAlias = Mapping[str, Rewrite]
"""A rewrite of each server, by its address."""


@dataclass(frozen=True, slots=True)
class Erasures:
    """When something was last erased, and when the last successful rewrite began."""

    last: float | None
    rewritten: float | None

    def waiting(self) -> bool:
        """Return whether the files may still hold something that was erased."""
        if self.last is None:
            return False
        return self.rewritten is None or self.rewritten < self.last + LINGER_SECONDS

    def overdue(self, now: float) -> bool:
        """Return whether the promise of T is broken: no rewrite succeeded for too long."""
        since = self.rewritten
        return self.waiting() and since is not None and now - since > ERASURE_SECONDS


def read_erasures(client: redis.Redis) -> Erasures:
    """Return when something was last erased and when the files were last rewritten."""
    with reachable(client):
        pipeline = client.pipeline(transaction=False)
        for partition in every_partition():
            pipeline.hget(partition.erasures, "last")
        pipeline.get(REWRITTEN)
        *erased, rewritten = pipeline.execute()
    last = max((float(value) for value in erased if value is not None), default=None)
    return Erasures(last, None if rewritten is None else float(rewritten))


def note_rewritten(client: redis.Redis, began: float, *, first: bool = False) -> None:
    """Store when a successful rewrite began; ``first``: only if no such time is stored."""
    with reachable(client):
        if first:
            client.setnx(REWRITTEN, repr(began))
        else:
            client.set(REWRITTEN, repr(began))


def ask_for_rewrite(client: redis.Redis) -> Rewrites | None:
    """Ask for new files; the servers write them in the background.

    Returns
    -------
    Rewrites or None
        The requested rewrites; None while an earlier one is under way, or a node is away.

    Raises
    ------
    PermissionError
        The server does not let this user ask.
    StoreUnavailable
        It cannot be reached.
    """
    with reachable(client):
        servers = every_server(client)
        if servers is None or any(_under_way(_persistence(server)) for server in servers):
            return None
    asked = {address(server): _ask(server) for server in servers}
    rewrites = {place: rewrite for place, rewrite in asked.items() if rewrite is not None}
    return rewrites if rewrites.keys() == asked.keys() else None


def _ask(client: redis.Redis) -> Rewrite | None:
    with reachable(client):
        try:
            persistence = _persistence(client)
            append_only = bool(int(persistence.get("aof_enabled", 0)))
            snapshot = _has_snapshots(client, persistence)
            asked_at = int(client.time()[0])
            if append_only:
                client.bgrewriteaof()
            if snapshot:
                client.execute_command("BGSAVE", "SCHEDULE")  # type: ignore[no-untyped-call]  # redis-py's gap
        except ResponseError as error:
            message = str(error).lower()
            if any(word in message for word in _BUSY):
                return None
            if any(word in message for word in _REFUSED):
                raise PermissionError(str(error)) from error
            raise
    return Rewrite(append_only, snapshot, asked_at)


def ended(client: redis.Redis, rewrites: Rewrites) -> bool | None:
    """Return whether all rewrites succeeded; None while one is under way, or a node is away.

    A node that joined since has copied what the others hold in memory, without what was erased.
    """
    with reachable(client):
        servers = every_server(client)
    if servers is None:
        return None
    outcomes = [
        _ended(server, rewrites[address(server)])
        for server in servers
        if address(server) in rewrites
    ]
    return None if None in outcomes else all(outcomes)


def _ended(client: redis.Redis, rewrite: Rewrite) -> bool | None:
    with reachable(client):
        persistence = _persistence(client)
    if _under_way(persistence):
        return None
    if rewrite.append_only_file and persistence.get("aof_last_bgrewrite_status") != "ok":
        return False
    if not rewrite.snapshot:
        return True
    if persistence.get("rdb_last_bgsave_status") != "ok":
        return False
    # A snapshot scheduled behind the append-only file begins a moment later.
    return True if int(persistence.get("rdb_last_save_time", 0)) >= rewrite.asked else None


def rewrite_append_only_file(client: redis.Redis) -> bool:
    """Ask for a rewrite; return whether one that begins from now on will happen.

    False: a server has no append-only file, does not let this user ask, or is still busy with
    an earlier rewrite.

    Raises
    ------
    StoreUnavailable
        It cannot be reached.
    """
    try:
        rewrites = ask_for_rewrite(client)
    except PermissionError:
        return False
    return rewrites is not None and all(one.append_only_file for one in rewrites.values())


def _persistence(client: redis.Redis) -> dict[str, Any]:
    info: dict[str, Any] = client.info("persistence")
    return info


def _under_way(persistence: dict[str, Any]) -> bool:
    names = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
    return any(int(persistence.get(name, 0)) for name in names)


def _has_snapshots(client: redis.Redis, persistence: dict[str, Any]) -> bool:
    """Return whether the server writes snapshots, by schedule or since it started."""
    if int(persistence.get("rdb_saves", 0)):
        return True
    try:
        return any(client.config_get("save").values())
    except ResponseError:  # managed services keep CONFIG to themselves
        return False
