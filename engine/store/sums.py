"""Sums of a model, written whole again, so that rows leave them in the store.

A commit writes the rows that came and went beside the sums that it leaves as they are
(`pipeline_sums.packed_since` and `exact_sums.new_fields` in `engine.store.layout`). Those numbers
go when the sums are written anew: with a generation, when a deletion worker ends, and within the
hour by its housekeeping.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import redis

from lethe.engine.store.layout.exact_sums import packed_whole
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.pipeline_sums import FIRST_SINCE, packed_sums
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import read_summaries
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import Script, run_pipeline

REWRITE = Script("""
local HEAD, SUMS, ERASURES = KEYS[1], KEYS[2], KEYS[3]
if redis.call('HGET', HEAD, 'arrays') ~= ARGV[1] then return 0 end
redis.call('DEL', SUMS)
for i = 3, #ARGV, 2 do redis.call('HSET', SUMS, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', HEAD, 'arrays', ARGV[2])
local time = redis.call('TIME')
redis.call('HSET', ERASURES, 'last', time[1] .. '.' .. string.format('%06d', time[2]))
return 1
""")
"""Replaces sums if V, Q and sums are still those that were read, and renews their id.

That is an erasure: the server's files hold the rows until they are rewritten.
"""


def models_with_rows_beside(client: redis.Redis, models: Sequence[str]) -> Iterator[str]:
    """Yield those of the registered models that have rows beside their sums.

    Of models without sums, only the heads are read.
    """
    for summary in read_summaries(client, models):
        if not (summary.meta.config.preprocess or summary.meta.config.exact_sums):
            continue
        keys = ModelKeys(summary.model_id)
        with reachable(client):
            stored = client.hget(keys.head, "rows")
        if stored is None:
            continue
        where = keys.generation(text(stored))  # not that of the meta, if a refresh's result is lost
        with reachable(client):
            beside = client.hexists(where.sums, FIRST_SINCE)
        if beside:
            yield summary.model_id


def has_rows_beside(state: ModelState) -> bool:
    """Return whether rows lie beside the sums of a state."""
    pipeline, solution = state.pipeline, state.stream.solution
    kept = None if solution is None else solution.kept
    return bool(kept and kept.since) or bool(pipeline and pipeline.answer.sums.since)


def rewrite_sums(client: redis.Redis, state: ModelState) -> bool:
    """Write a model's sums whole, with nothing beside them.

    Returns whether it was done: not if a commit came after the state. The id of the arrays is new,
    so that nobody writes beside sums that are no longer there. While the model waits for a rebuild,
    which writes sums of its own, nobody needs these: they go.

    Raises
    ------
    StoreUnavailable
        No answer: it may or may not have happened, which are equally good.
    """
    keys = [state.keys.head, state.generation_keys.sums, state.keys.partition.erasures]
    parts: list[str | bytes] = [state.arrays_id, ""]
    if not state.awaiting_rebuild:
        if state.pipeline is not None:
            whole = packed_sums(state.pipeline.answer.sums)
        elif state.stream.solution is not None:
            whole = packed_whole(state.stream.solution.whole())
        else:
            return False
        parts[1] = secrets.token_hex(8)
        parts += [part for field in whole.items() for part in field]
    [done] = run_pipeline(client, (REWRITE,), lambda pipeline: REWRITE.queue(pipeline, keys, parts))
    return bool(done)
