"""The models that an erasure is about, as the store has them now, and whose rows they hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from lethe.engine.errors import CorruptState, RowsMissing, StoreUnavailable
from lethe.engine.store.counts import KeysLost
from lethe.engine.store.layout.config import parse_config
from lethe.engine.store.layout.keys import DatasetKeys, ModelKeys
from lethe.engine.store.layout.meta import Meta, parse_meta
from lethe.engine.store.layout.reading import parse_ids, parse_json_value, parse_text
from lethe.engine.store.layout.state import check_stored_format, parse_opening
from lethe.engine.store.membership import listed_models
from lethe.engine.store.row_files import by_the_newest, with_those_of_files
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import CHUNK, chunks, run_pipeline
from lethe.engine.store.store import ModelStore

T = TypeVar("T")

_FIELDS = ("format", "status", "config", "meta", "opening")


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered model.

    Attributes
    ----------
    model_id
        Its name.
    registration
        Name of the registration that it goes back to: another one with each ``--replace``.
    namespace
        That of its subjects; None if it was registered without subjects.
    opening
        Offset from which the requests of a partition are the model's; None if not known yet.
    meta
        Of a model whose rows are in files; None of others.
    """

    model_id: str
    registration: str
    namespace: str | None
    opening: Mapping[str, int] | None
    meta: Meta | None = None

    @property
    def subjects(self) -> DatasetKeys:
        """Where it is kept whose rows are whose."""
        return ModelKeys(self.model_id).dataset(self.registration)

    def knows(self, namespace: str) -> bool:
        """Return whether subjects of a namespace may have rows in it."""
        return (self.namespace or "") == namespace


@dataclass(frozen=True, slots=True)
class Models:
    """All registered models, and those whose stored head cannot be read (they are halted)."""

    registered: tuple[Registered, ...]
    damaged: frozenset[str]


def read_models(store: ModelStore) -> Models:
    """Read which models are registered. Two round trips for a few hundred models.

    Raises
    ------
    KeysLost
        The store's lists of models lack some: whoever may have rows of a person is not known.
    """
    names, lacking = listed_models(store.client)
    if lacking:
        raise KeysLost(
            f"the store's list of models {lacking[0].models} has lost entries (a key was removed, "
            "or evicted under a maxmemory-policy): erasures would pass over those models. Start a "
            "deletion worker: it makes the list again from lethe.versions"
        )
    registered, damaged = [], set()
    for chunk in chunks(names):
        stored = run_pipeline(store.client, (), partial(_queue_heads, names=chunk), each=True)
        for name, fields in zip(chunk, stored, strict=True):
            try:
                model = _registered(name, fields)
                if model is not None and model.meta is not None:
                    store.row_files.of(model.meta)  # which may be gone, or those of another day
            except CorruptState:
                damaged.add(name)
                continue
            if model is not None:
                registered.append(model)
    return Models(tuple(registered), frozenset(damaged))


def _queue_heads(pipeline: Any, names: Sequence[str]) -> None:
    for name in names:
        pipeline.hmget(ModelKeys(name).head, _FIELDS)


def _registered(model_id: str, stored: Any) -> Registered | None:
    if isinstance(stored, CorruptState):
        raise stored
    stored_format, status, config, meta, opening = stored
    if status == b"UNREGISTERED":
        return None
    check_stored_format(stored_format, model_id)
    what = f"model {model_id!r}, its stored head"
    fields = parse_json_value(meta, what)
    fields = fields if isinstance(fields, dict) else {}
    dataset, parsed = fields.get("dataset_key"), parse_config(config, model_id)
    return Registered(
        model_id,
        parse_text(dataset if isinstance(dataset, str) else None, what),
        parsed.subject_namespace,
        parse_opening(opening, what),
        None if fields.get("row_files") is None else parse_meta(meta, parsed),
    )


def rows_of_subjects(
    store: ModelStore, models: Sequence[Registered], subject_ids: Sequence[Collection[str]]
) -> list[dict[str, tuple[str, ...]]]:
    """Return, for each model, the rows of those of its subjects that it knows. One round trip.

    Rows that were deleted are among them: a model never forgets whose they were.
    """
    wanted = [list(chunks(sorted(ids))) for ids in subject_ids]
    answers = iter(
        run_pipeline(
            store.client,
            (),
            lambda pipe: [
                pipe.hmget(model.subjects.subjects, part)
                for model, parts in zip(models, wanted, strict=True)
                for part in parts
            ],
        )
    )
    found: list[dict[str, tuple[str, ...]]] = []
    for model, parts in zip(models, wanted, strict=True):
        what = f"model {model.model_id!r}, a subject's rows"
        rows: dict[str, tuple[str, ...]] = {}
        for part in parts:
            for subject, stored in zip(part, next(answers), strict=True):
                if stored is not None:
                    rows[subject] = tuple(dict.fromkeys(parse_ids(stored, what)))
        if model.meta is not None:
            asked = [subject for part in parts for subject in part]
            read = partial(store.row_files.subjects, subject_ids=asked)
            rows = with_those_of_files(rows, _of_files(store, model.meta, read))
        found.append(rows)
    return found


def every_subject(store: ModelStore, model: Registered) -> Iterator[list[str]]:
    """Yield the subjects that a model knows, some hundred at a time."""
    cursor, names = 0, model.subjects.subjects
    while True:
        with reachable(store.client):
            answer: Any = store.client.hscan(names, cursor, count=CHUNK)
        cursor, stored = answer
        if stored:
            yield [text(subject) for subject in stored]
        if cursor == 0:
            break
    if model.meta is not None:
        yield _of_files(store, model.meta, store.row_files.every_subject)


def _of_files(store: ModelStore, meta: Meta, read: Callable[[Meta], T]) -> T:
    """Return what is read of a model's files.

    Raises
    ------
    StoreUnavailable
        They are gone by now: the store went back to a time before others took their place, and a
        fold brings it up to date.
    """
    try:
        return by_the_newest(store.client, meta, read)
    except RowsMissing as error:
        raise StoreUnavailable(str(error)) from error
