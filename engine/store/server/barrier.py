"""The barrier that waits until writes are on disk, and on a cluster with a replica as well."""

from __future__ import annotations

from typing import Any

import redis
from redis.exceptions import RedisError, ResponseError

from lethe.engine.errors import NotDurable
from lethe.engine.store.layout.keys import SETTLED
from lethe.engine.store.server.cluster import Cluster, primaries
from lethe.engine.store.server.connection import address, reachable, text

_BARRIER_SECONDS = 10.0


class Barrier:
    """Waits until writes are on disk.

    With ``appendfsync always`` the server syncs before it answers (``always``). Otherwise WAITAOF
    is sent on the connection that wrote, and the numbers it returns are checked (``waits``). If
    both are False, the barrier waits for nothing, because the server supports neither.

    Of a cluster, each primary is waited for, and a replica of each that has one: else a failover
    would lose what was waited for.

    Parameters
    ----------
    client
        The server.
    required
        Refuse a server that can lose acknowledged writes and cannot report what it has synced:
        for a server that holds the log, or keys that nothing else holds. The state alone may be
        lost: it is a view of the log.
    """

    def __init__(self, client: redis.Redis, *, required: bool) -> None:
        with reachable(client):
            servers = primaries(client)
            self.always = all(_always(server) for server in servers)
            self.waits = not self.always
            if self.waits and not all(_knows_waitaof(server) for server in servers):
                if required:
                    raise NotDurable(
                        f"the store at {address(client)} can lose acknowledged writes in a crash; "
                        "set 'appendonly yes' and 'appendfsync always' there, name a Kafka "
                        "(--kafka), or accept the loss with LETHE_DURABILITY=relaxed"
                    )
                self.waits = False

    def sync(self, client: redis.Redis) -> None:
        """Return once everything that the server has taken so far is on disk.

        WAITAOF covers only this connection's own writes, so this writes a key first.
        """
        if isinstance(client, Cluster):
            client.forget()  # a replica that has failed since would be waited for in vain
            keys, replicas = client.keys_on_each(SETTLED), client.replicas()
            for place, key in keys.items():
                self._sync(client.node(place), key, replica=bool(replicas.get(place)))
        else:
            self._sync(client, SETTLED)

    def _sync(self, server: redis.Redis, key: str, *, replica: bool = False) -> None:
        if not (self.waits or replica):
            return
        with server.client() as connection:  # type: ignore[no-untyped-call]  # redis-py's gap
            connection.set(key, 1)
            self.wait(connection)
            if replica and not connection.wait(1, int(_BARRIER_SECONDS * 1000)):
                raise NotDurable(
                    f"no replica of the store at {address(server)} took its writes in "
                    f"{_BARRIER_SECONDS:g} s: a failover would lose them; check its replicas"
                )

    def wait(self, client: redis.Redis, timeout: float = _BARRIER_SECONDS) -> None:
        """Return once this connection's writes are on disk.

        Raises
        ------
        NotDurable
            They were not within ``timeout`` seconds.
        """
        if not self.waits:
            return
        reply: Any = client.execute_command(  # type: ignore[no-untyped-call]  # redis-py's gap
            "WAITAOF", 1, 0, int(timeout * 1000)
        )
        if int(reply[0]) < 1:
            raise NotDurable(
                f"the store at {address(client)} did not sync to disk in {timeout:g} s; check its "
                "disk"
            )


class NoBarrier(Barrier):
    """Waits for nothing (LETHE_DURABILITY=relaxed)."""

    def __init__(self) -> None:
        self.always = self.waits = False

    def sync(self, client: redis.Redis) -> None:
        """Return at once."""


def _always(client: redis.Redis) -> bool:
    try:
        settings = client.config_get("*append*")
    except RedisError:
        return False
    values = {text(k): text(v) for k, v in settings.items()}
    # A rewrite, which Lethe itself asks for, would suspend the syncs.
    suspended = values.get("no-appendfsync-on-rewrite") == "yes"
    synced = values.get("appendonly") == "yes" and values.get("appendfsync") == "always"
    return synced and not suspended


def _knows_waitaof(client: redis.Redis) -> bool:
    try:
        client.execute_command("WAITAOF", 1, 0, 1)  # type: ignore[no-untyped-call]  # as above
    except ResponseError:
        return False
    return True
