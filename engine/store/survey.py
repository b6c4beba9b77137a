"""A look at many models in few round trips: where they are, and what a former owner left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from engine.store.connection import reachable, text
from engine.store.keys import ModelKeys

_MODELS = 500  # models a round trip asks about: five short answers each


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One model: its newest version, what it has decided, and whether messages or rows wait."""

    model_id: str
    keys: ModelKeys
    version: int
    digest: str
    offsets: Mapping[str, int]
    unpublished: bool
    unerased: bool


def survey(client: redis.Redis, model_ids: Sequence[str]) -> list[Surveyed]:
    """Return the state of these models in short; -1 is the version of one without a head."""
    found: list[Surveyed] = []
    for start in range(0, len(model_ids), _MODELS):
        chunk = [(name, ModelKeys.of_model(name)) for name in model_ids[start : start + _MODELS]]
        pipeline = client.pipeline(transaction=False)
        for _, keys in chunk:
            pipeline.hmget(keys.head, ["version", "digest"])
            pipeline.hgetall(keys.offsets)
            pipeline.xlen(keys.outbox)
            pipeline.scard(keys.erase)
            pipeline.scard(keys.discarded)
        with reachable(client):
            answers: list[Any] = pipeline.execute()
        for i, (name, keys) in enumerate(chunk):
            (version, digest), offsets, outbox, erase, discarded = answers[5 * i : 5 * i + 5]
            found.append(
                Surveyed(
                    name,
                    keys,
                    -1 if version is None else int(version),
                    "" if digest is None else text(digest),
                    {text(partition): int(offset) for partition, offset in offsets.items()},
                    outbox > 0,
                    erase + discarded > 0,
                )
            )
    return found
