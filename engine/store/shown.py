"""The newest versions of many models with their parameters, from their heads alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array
from lethe.engine.store import codec
from lethe.engine.store.format import check_format
from lethe.engine.store.generation import theta_of
from lethe.engine.store.head import ModelConfig, parse_config
from lethe.engine.store.keys import ModelKeys
from lethe.engine.store.lookup import CHUNK
from lethe.engine.store.scripts import run_pipeline

_FIELDS = ("format", "newest", "status", "config", "theta_exact", "published")


@dataclass(frozen=True, slots=True)
class Shown:
    """The newest version of a model that readers were shown.

    Attributes
    ----------
    version
        The version event, as it was published.
    config
        The configuration that it was made with.
    theta
        d x m, any intercept last.
    """

    version: bytes
    config: ModelConfig
    theta: Array


def read_shown(client: redis.Redis, models: Sequence[str]) -> Iterator[Shown]:
    """Yield the newest version of each registered model. Cost O(m d) each.

    A model whose head is damaged is left out: it halts when it is needed. A few hundred models
    take one round trip.
    """
    for start in range(0, len(models), CHUNK):
        chunk = models[start : start + CHUNK]
        stored = run_pipeline(client, (), partial(_queue_heads, models=chunk), each=True)
        for model, head in zip(chunk, stored, strict=True):
            with suppress(CorruptState):
                shown = _shown(model, head)
                if shown is not None:
                    yield shown


def _queue_heads(pipeline: Any, models: Sequence[str]) -> None:
    for model in models:
        pipeline.hmget(ModelKeys(model).head, _FIELDS)


def _shown(model_id: str, stored: Any) -> Shown | None:
    if isinstance(stored, CorruptState):
        raise stored
    stored_format, version, status, stored_config, exact, published = stored
    if not version or status == b"UNREGISTERED":
        return None
    check_format(stored_format, model_id)
    config = parse_config(stored_config, model_id)
    what = f"model {model_id!r}, its parameters"
    theta = codec.unpack(exact, (config.d, config.m), f"{what}, theta_exact")
    return Shown(version, config, theta_of(published, theta, what))
