"""The rows that commits have touched since a generation became live.

All other row records of a generation are constant, whatever the store has lost and folded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lethe.engine.errors import CorruptState
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.keys import by_shard
from lethe.engine.store.pipeline import present
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class RowsTouched:
    """What became of rows since a generation was made live.

    Attributes
    ----------
    changed
        The records of the live rows that were inserted or corrected.
    deleted
        Ids of the rows that were deleted.
    """

    changed: Mapping[str, bytes]
    deleted: tuple[str, ...]


def rows_touched(store: ModelStore, state: ModelState) -> RowsTouched | None:
    """Return what became of rows, as of a state; None if the store holds another by now."""
    client, live, keys = store.client, state.generation_keys, state.keys
    with reachable(client):
        named: Any = client.lrange(live.changed, 0, -1)
        shards = by_shard(dict.fromkeys(text(row) for row in named))
        pipeline = client.pipeline(transaction=True)
        pipeline.hmget(keys.head, ["commit", "digest", "rows"])
        pipeline.lrange(live.changed, 0, -1)
        pipeline.lrange(keys.deletions, 0, -1)
        for shard, rows in shards.items():
            pipeline.hmget(live.rows(shard), rows)
        head, changed, deleted, *answers = pipeline.execute()
    expected = (str(state.head.commit), state.head.digest, state.rows_generation)
    if changed != named or tuple(text(part or b"") for part in head) != expected:
        return None
    records: dict[str, bytes] = {}
    for rows, values in zip(shards.values(), answers, strict=True):
        records |= present(rows, values)
    opened = store.open_records(live, records).records
    return RowsTouched(opened, tuple(text(row) for row in deleted))


def changes_since(store: ModelStore, state: ModelState, position: int) -> list[str]:
    """Return the rows inserted or corrected since there were ``position`` such changes.

    ``state`` is the newest, and all of them came in its generation.

    Raises
    ------
    CorruptState
        Their list does not reach back so far.
    """
    count = state.meta.rows_changed - position
    if count <= 0:
        return []
    with reachable(store.client):
        changed: Any = store.client.lrange(state.generation_keys.changed, -count, -1)
    if len(changed) != count:
        raise CorruptState(
            f"model {state.model_id!r}: its list of changed rows begins after {position}"
        )
    return [text(row) for row in changed]
