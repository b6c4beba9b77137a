"""The rows that commits have touched since a generation became live.

All other row records of a generation are constant, whatever the store has lost and folded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import by_shard
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import present
from lethe.engine.store.store import ModelStore

_HEAD = ("commit", "digest", "rows")
_QUIET_TRIES = 200  # each takes a few round trips, between two commits of the model


@dataclass(frozen=True, slots=True)
class RowsTouched:
    """What became of rows.

    Attributes
    ----------
    changed
        The records of the live rows that were inserted or corrected; of a model whose rows are in
        files, all that the store has.
    deleted
        Ids of the rows that were deleted since the live generation was made.
    """

    changed: Mapping[str, bytes]
    deleted: tuple[str, ...]


def rows_touched_now(
    store: ModelStore, before: ModelState
) -> tuple[ModelState, RowsTouched] | None:
    """Return the newest state of a generation, and what became of rows as of then.

    None: another generation or data set is live by now, or commits come too fast.

    Raises
    ------
    CorruptState
        The model's rows are in files, and some of those that the store should have are lost.
    """
    for _ in range(_QUIET_TRIES):
        state = store.load_model(before.model_id)
        if (state.rows_generation, state.meta.dataset_key) != (
            before.rows_generation,
            before.meta.dataset_key,
        ):
            return None
        read = rows_touched if state.meta.row_files is None else _beside_files
        found = read(store, state)
        if found is not None:
            return state, found
    return None


def rows_touched(
    store: ModelStore, state: ModelState, position: int | None = None
) -> RowsTouched | None:
    """Return what became of rows, as of a state; None if the store holds another by now.

    ``position``: only rows that were inserted or corrected since there were so many such changes;
    else since the live generation was made.

    Raises
    ------
    CorruptState
        The list of changed rows does not reach back to ``position``.
    """
    client, live, keys = store.client, state.generation_keys, state.keys
    count = None if position is None else max(0, state.meta.rows_changed - position)
    first, last = (0, -1) if count is None else (-count, -1)
    with reachable(client):
        named: Any = [] if count == 0 else client.lrange(live.changed, first, last)
        shards = by_shard(dict.fromkeys(text(row) for row in named))
        pipeline = client.pipeline(transaction=True)
        pipeline.hmget(keys.head, _HEAD)
        pipeline.lrange(keys.deletions, 0, -1)
        pipeline.lrange(live.changed, first, last)
        for shard, rows in shards.items():
            pipeline.hmget(live.rows(shard), rows)
        head, deleted, again, *answers = pipeline.execute()
    if not _is_of(head, state) or (count != 0 and again != named):
        return None
    if count is not None and len(named) != count:
        raise CorruptState(
            f"model {state.model_id!r}: its list of changed rows begins after {position}"
        )
    records: dict[str, bytes] = {}
    for rows, values in zip(shards.values(), answers, strict=True):
        records |= present(rows, values)
    opened = store.open_records(live, records).records
    return RowsTouched(opened, tuple(text(row) for row in deleted))


def _beside_files(store: ModelStore, state: ModelState) -> RowsTouched | None:
    """Return all rows that the store has of a model whose rows are in files, as `rows_touched`.

    A refresh has staged some of them, so that the list of changed rows does not name them.
    """
    client, live, keys = store.client, state.generation_keys, state.keys
    pipeline = client.pipeline(transaction=True)
    pipeline.hmget(keys.head, _HEAD)
    pipeline.lrange(keys.deletions, 0, -1)
    for shard in live.every_rows():
        pipeline.hgetall(shard)
    with reachable(client):
        head, deleted, *shards = pipeline.execute()
    if not _is_of(head, state):
        return None
    records = {text(row): record for shard in shards for row, record in shard.items()}
    lost = state.meta.rows_in_store - len(records)
    if lost > 0:  # and the ones in files are older
        raise CorruptState(
            f"model {state.model_id!r}: {lost} rows that were inserted or corrected have no "
            "record; restore the store from a backup, or register the model again"
        )
    return RowsTouched(records, tuple(text(row) for row in deleted))


def _is_of(head: Sequence[bytes | None], state: ModelState) -> bool:
    expected = (str(state.head.commit), state.head.digest, state.rows_generation)
    return tuple(text(part or b"") for part in head) == expected
