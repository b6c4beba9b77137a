"""How much memory of the server a model takes."""

from __future__ import annotations

from typing import Any

from redis.exceptions import ResponseError

from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.server.connection import reachable
from lethe.engine.store.store import ModelStore

_SAMPLES = 20
"""Fields of a hash whose sizes stand for the others: of one model, they differ by their ids."""


def stored_bytes(store: ModelStore, state: ModelState) -> int | None:
    """Return the bytes that the server says a model's keys take: its rows, its data, its head.

    None: the server does not say. Cost: one round trip, and some fields of each key.
    """
    dataset = state.keys.dataset(state.meta.dataset_key)
    keys = [*state.generation_keys.everything(), *dataset.everything(), state.keys.head]
    sizes: list[Any]
    try:
        with reachable(store.client):
            pipeline = store.client.pipeline(transaction=False)
            for key in keys:
                pipeline.memory_usage(key, samples=_SAMPLES)
            sizes = pipeline.execute()
    except ResponseError:
        return None
    return sum(int(size) for size in sizes if size is not None)
