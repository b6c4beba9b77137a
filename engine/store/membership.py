"""Which of the given rows a model never had, without loading the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from lethe.engine.store.connection import reachable, text
from lethe.engine.store.keys import ModelKeys, shard_of
from lethe.engine.store.scripts import run_pipeline

_CHUNK = 500  # rows in one round trip


def never_members(client: redis.Redis, model_id: str, row_ids: Sequence[str]) -> list[str]:
    """Return the rows that were never live, deleted or left out by a --replace.

    Raises
    ------
    StoreUnavailable
        It cannot be reached, or this user may not read it.

    Notes
    -----
    Cost O(len(row_ids)), a round trip for 500 rows.
    """
    model = ModelKeys(model_id)
    with reachable(client):
        generation = client.hget(model.head, "rows")
    live = model.generation(text(generation) if generation else "")
    unknown: list[str] = []
    for start in range(0, len(row_ids), _CHUNK):
        chunk = row_ids[start : start + _CHUNK]

        def fill(pipeline: Any, rows: Sequence[str] = chunk) -> None:
            for row in rows:
                pipeline.hexists(live.rows(shard_of(row)), row)
                pipeline.hexists(model.ledger, row)
                pipeline.sismember(model.retired, row)

        answers = run_pipeline(client, (), fill)
        unknown += [row for i, row in enumerate(chunk) if not any(answers[3 * i : 3 * i + 3])]
    return unknown
