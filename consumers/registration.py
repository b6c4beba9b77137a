"""Registering a model: fit, precompute, stage, commit version 0 (or the next one), publish.

The commit is the same script as a deletion's. Requests that arrive meanwhile are safe: those
decided before the commit (UNKNOWN_MODEL) stay decided, the others are applied to the new state;
with --replace, rows deleted while the new generation is made are left out of it before it swaps.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from consumers.chain import GENESIS
from consumers.log.base import Producer
from consumers.publisher import Publisher
from consumers.transition import (
    Origin,
    advanced,
    entries_in_order,
    head_fields,
    parameters_value,
    publish_version,
    scalars_of,
)
from engine.error import Sentinels, choose_sentinels
from engine.errors import CommitConflict, CorruptState, InvalidData, ModelExists
from engine.objective import Array, Kind, Objective, Rows, ridge_penalty, with_intercept
from engine.precompute import Precomputation, precompute
from engine.store import staging
from engine.store.commit import Commit, Expected
from engine.store.head import ErrorRecord, Meta, ModelConfig, Status
from engine.store.keys import DatasetKeys, GenerationKeys, ModelKeys
from engine.store.snapshot import take_snapshot
from engine.store.staged import Staged, catch_up
from engine.store.state import Deferred, ModelState, State, Unregistered
from engine.store.store import ModelStore
from engine.stream import begin

_COMMIT_TRIES = 50  # each round catches up with what was deleted meanwhile

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Training rows as they come from a file.

    Attributes
    ----------
    ids
        Row ids, distinct, 1 to 128 characters.
    X, y
        n x p features without intercept, n x m targets; float64.
    feature_names, target_names
        Names of the columns.
    subjects
        Subject id to row ids; empty without a subject column.
    """

    ids: tuple[str, ...]
    X: Array
    y: Array
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    subjects: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Registered:
    """What registration did; ``left_out`` rows were in the deletion ledger."""

    state: ModelState
    left_out: int


def register(
    store: ModelStore,
    producer: Producer,
    config: ModelConfig,
    data: TrainingData,
    *,
    replace_model: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Progress = lambda _what, _done, _all: None,
) -> Registered:
    """Fit, precompute, store and publish.

    Raises
    ------
    ModelExists
        The model is registered, and ``replace_model`` is False.
    InvalidData, IllConditioned, NotConverged
        The data cannot be used; nothing was stored.
    StoreUnavailable, LogUnavailable
        A server is gone. When only the log is, the version is committed and the workers publish
        it.

    Notes
    -----
    Cost O(n d^2) time, O(n d) bytes written.
    """
    keys = ModelKeys.of_model(config.model_id)
    state = store.load(keys, config.model_id)
    if isinstance(state, ModelState) and not replace_model:
        _finish(store, producer, state)
        raise _exists(state)
    ledgered = store.ledgered(keys, data.ids)
    kept = _without(data, ledgered)
    progress("fitting and precomputing", 0, 0)
    rows, made, status = _precompute(config, kept)
    name = uuid.uuid4().hex
    where, dataset = keys.generation(name), keys.dataset(name)
    number = state.meta.generation + 1 if isinstance(state, ModelState) else 0
    objective = _objective(config, rows)
    generation, stream = begin(number, objective, made.theta, made.factor, made.certificate)
    chosen = choose_sentinels(len(kept.ids), number)
    sentinels = Sentinels(
        tuple(kept.ids[i] for i in chosen), rows.take(np.array(chosen)), made.dual_rows[chosen]
    )
    staging.stage_generation(
        store.client,
        where,
        generation=generation,
        stream=stream,
        L=made.factor.L,
        ids=kept.ids,
        rows=rows,
        W=made.dual_rows,
        sentinel_ids=sentinels.ids,
        on_rows=lambda done: progress("storing rows", done, len(kept.ids)),
    )
    staging.stage_dataset(store.client, dataset, kept.ids)
    staging.stage_subjects(store.client, dataset, kept.subjects)
    fresh = ModelState(
        keys=keys,
        commit_seq=state.commit_seq,
        version=state.version if isinstance(state, ModelState) else -1,
        digest=state.digest if isinstance(state, ModelState) else GENESIS,
        meta=_meta(config, state, kept, rows, status, name, number, made, now()),
        generation=generation,
        stream=stream,
        sentinels=sentinels,
        offsets=state.offsets,
        deferred={},
    )
    candidate = _Candidate(fresh, where, dataset, kept)
    committed = _commit(store, candidate, now, replace_model=replace_model)
    _finish(store, producer, committed)
    return Registered(committed, len(data.ids) - len(kept.ids))


def _finish(store: ModelStore, producer: Producer, state: ModelState) -> None:
    """Do what follows a commit; a registration that was cut short is finished by the next."""
    store.settle()
    store.announce(state.model_id)
    failed = Publisher(store, producer).publish([state.keys])
    if failed:
        raise failed[state.keys]
    store.erase(state.keys)


def _exists(state: ModelState) -> ModelExists:
    return ModelExists(
        f"model {state.model_id!r} is registered already (version {state.version}); use "
        "--replace to publish its next version from this file"
    )


def _without(data: TrainingData, ledgered: frozenset[str]) -> TrainingData:
    """Leave out rows of the deletion ledger: they never come back."""
    if not ledgered:
        return data
    keep = np.array([row not in ledgered for row in data.ids], dtype=np.bool_)
    if not keep.any():
        raise InvalidData(
            "every row of the file was deleted from this model before; there is nothing to fit"
        )
    ids = tuple(row for row in data.ids if row not in ledgered)
    return replace(data, ids=ids, X=data.X[keep], y=data.y[keep])


def _precompute(config: ModelConfig, data: TrainingData) -> tuple[Rows, Precomputation, Status]:
    X = with_intercept(data.X) if config.fit_intercept else data.X
    rows = Rows(np.ascontiguousarray(X), data.y, np.ones(len(data.ids)))
    rows.check_finite()
    status: Status = "INTERCEPT_PENALISED" if _one_class(config, rows) else "ACTIVE"
    return rows, precompute(_objective(config, rows), rows), status


def _one_class(config: ModelConfig, rows: Rows) -> bool:
    logistic = config.kind is Kind.LOGISTIC and config.fit_intercept
    return logistic and len(np.unique(rows.y)) == 1


def _objective(config: ModelConfig, rows: Rows) -> Objective:
    penalty = ridge_penalty(
        config.ridge,
        config.d,
        intercept=config.fit_intercept,
        penalise_intercept=_one_class(config, rows),
    )
    return Objective(config.kind, penalty)


def _meta(
    config: ModelConfig,
    before: State,
    data: TrainingData,
    rows: Rows,
    status: Status,
    name: str,
    number: int,
    made: Precomputation,
    now: datetime,
) -> Meta:
    ones = int(rows.y.sum())
    old = before.meta if isinstance(before, ModelState) else None
    _, stream = begin(number, _objective(config, rows), made.theta, made.factor, made.certificate)
    return Meta(
        config=config,
        status=status,
        generation=number,
        generation_key=name,
        generation_created_at=now,
        dataset_key=name,
        reference_epoch=0 if old is None else old.reference_epoch + 1,
        rows_live=len(data.ids),
        rows_deleted=0 if old is None else old.rows_deleted,
        deletions_logged=0 if old is None else old.deletions_logged,
        class_counts=(len(data.ids) - ones, ones) if config.kind is Kind.LOGISTIC else None,
        **scalars_of(stream),  # type: ignore[arg-type]  # int and float fields alike
        error=ErrorRecord(
            value=0.0,
            kind="exact",
            bound=None,
            certified_version=None,
            budget=config.error_budget,
            relative=0.0,
        ),
        certified=made.certificate.bound,
        refreshed_at=now,
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A staged model that waits for its commit, ``known`` deletions included."""

    state: ModelState
    where: GenerationKeys
    dataset: DatasetKeys
    data: TrainingData


def _commit(
    store: ModelStore,
    candidate: _Candidate,
    now: Callable[[], datetime],
    *,
    replace_model: bool,
) -> ModelState:
    """Commit, catching up with what others committed meanwhile."""
    for _ in range(_COMMIT_TRIES):
        fresh = candidate.state
        before = store.load(fresh.keys, fresh.model_id)
        if isinstance(before, ModelState) and not replace_model:
            names = [*candidate.where.everything(), *candidate.dataset.everything()]
            staging.discard(store.client, names)
            raise _exists(before)
        if isinstance(before, ModelState):
            fresh = _onto(store, candidate, before)
            candidate = replace(candidate, state=fresh)  # its staged rows are gone already
        else:
            fresh = replace(fresh, commit_seq=before.commit_seq, offsets=before.offsets)
        after, entries = publish_version(
            fresh, request_ids=(), refresh=None, origin=Origin(), now=now()
        )
        retired = _retired(store, before, candidate) if isinstance(before, ModelState) else []
        discarded = (
            [f"gen:{before.meta.generation_key}", f"data:{before.meta.dataset_key}"]
            if isinstance(before, ModelState)
            else []
        )
        where, dataset = candidate.where, candidate.dataset
        persist = staging.to_persist(
            store.client,
            [*where.required(), dataset.ids],
            [*where.optional(), dataset.subjects],
        )
        if persist is None:
            raise CorruptState(
                f"model {fresh.model_id!r}: what was staged has gone before it could be committed "
                "(after six hours it expires, and a store with a maxmemory-policy may evict it); "
                "nothing was changed, register it again"
            )
        commit = Commit(
            keys=fresh.keys,
            generation=candidate.where,
            expected=_expected(before),
            head=head_fields(after, None),
            v_before=len(fresh.stream.V),
            q_before=len(fresh.stream.Q),
            retired=retired,
            deferred={name: request.model_dump_json() for name, request in after.deferred.items()},
            outbox=entries_in_order(entries),
            parameters=parameters_value(entries),
            persist=persist,
            discarded=discarded,
        )
        try:
            store.commit(commit)
        except CommitConflict:
            continue
        return advanced(after, Origin())
    raise CommitConflict(
        f"model {candidate.state.model_id!r}: others committed {_COMMIT_TRIES} times in a row; "
        "try again when fewer deletions arrive"
    )


def _expected(before: State) -> Expected:
    if isinstance(before, Unregistered):
        return Expected(before.commit_seq, -1, GENESIS)
    return Expected(before.commit_seq, before.version, before.digest)


def _onto(store: ModelStore, candidate: _Candidate, before: ModelState) -> ModelState:
    """Return the candidate as successor of the present state, later deletions left out."""
    fresh, meta = candidate.state, before.meta
    later = store.ledgered(fresh.keys, candidate.data.ids)
    staged = Staged(candidate.where, fresh.generation, fresh.stream, fresh.sentinels)
    caught_up = catch_up(store, staged, fresh.meta, sorted(later))
    counts = caught_up.class_counts(fresh.meta.class_counts)
    penalised = fresh.generation.objective.penalty.min() > 0
    if len(caught_up.rows) == fresh.meta.rows_live or (min(counts or (1,)) == 0 and not penalised):
        raise InvalidData(
            f"model {fresh.model_id!r}: the last rows of the file, or of one class, were deleted "
            "while it was registered; nothing was changed, register it again"
        )
    if caught_up.rows:
        staging.unstage_rows(store.client, candidate.where, caught_up.rows)
        staging.stage_stream(store.client, candidate.where, caught_up.staged.stream)
    changed = fresh.meta.model_copy(
        update={
            "generation": meta.generation + 1,
            "reference_epoch": meta.reference_epoch + 1,
            "rows_live": fresh.meta.rows_live - len(caught_up.rows),
            "rows_deleted": meta.rows_deleted,
            "deletions_logged": meta.deletions_logged,
            "class_counts": counts,
            "certified": None if caught_up.rows else fresh.meta.certified,
            "first_deletion_at": fresh.meta.refreshed_at
            if len(caught_up.staged.stream.V)
            else None,
            **scalars_of(caught_up.staged.stream),
        }
    )
    return replace(
        fresh,
        commit_seq=before.commit_seq,
        version=before.version,
        digest=before.digest,
        meta=changed,
        generation=replace(fresh.generation, number=meta.generation + 1),
        stream=caught_up.staged.stream,
        sentinels=caught_up.staged.sentinels,
        offsets=before.offsets,
        deferred=_still_deferred(before, candidate),
    )


def _still_deferred(before: ModelState, candidate: _Candidate) -> dict[str, Deferred]:
    """Return the requests that wait for a rebuild; rows that the new file lacks are retired."""
    new = set(candidate.data.ids)
    return {
        name: request.model_copy(
            update={
                "row_ids": tuple(row for row in request.row_ids if row in new),
                "retired": (*request.retired, *(r for r in request.row_ids if r not in new)),
            }
        )
        for name, request in before.deferred.items()
    }


def _retired(store: ModelStore, before: ModelState, candidate: _Candidate) -> list[str]:
    """Return rows of the present model that the new file does not have."""
    new = set(candidate.data.ids)
    snapshot = take_snapshot(store, before.model_id)
    return [row for row in snapshot.ids if row not in new]
