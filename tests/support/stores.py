"""A store that goes back: all of it, or all that lies in one slot, kept and put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lethe.engine.store.layout.keys import ModelKeys, commit_partition
from tests.support.platform import Platform

Backup = Mapping[bytes, tuple[bytes, int]]
"""By key: its dump, and when it expires (Unix ms; 0: never)."""


def backup(platform: Platform, model_id: str | None = None) -> Backup:
    """Return all that the store holds but for the log, or what lies in one model's slot."""
    client: Any = platform.raw()
    names = _names(client, model_id)
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.dump(name)
        pipeline.pexpiretime(name)
    found = pipeline.execute()
    return {
        name: (dumped, max(0, expires))
        for name, dumped, expires in zip(names, found[::2], found[1::2], strict=True)
        if dumped is not None
    }


def restore(platform: Platform, kept: Backup, model_id: str | None = None) -> None:
    """Bring the store (or one slot of it) back to where it was, in one transaction."""
    client: Any = platform.raw()
    pipeline = client.pipeline(transaction=True)
    for name in _names(client, model_id):
        pipeline.delete(name)
    for name, (dumped, expires) in kept.items():
        pipeline.restore(name, expires, dumped, absttl=True)
    pipeline.execute()


def contents(platform: Platform, model_id: str) -> Mapping[bytes, object]:
    """Return what lies in a model's slot, by key; dumps of equal hashes need not be equal."""
    client: Any = platform.raw()
    readers = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"list": lambda name: client.lrange(name, 0, -1),
        b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
    }
    return {name: readers[client.type(name)](name) for name in _names(client, model_id)}


def wipe(platform: Platform, model_id: str | None = None) -> None:
    """Remove all that the store holds but for the log, or what lies in one model's slot."""
    restore(platform, {}, model_id)


def neighbour_of(model_id: str) -> str:
    """Return the name of a model that lies in the same partitions, of requests and of commits."""
    index = commit_partition(model_id)
    names = (f"neighbour-{number}" for number in range(1000))
    return next(name for name in names if commit_partition(name) == index)


def _names(client: Any, model_id: str | None) -> list[bytes]:
    tag = "" if model_id is None else f"{{{ModelKeys(model_id).partition.tag}}}:"
    found = client.scan_iter(f"lethe:{tag}*", count=1000)
    return [name for name in found if not name.startswith(b"lethe:log:")]
