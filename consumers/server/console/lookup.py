"""Which models have, or had, a row or a subject's rows, and what a request would do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from lethe.engine.store.layout.keys import ModelKeys, shard_of
from lethe.engine.store.layout.reading import integer, parse_ids, parse_json_value
from lethe.engine.store.membership import live_members
from lethe.engine.store.row_files import RowFilesOfModels, by_the_newest, stored_meta
from lethe.engine.store.server.pipeline import chunks, run_pipeline
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of one model: how many are live, deleted before, or were never the model's.

    ``versions`` are those that deleted them.
    """

    model_id: str
    total: int = 0
    live: int = 0
    deleted: int = 0
    never: int = 0
    versions: tuple[int, ...] = ()
    registered: bool = True


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a model keeps its rows and subjects."""

    generation: str
    dataset: str
    registered: bool
    files: bool


def find_row(store: ModelStore, models: Sequence[str], row_id: str) -> list[Found]:
    """Return the models that have or had a row. Cost: two round trips for 500 models."""
    found = find_rows(store, dict.fromkeys(models, (row_id,)))
    return [one for one in found if one.live or one.deleted]


def find_subject(store: ModelStore, models: Sequence[str], subject_id: str) -> list[Found]:
    """Return the models that have or had rows of a subject. Cost: three round trips for 500."""
    return find_rows(store, subject_rows(store, models, subject_id))


def subject_rows(
    store: ModelStore, models: Sequence[str], subject_id: str
) -> dict[str, tuple[str, ...]]:
    """Return the rows of a subject, by model; models that do not know it are left out."""
    client, rows = store.client, dict[str, tuple[str, ...]]()
    for chunk in chunks(models):
        places = _places(client, chunk)
        known = [name for name in chunk if name in places]
        keys = [ModelKeys(name).dataset(places[name].dataset).subjects for name in known]
        stored = run_pipeline(client, (), partial(_queue_subject, keys, subject_id))
        for name, value in zip(known, stored, strict=True):
            if value is not None:
                rows[name] = parse_ids(value, f"model {name!r}, a subject's rows")
        for name in known:
            if places[name].files and (meta := stored_meta(client, name)) is not None:
                files = RowFilesOfModels(row_keys=store.row_keys)
                read = partial(files.subjects, subject_ids=[subject_id])
                theirs = by_the_newest(client, meta, read)
                rows[name] = (*rows.get(name, ()), *theirs.get(subject_id, ()))
                if not rows[name]:
                    del rows[name]
    return rows


def _queue_subject(keys: Sequence[str], subject_id: str, pipeline: Any) -> None:
    for key in keys:
        pipeline.hget(key, subject_id)


def find_rows(store: ModelStore, rows: Mapping[str, Sequence[str]]) -> list[Found]:
    """Return what became of rows, by model. Cost: two round trips for 500 models."""
    client, found = store.client, list[Found]()
    for chunk in chunks(list(rows)):
        places = _places(client, chunk)
        known = [name for name in chunk if name in places]

        queue = partial(_queue_rows, [(name, places[name], rows[name]) for name in known])
        answers = iter(run_pipeline(client, (), queue))
        for name in chunk:
            ids = rows[name]
            if name not in places:
                found.append(Found(name, len(ids), never=len(ids), registered=False))
                continue
            there = {row for row in ids if next(answers)}
            ledger = [value for value in next(answers) if value is not None]
            versions = {integer(value, f"model {name!r}, its ledger") for value in ledger}
            if places[name].files:
                there |= live_members(client, name, ids, store.row_keys)
            live, gone = len(there), len(ledger)
            found.append(
                Found(
                    name,
                    len(ids),
                    live,
                    gone,
                    max(0, len(ids) - live - gone),
                    tuple(sorted(versions)),
                    places[name].registered,
                )
            )
    return found


def _queue_rows(asked: Sequence[tuple[str, _Place, Sequence[str]]], pipeline: Any) -> None:
    for name, place, ids in asked:
        model = ModelKeys(name)
        live = model.generation(place.generation)
        for row in ids:
            pipeline.hexists(live.rows(shard_of(row)), row)
        pipeline.hmget(model.ledger, list(ids) or [""])


def _places(client: redis.Redis, models: Sequence[str]) -> dict[str, _Place]:
    """Return where models keep their rows; without those that were never registered."""
    heads = run_pipeline(
        client,
        (),
        lambda pipe: [
            pipe.hmget(ModelKeys(name).head, ["rows", "meta", "status"]) for name in models
        ],
    )
    places: dict[str, _Place] = {}
    for name, (rows, meta, status) in zip(models, heads, strict=True):
        if meta is None:
            continue
        fields = parse_json_value(meta, f"model {name!r}, its stored head")
        dataset = fields.get("dataset_key") if isinstance(fields, dict) else None
        places[name] = _Place(
            (rows or b"").decode(errors="replace"),
            dataset if isinstance(dataset, str) else "",
            status != b"UNREGISTERED",
            isinstance(fields, dict) and fields.get("row_files") is not None,
        )
    return places
