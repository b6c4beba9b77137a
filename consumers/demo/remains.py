"""Is anything left of a deleted row? Searches every value of every key of the server.

The search does not depend on the store's layout: it looks for the bytes of the row's features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import redis

from lethe.consumers.demo.data import DemoModel
from lethe.engine.errors import CorruptState
from lethe.engine.store.connection import reachable


def remains(client: redis.Redis, model: DemoModel, gone: Iterable[str]) -> list[str]:
    """Return the deleted rows whose features, as float64, are anywhere in the server.

    Raises
    ------
    CorruptState
        Not even a live row is found, so finding no deleted row would prove nothing.
    """
    with reachable(client):
        everything = b"\n".join(_values(client))
    features = dict(zip(model.data.ids, model.data.X.astype("<f8"), strict=True))
    deleted = sorted(gone)
    live = next(row for row in model.data.ids if row not in set(deleted))
    if np.ascontiguousarray(features[live]).tobytes() not in everything:
        raise CorruptState(f"model {model.model_id!r}: the record of a live row was not found")
    return [row for row in deleted if np.ascontiguousarray(features[row]).tobytes() in everything]


def _values(server: redis.Redis) -> Iterator[bytes]:
    client: Any = server  # redis-py types answers for decoded and raw clients alike
    for key in client.scan_iter(count=1000):
        kind = client.type(key)
        if kind == b"string":
            yield client.get(key) or b""
        elif kind == b"hash":
            yield from client.hvals(key)
        elif kind == b"list":
            yield from client.lrange(key, 0, -1)
        elif kind == b"set":
            yield from client.smembers(key)
        elif kind == b"zset":
            yield from client.zrange(key, 0, -1)
        elif kind == b"stream":
            for _, fields in client.xrange(key):
                yield from fields.values()
        elif kind != b"none":  # it expired in between
            raise CorruptState(f"key {key!r} is of the unknown type {kind!r}")
