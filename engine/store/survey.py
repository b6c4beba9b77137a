"""A look at many models in few round trips: where they are, and what a former owner left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from engine.errors import CorruptState
from engine.store.connection import reachable
from engine.store.keys import ModelKeys
from engine.store.reading import integer, words
from engine.store.state import parse_offsets

_MODELS = 500  # models a round trip asks about: six short answers each


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One model: its newest version, what it has decided and defers, and what waits.

    ``fault`` says that this cannot be read: the model halts, and no other one.
    """

    model_id: str
    keys: ModelKeys
    version: int
    digest: str
    offsets: Mapping[str, int]
    deferred: frozenset[str]
    unpublished: bool
    unerased: bool
    fault: CorruptState | None = None


def survey(client: redis.Redis, model_ids: Sequence[str]) -> list[Surveyed]:
    """Return the state of these models in short; -1 is the version of one without a head."""
    found: list[Surveyed] = []
    for start in range(0, len(model_ids), _MODELS):
        chunk = [(name, ModelKeys.of_model(name)) for name in model_ids[start : start + _MODELS]]
        pipeline = client.pipeline(transaction=False)
        for _, keys in chunk:
            pipeline.hmget(keys.head, ["version", "digest"])
            pipeline.hgetall(keys.offsets)
            pipeline.hkeys(keys.deferred)
            pipeline.xlen(keys.outbox)
            pipeline.scard(keys.erase)
            pipeline.scard(keys.discarded)
        with reachable(client):
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        for i, (name, keys) in enumerate(chunk):
            try:
                found.append(_surveyed(client, name, keys, answers[6 * i : 6 * i + 6]))
            except CorruptState as error:
                found.append(Surveyed(name, keys, -1, "", {}, frozenset(), False, False, error))
    return found


def _surveyed(
    client: redis.Redis, model_id: str, keys: ModelKeys, answers: Sequence[Any]
) -> Surveyed:
    for answer in answers:
        if isinstance(answer, Exception):
            with reachable(client):
                raise answer
    (version, digest), offsets, deferred, outbox, erase, discarded = answers
    what = f"model {model_id!r}"
    return Surveyed(
        model_id,
        keys,
        -1 if version is None else integer(version, f"{what}, version"),
        "" if digest is None else words(digest, f"{what}, digest"),
        parse_offsets(offsets, what),
        frozenset(words(name, f"{what}, deferred requests") for name in deferred),
        outbox > 0,
        erase + discarded > 0,
    )
