"""Whether the keys that nothing else counts still hold what the head says: a lost key is noticed.

A key of Redis that was removed or evicted reads as an empty one: an empty ledger would bring
deleted rows back, an empty index would apply a request twice, and an empty hash of subjects would
tell a person that the model has none of their rows. So each commit writes into the head how many
entries these keys have (``apply.lua``), and who reads them compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import redis

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.server.connection import reachable
from lethe.engine.store.server.pipeline import Script, chunks

FIELDS = ("counts", "data")
"""Fields of the head: numbers of entries, separated by blanks; ``data`` begins with the name of the
data set. Absent from the heads of older programs until the next commit."""

_COUNTED = ("ledger", "requests", "retired", "deferred")
_OF_DATA = ("ids", "subjects")
LENGTHS = len(_COUNTED) + len(_OF_DATA)
_HEAD = (*FIELDS, "commit", "digest")
_TRIES = 5  # others may commit between two reads


class KeysLost(CorruptState):
    """Keys of a model lack entries that the head says they have."""

    code = "KEYS_LOST"


COUNT = Script(files("lethe.engine.store").joinpath("counts.lua").read_text(encoding="utf-8"))
"""``counts.lua``."""


def queue_count(pipeline: Any, state: ModelState) -> None:
    """Queue what `lost_of` compares, and the number of row records: one list, by `COUNT`."""
    keys, data = state.keys, state.keys.dataset(state.meta.dataset_key)
    counted = [keys.ledger, keys.requests, keys.retired, keys.deferred, data.ids, data.subjects]
    COUNT.queue(pipeline, [*counted, *state.generation_keys.every_rows()], ())


def queue_lengths(pipeline: Any, keys: ModelKeys, dataset: str) -> None:
    """Queue what `lost_of` compares: `LENGTHS` numbers, for users who may run no script."""
    data = keys.dataset(dataset)
    pipeline.hlen(keys.ledger)
    pipeline.hlen(keys.requests)
    pipeline.scard(keys.retired)
    pipeline.hlen(keys.deferred)
    pipeline.llen(data.ids)
    pipeline.hlen(data.subjects)


def lost_of(stored: Sequence[bytes | None], dataset: str, lengths: Sequence[Any]) -> list[str]:
    """Return the keys whose number of entries is not that of the head; none of a damaged type.

    ``stored`` are the head's `FIELDS`, and ``dataset`` is the data set whose lengths were read.
    """
    counts, data = stored
    expected: dict[str, int] = {}
    try:
        if counts is not None:
            expected |= zip(_COUNTED, map(int, counts.split()), strict=True)
        if data is not None:
            name, *numbers = data.split(b" ")
            if name.decode() == dataset:
                expected |= zip(_OF_DATA, map(int, numbers), strict=True)
    except ValueError:
        return ["head"]
    found = dict(zip((*_COUNTED, *_OF_DATA), lengths, strict=True))
    return [
        key
        for key, number in expected.items()
        if isinstance(found[key], int) and found[key] != number
    ]


def lost_keys(client: redis.Redis, models: Sequence[str]) -> dict[str, KeysLost]:
    """Return the models that have lost entries of counted keys, with what to do.

    A few hundred models take two round trips. A model whose head changes meanwhile is read again;
    keys that this user may not read are not compared.
    """
    lost: dict[str, KeysLost] = {}
    for chunk in chunks(models):
        unclear: Sequence[str] = chunk
        for _ in range(_TRIES):
            if unclear:
                found, unclear = _compare(client, unclear)
                lost |= {name: _error(name, keys) for name, keys in found.items()}
    return lost


def _compare(
    client: redis.Redis, models: Sequence[str]
) -> tuple[dict[str, list[str]], Sequence[str]]:
    """Return the lost keys of models that have some, and models that others committed to."""
    heads = [ModelKeys(name).head for name in models]
    with reachable(client):
        pipeline = client.pipeline(transaction=False)
        for head in heads:
            pipeline.hmget(head, _HEAD)
        before = pipeline.execute(raise_on_error=False)
        names = [_dataset(head) for head in before]
        pipeline = client.pipeline(transaction=False)
        for name, dataset, head in zip(models, names, heads, strict=True):
            queue_lengths(pipeline, ModelKeys(name), dataset)
            pipeline.hmget(head, _HEAD)
        answers = pipeline.execute(raise_on_error=False)
    lost: dict[str, list[str]] = {}
    unclear = []
    for i, (name, dataset) in enumerate(zip(models, names, strict=True)):
        *lengths, after = answers[i * (LENGTHS + 1) : (i + 1) * (LENGTHS + 1)]
        if not isinstance(after, list):
            continue  # whoever loads it gets the error
        if after != before[i]:
            unclear.append(name)
        elif keys := lost_of(after[: len(FIELDS)], dataset, lengths):
            lost[name] = keys
    return lost, unclear


def _dataset(head: Any) -> str:
    """Return the name of a data set, as the fields of the head have it."""
    data = head[1] if isinstance(head, list) else None
    return "" if data is None else data.split(b" ")[0].decode(errors="replace")


def _error(model_id: str, keys: Sequence[str]) -> KeysLost:
    return KeysLost(
        f"model {model_id!r}: the store has lost entries of {', '.join(keys)} (a key was removed, "
        "or evicted under a maxmemory-policy), and the log does not reach back to restore them: "
        "nobody knows all the rows that were deleted, or all the requests that were answered. "
        "Restore a backup; or run `lethe register --replace --accept-forgotten` with a file that "
        "has none of the deleted rows"
    )
