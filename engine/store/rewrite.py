"""Asking the server for a new append-only file, without what was erased since the last one."""

from __future__ import annotations

from typing import Any

import redis
from redis.exceptions import ResponseError

from engine.store.connection import reachable

_NOT_NOW = ("no permissions", "unknown command", "already in progress")


def rewrite_append_only_file(client: redis.Redis) -> bool:
    """Ask for a rewrite of the append-only file; the server does it in the background.

    An erased record is gone from memory, but the command that once wrote it stays in the
    append-only file until the server writes that file anew.

    Returns
    -------
    bool
        Whether a rewrite that begins from now on will happen. False: the server has no
        append-only file, does not let this user ask, or is writing one that was begun before.

    Raises
    ------
    StoreUnavailable
        It cannot be reached.
    """
    with reachable(client):
        try:
            about: Any = client.info("persistence")
            if not int(about.get("aof_enabled", 0)) or int(about.get("aof_rewrite_in_progress", 0)):
                return False
            client.bgrewriteaof()
        except ResponseError as error:
            if any(word in str(error).lower() for word in _NOT_NOW):
                return False
            raise
    return True
