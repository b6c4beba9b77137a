"""What only the store knows of a model: a pending refresh, deferred requests, a halt, lost rows.

It is read every few seconds, in a few round trips for all models, and without their arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from lethe.engine.errors import CorruptState
from lethe.engine.store.cursors import Cursors
from lethe.engine.store.layout.keys import ModelKeys, every_partition
from lethe.engine.store.layout.reading import parse_json_value
from lethe.engine.store.membership import every_model
from lethe.engine.store.server.pipeline import chunks, run_pipeline

HALTED = "HALTED"
DATA_LOST = "DATA_LOST"
AWAITING_REBUILD = "AWAITING_REBUILD"
STUCK = "STUCK"
CORRUPT = "CORRUPT_STATE"


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What the store says of one model; ``trouble`` is what a person must look at, if anything."""

    status: str
    deferred: int = 0
    pending_reason: str | None = None
    pending_since: str | None = None
    trouble: str | None = None
    trouble_detail: str | None = None


def facts_of_models(client: redis.Redis, lost: frozenset[str]) -> dict[str, StoreFacts]:
    """Return the facts of every model; ``lost`` are those that lack rows (`models_that_lack_rows`).

    Raises
    ------
    StoreUnavailable
        The store cannot be reached.
    """
    cursors = Cursors(client).read_all(every_partition())
    halted = {model for partition in cursors for model in partition.behind}
    facts: dict[str, StoreFacts] = {}
    for chunk in chunks(every_model(client)):
        stored = run_pipeline(client, (), partial(_queue, chunk), each=True)
        for i, name in enumerate(chunk):
            head, deferred = stored[2 * i], stored[2 * i + 1]
            damaged = next((one for one in (head, deferred) if isinstance(one, CorruptState)), None)
            facts[name] = (
                StoreFacts("UNKNOWN", trouble=CORRUPT, trouble_detail=str(damaged))
                if damaged is not None
                else _facts(name, head, int(deferred), halted=name in halted, lost=name in lost)
            )
    return facts


def _queue(names: Sequence[str], pipeline: Any) -> None:
    for name in names:
        pipeline.hmget(ModelKeys(name).head, ["status", "meta", "arrays"])
        pipeline.hlen(ModelKeys(name).deferred)


def _facts(
    model_id: str,
    head: Sequence[bytes | None],
    deferred: int,
    *,
    halted: bool,
    lost: bool,
) -> StoreFacts:
    status, meta, arrays = head
    try:
        pending = _pending_job(model_id, meta)
    except CorruptState as error:
        return StoreFacts("UNKNOWN", deferred, trouble=CORRUPT, trouble_detail=str(error))
    name = "ACTIVE" if status is None else status.decode("ascii", errors="replace")
    reason, since = (pending.get("reason"), pending.get("ordered_at")) if pending else (None, None)
    waits = deferred > 0 or not arrays
    trouble = next(
        (
            code
            for code, holds in (
                (HALTED, halted),
                (DATA_LOST, lost),
                (STUCK, waits and not pending and name != "UNREGISTERED"),
                (AWAITING_REBUILD, not arrays and name != "UNREGISTERED"),
            )
            if holds
        ),
        None,
    )
    detail = None if trouble is None else ADVICE[trouble]
    return StoreFacts(
        name,
        deferred,
        None if reason is None else str(reason),
        None if since is None else str(since),
        trouble,
        detail,
    )


def _pending_job(model_id: str, meta: bytes | None) -> Mapping[str, object] | None:
    if meta is None:
        return None
    fields = parse_json_value(meta, f"model {model_id!r}, its stored head")
    pending = fields.get("pending_job") if isinstance(fields, dict) else None
    return pending if isinstance(pending, dict) else None


ADVICE = {
    HALTED: "some of its commits are not applied or published: the deletion worker's log lines "
    "with action=halt say why; `lethe check` checks the log, `lethe work deletions` tries again",
    DATA_LOST: "the store has fewer rows than the model: restore it from a backup, or register the "
    "model again with `lethe register --replace`",
    STUCK: "requests wait for a rebuild and none is pending, because the last one failed: "
    "`lethe refresh --due` schedules another",
    AWAITING_REBUILD: "the store had lost writes: requests wait until the rebuild that is pending",
}
"""What a person does about each trouble."""
