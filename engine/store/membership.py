"""Which models a store has and which rows they had, without loading one.

A command line need not wait for SciPy to name a model or a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import redis

from lethe.engine.errors import FROM_EMPTY, CorruptState, FormatTooOld, UnknownModel
from lethe.engine.store.layout.keys import (
    FORMAT,
    FORMER_MODELS,
    SHARDS,
    GenerationKeys,
    ModelKeys,
    PartitionKeys,
    every_partition,
    shard_of,
)
from lethe.engine.store.layout.reading import integer, parse_json_value, parse_text
from lethe.engine.store.server.connection import address, reachable, text
from lethe.engine.store.server.pipeline import chunks, run_pipeline

if TYPE_CHECKING:
    from lethe.engine.store.layout.meta import Meta
    from lethe.engine.store.row_files import RowFilesOfModels
    from lethe.engine.store.server.row_keys import RowKeys

_TRIES = 5  # the first agrees with the look before it, unless others commit in between


def refuse_former_state(client: redis.Redis) -> None:
    """Refuse a store with models of a format before 5. Cost: one EXISTS.

    Their keys have other names, so nothing else would notice.

    Raises
    ------
    FormatTooOld
        The store holds such models.
    """
    with reachable(client):
        exists: Any = client.exists(FORMER_MODELS)
    if exists:
        raise FormatTooOld(
            f"the store at {address(client)} holds models of an older Lethe, before format "
            f"{FORMAT}, which this release does not read; {FROM_EMPTY}"
        )


def unknown(model_id: str) -> UnknownModel:
    """Return the error of a model that is not registered."""
    return UnknownModel(
        f"model {model_id!r} is not registered; `lethe status` lists those that are, "
        "`lethe register` adds one"
    )


def every_model(client: redis.Redis) -> list[str]:
    """Return the ids of all models that were ever registered, sorted."""
    return listed_models(client)[0]


def listed_models(
    client: redis.Redis, partitions: Sequence[PartitionKeys] = ()
) -> tuple[list[str], list[PartitionKeys]]:
    """Return the ids of all models of some partitions, or of all, and which lists lack some.

    A key that was removed or evicted reads as an empty one. One round trip.
    """
    partitions = partitions or list(every_partition())
    stored = run_pipeline(
        client,
        (),
        lambda pipe: [
            (pipe.smembers(one.models), pipe.hget(one.cursors, "models")) for one in partitions
        ],
    )
    names: list[str] = []
    lacking: list[PartitionKeys] = []
    for one, members, known in zip(partitions, stored[::2], stored[1::2], strict=True):
        names += map(text, members)
        what = f"the number of models of commits partition {one.index}"
        if known is not None and len(members) < integer(known, what):
            lacking.append(one)
    return sorted(names), lacking


def registered_models(client: redis.Redis) -> list[str]:
    """Return the ids of the registered models, sorted."""
    names: list[str] = []
    for chunk in chunks(every_model(client)):
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


def models_in(client: redis.Redis, partition: PartitionKeys) -> list[str]:
    """Return the ids of the models of one commits partition, sorted."""
    with reachable(client):
        members: Any = client.smembers(partition.models)
    return sorted(text(member) for member in members)


def never_members(
    client: redis.Redis, model_id: str, row_ids: Sequence[str], row_keys: RowKeys | None = None
) -> list[str]:
    """Return the rows that were never live, deleted or left out by a --replace.

    Raises
    ------
    StoreUnavailable
        It cannot be reached, or this user may not read it.

    Notes
    -----
    Cost O(len(row_ids)), a round trip for 500 rows.
    """
    model, live = ModelKeys(model_id), live_members(client, model_id, row_ids, row_keys)
    never: list[str] = []
    for chunk in chunks([row for row in row_ids if row not in live]):
        with reachable(client):
            pipeline = client.pipeline(transaction=False)
            pipeline.hmget(model.ledger, chunk)
            pipeline.smismember(model.retired, chunk)
            versions, retired = pipeline.execute()
        former = zip(chunk, versions, retired, strict=True)
        never += [row for row, version, gone in former if version is None and not gone]
    return never


def live_members(
    client: redis.Redis, model_id: str, row_ids: Sequence[str], row_keys: RowKeys | None = None
) -> frozenset[str]:
    """Return those of the rows that are live. Costs and errors as `never_members`."""

    def read(live: GenerationKeys) -> frozenset[str]:
        found: set[str] = set()
        for chunk in chunks(row_ids):
            pipeline = client.pipeline(transaction=False)
            for row in chunk:
                pipeline.hexists(live.rows(shard_of(row)), row)
            answers = pipeline.execute()
            found.update(row for row, answer in zip(chunk, answers, strict=True) if answer)
        return frozenset(found)

    live = _read_live(client, model_id, read)
    meta = _with_row_files(client, model_id)
    if meta is None:
        return live
    others = [row for row in row_ids if row not in live]
    there = _of_files(client, meta, lambda files, now: list(files.records(now, others)), row_keys)
    return live | _without_deleted(client, model_id, there)


def every_live_row(
    client: redis.Redis, model_id: str, row_keys: RowKeys | None = None
) -> frozenset[str]:
    """Return the ids of a model's live rows. Cost O(n), a round trip for each shard.

    A row that is inserted or deleted meanwhile may be in it or not.
    """

    def read(live: GenerationKeys) -> frozenset[str]:
        names: set[str] = set()
        for shard in live.every_rows():
            found: Any = client.hkeys(shard)
            names.update(text(name) for name in found)
        return frozenset(names)

    live = _read_live(client, model_id, read)
    meta = _with_row_files(client, model_id)
    if meta is None:
        return live
    there = _of_files(
        client,
        meta,
        lambda files, now: [row for one in files.every(now) for row in one.ids],
        row_keys,
    )
    return live | _without_deleted(client, model_id, there)


def _with_row_files(client: redis.Redis, model_id: str) -> Meta | None:
    """Return the meta of a model whose rows are in files; None of others. One round trip."""
    with reachable(client):
        stored: Any = client.hget(ModelKeys(model_id).head, "meta")
    if stored is None or b'"row_files"' not in stored:
        return None
    from lethe.engine.store.row_files import stored_meta  # noqa: PLC0415 (SciPy: few need it)

    return stored_meta(client, model_id)


def _of_files(
    client: redis.Redis,
    meta: Meta,
    read: Callable[[RowFilesOfModels, Meta], list[str]],
    row_keys: RowKeys | None,
) -> list[str]:
    from lethe.engine.store.row_files import (  # noqa: PLC0415 (as above)
        RowFilesOfModels,
        by_the_newest,
    )

    return by_the_newest(client, meta, partial(read, RowFilesOfModels(row_keys=row_keys)))


def _without_deleted(client: redis.Redis, model_id: str, row_ids: Sequence[str]) -> frozenset[str]:
    """Return those of the rows that are not in the deletion ledger."""
    left: set[str] = set()
    for chunk in chunks(row_ids):
        with reachable(client):
            versions: Any = client.hmget(ModelKeys(model_id).ledger, chunk)
        left.update(row for row, version in zip(chunk, versions, strict=True) if version is None)
    return frozenset(left)


def _read_live(
    client: redis.Redis, model_id: str, read: Callable[[GenerationKeys], frozenset[str]]
) -> frozenset[str]:
    """Return what is read of the live generation, once that is still live afterwards.

    A swap removes the generation that it replaces: rows of it that were not read yet, and live on
    in the new one, would seem to be gone.
    """
    model = ModelKeys(model_id)
    with reachable(client):
        generation: Any = client.hget(model.head, "rows")
        while True:
            found = read(model.generation(text(generation) if generation else ""))
            now: Any = client.hget(model.head, "rows")
            if now == generation:
                return found
            generation = now


# -- lost rows ------------------------------------------------------------------------------------


def models_that_lack_rows(
    client: redis.Redis, models: Sequence[str] | None = None
) -> frozenset[str]:
    """Return those of some models, or of all, that have fewer row records than live rows.

    Those that seem to are checked again: others may commit in between. Cost: eight counts a model.
    """
    found: set[str] = set()
    for chunk in chunks(every_model(client) if models is None else models):
        lacking = _lacking(client, chunk)
        for _ in range(_TRIES):
            rechecked = _lacking(client, list(lacking))
            if rechecked == lacking:
                break
            lacking = rechecked
        found.update(lacking)
    return frozenset(found)


def _lacking(client: redis.Redis, models: Sequence[str]) -> Mapping[str, Any]:
    """Return the models that have too few row records, with fields of their heads."""
    if not models:
        return {}
    heads = run_pipeline(
        client,
        (),
        lambda pipe: [
            pipe.hmget(ModelKeys(name).head, ["meta", "rows", "status"]) for name in models
        ],
        each=True,
    )
    head_of = dict(zip(models, heads, strict=True))
    wanted: dict[str, int] = {}
    shards: list[str] = []
    for name, stored in head_of.items():
        try:
            live = _live_rows(name, stored)
        except CorruptState:
            continue  # whoever loads it gets the error
        if live is not None:
            wanted[name], generation = live
            shards += ModelKeys(name).generation(generation).every_rows()
    counts = iter(run_pipeline(client, (), lambda p: [p.hlen(key) for key in shards], each=True))
    records = {
        name: sum(n for n in islice(counts, SHARDS) if isinstance(n, int)) for name in wanted
    }
    return {name: head_of[name] for name, live in wanted.items() if records[name] < live}


def _live_rows(model_id: str, stored: Any) -> tuple[int, str] | None:
    """Return how many live rows a model has, and the generation that holds their records."""
    if isinstance(stored, CorruptState):
        raise stored
    meta, rows, status = stored
    if meta is None or rows is None or status == b"UNREGISTERED":
        return None
    what = f"model {model_id!r}, its stored head"
    fields = parse_json_value(meta, what)
    if not isinstance(fields, dict):
        raise CorruptState(f"{what}: is not an object; run `lethe check`")
    what = f"model {model_id!r}, its live rows"
    live, in_files = integer(fields.get("rows_live"), what), fields.get("row_files")
    if in_files is not None:  # these have their own digests
        live = integer(in_files.get("in_store", 0), what) if isinstance(in_files, dict) else 0
    return live, parse_text(rows, what)
