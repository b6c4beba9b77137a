"""Which models a store has, without loading one: a command line need not wait for SciPy."""

from __future__ import annotations

from typing import Any

import redis

from lethe.engine.store.connection import reachable, text
from lethe.engine.store.keys import ModelKeys, every_partition
from lethe.engine.store.scripts import run_pipeline

_CHUNK = 500  # models in one round trip


def every_one(client: redis.Redis) -> list[str]:
    """Return the ids of all models that were ever registered, sorted."""
    partitions = run_pipeline(
        client, (), lambda pipe: [pipe.smembers(part.models) for part in every_partition()]
    )
    return sorted(text(member) for members in partitions for member in members)


def registered(client: redis.Redis) -> list[str]:
    """Return the ids of the registered models, sorted."""
    all_ids, names = every_one(client), []
    for start in range(0, len(all_ids), _CHUNK):
        chunk = all_ids[start : start + _CHUNK]
        with reachable(client):
            pipeline = client.pipeline(transaction=False)
            for name in chunk:
                pipeline.hget(ModelKeys(name).head, "status")
            # A model whose head is not a hash is listed too: whoever loads it gets the error.
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        names += [
            name for name, status in zip(chunk, answers, strict=True) if status != b"UNREGISTERED"
        ]
    return names
