"""Registering a model: fit, precompute, stage, commit version 0 (or the next one), publish.

The commit is the same script as a deletion's. Requests that arrive meanwhile are safe: those
decided before the commit (UNKNOWN_MODEL) stay decided, the others are applied to the new state;
with --replace, rows deleted while the new generation is made are left out of it before it swaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from consumers.candidate import Candidate, TrainingData, check_names, stage
from consumers.certificates import check_terms
from consumers.cut_off import Branch
from consumers.events import Version
from consumers.log.base import Producer, Reader
from consumers.past import Known, Past
from consumers.progress import Progress, unseen
from consumers.publisher import Publisher, erase
from consumers.replacement import (
    continued_log,
    fork,
    is_fork,
    still_deferred,
    tip,
    with_former_rows,
)
from consumers.signing import TrustedKeys
from consumers.steps import AtStep, Step, unwatched
from consumers.transition import (
    Origin,
    advanced,
    entries_in_order,
    head_fields,
    leaves_of,
    next_version,
    parameters_value,
    publish_version,
    receipt_entry,
    scalars_of,
    with_leaves,
)
from engine.errors import CommitConflict, CorruptState, InvalidData, ModelExists
from engine.store import staging
from engine.store.commit import Commit
from engine.store.head import ModelConfig
from engine.store.keys import ModelKeys
from engine.store.predecessor import Members, Predecessor, read_members, read_predecessor
from engine.store.receipt_log import read_leaves
from engine.store.staged import Staged, catch_up
from engine.store.state import ModelState
from engine.store.store import ModelStore

_COMMIT_TRIES = 50  # each round catches up with what was deleted meanwhile

__all__ = ["Registered", "TrainingData", "register"]


@dataclass(frozen=True, slots=True)
class Registered:
    """What registration did; ``left_out`` rows were in the deletion ledger."""

    state: ModelState
    left_out: int


def register(
    store: ModelStore,
    producer: Producer,
    reader: Reader,
    config: ModelConfig,
    data: TrainingData,
    *,
    replace_model: bool = False,
    trusted: TrustedKeys | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Progress = unseen,
    at_step: AtStep = unwatched,
) -> Registered:
    """Fit, precompute, store and publish.

    Before a model is replaced, a store that lost writes is brought to what was published, as at a
    takeover (with ``trusted`` keys to what these have signed). Where that cannot be, the chain
    goes on from what was published all the same: versions stay dense and linked, and none is used
    twice. What the store decided by itself is settled with it (`consumers.cut_off`).

    Raises
    ------
    ModelExists
        The model is registered, and ``replace_model`` is False.
    VersionFork
        The store is behind what was published of this model, or does not go with it, and
        ``replace_model`` is False.
    InvalidData, IllConditioned, NotConverged
        The data cannot be used; nothing was stored.
    CorruptState
        What is stored cannot be replaced; nothing was changed.
    StoreUnavailable, LogUnavailable
        A server is gone. When only the log is, the version is committed and the workers publish
        it.

    Notes
    -----
    Cost O(n d^2) time, O(n d) bytes written.
    """
    check_names(config)
    check_terms(config)
    keys = ModelKeys.of_model(config.model_id)
    past = Past(store, reader, Publisher(store, producer, at_step), config.model_id, trusted)
    halt = past.settle() if replace_model else None
    published = past.published()
    before = read_predecessor(store.client, keys, config.model_id)
    if not replace_model:
        if published is not None and is_fork(before, published):
            raise fork(before, published)
        if before.registered:
            raise past.settle() or _exists(config.model_id, before)
    ledgered = store.ledgered(keys, data.ids)
    kept = _without(data, ledgered)
    progress("fitting and precomputing", 0, 0)
    number = tip(before, published).generation + 1
    staged = _stepping(progress, at_step)
    candidate = stage(store, config, kept, number, progress=staged, now=now())
    committed = _commit(
        store,
        candidate,
        Known(past, published, halt),
        now,
        replace_model=replace_model,
        at_step=at_step,
    )
    at_step(Step.REGISTER_FINISH)
    _finish(store, producer, config.model_id, at_step)
    return Registered(committed, len(data.ids) - len(kept.ids))


def _stepping(progress: Progress, at_step: AtStep) -> Progress:
    def staged(what: str, done: int, total: int) -> None:
        progress(what, done, total)
        at_step(Step.REGISTER_STAGE)

    return staged


def _finish(store: ModelStore, producer: Producer, model_id: str, at_step: AtStep) -> None:
    """Do what follows a commit; a registration that was cut short is finished by the next."""
    keys = ModelKeys.of_model(model_id)
    store.settle()
    for error in Publisher(store, producer, at_step).publish([keys]).values():
        raise error
    erase(store, keys, at_step)


def _exists(model_id: str, before: Predecessor) -> ModelExists:
    return ModelExists(
        f"model {model_id!r} is registered already (version {before.version}); use "
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


def _commit(
    store: ModelStore,
    candidate: Candidate,
    known: Known,
    now: Callable[[], datetime],
    *,
    replace_model: bool,
    at_step: AtStep,
) -> ModelState:
    """Commit, catching up with what others committed meanwhile."""
    model_id, client = candidate.state.model_id, store.client
    members: Members | None = None
    for _ in range(_COMMIT_TRIES):
        before = read_predecessor(client, candidate.state.keys, model_id)
        if before.registered and not replace_model:
            names = [*candidate.where.everything(), *candidate.dataset.everything()]
            staging.discard(client, names)
            raise _exists(model_id, before)
        if known.forked:
            known = known.again()
            if not known.forked:
                continue
        if members is None or members.datasets != before.datasets:
            members = read_members(client, before)
            subjects = with_former_rows(candidate.data.subjects, members, candidate.new)
            staging.stage_subjects(client, candidate.dataset, subjects)
        branch = known.branch(before)
        # Its staged rows are gone already, if it has to try again
        fresh = _onto(store, candidate, before, known.published, branch)
        candidate = replace(candidate, state=fresh)
        after, commit = _transition(store, candidate, before, members, branch, now())
        # A process that ends after the commit must not leave a model that nobody looks after
        at_step(Step.REGISTER_ANNOUNCE)
        store.announce(model_id)
        at_step(Step.REGISTER_COMMIT)
        try:
            store.commit(commit, lambda: at_step(Step.BARRIER))
        except CommitConflict:
            continue
        return advanced(after, Origin())
    raise CommitConflict(
        f"model {model_id!r}: others committed {_COMMIT_TRIES} times in a row; "
        "try again when fewer deletions arrive"
    )


def _transition(
    store: ModelStore,
    candidate: Candidate,
    before: Predecessor,
    members: Members,
    branch: Branch | None,
    now: datetime,
) -> tuple[ModelState, Commit]:
    """Return the state that follows its predecessor, and the commit that makes it."""
    fresh, where, dataset = candidate.state, candidate.where, candidate.dataset
    state, entries = next_version(fresh, now)
    answers = [] if branch is None else branch.answers(state, now)
    receipts = [answer.receipt for answer in answers]
    leaves = leaves_of(receipts)
    after, version = publish_version(
        with_leaves(state, leaves),
        request_ids=[one.request_id for one in receipts if one.status == "APPLIED"],
        refresh=None,
        origin=Origin(),
        now=now,
    )
    entries += [*version, *(receipt_entry(receipt) for receipt in receipts)]
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
    if store.row_keys is not None:
        store.row_keys.keep(where)
    missing = [row for row in members.ids if row not in candidate.new]
    ledgered = store.ledgered(before.keys, missing)
    commit = Commit(
        keys=fresh.keys,
        generation=where,
        expected=before.expected,
        head=head_fields(after, None),
        v_before=len(fresh.stream.V),
        q_before=len(fresh.stream.Q),
        log_kept=_log_kept(fresh, before),
        receipt_log=leaves,
        retired=[row for row in missing if row not in ledgered],
        deferred={name: request.model_dump_json() for name, request in after.deferred.items()},
        outbox=entries_in_order(entries),
        parameters=parameters_value(entries),
        persist=persist,
        discarded=[
            *(f"gen:{name}" for name in before.generations),
            *(f"data:{name}" for name in before.datasets),
        ],
    )
    if branch is not None:
        commit = branch.settled(commit, answers)
    return after, commit


def _log_kept(fresh: ModelState, before: Predecessor) -> int | None:
    """Return how much of the stored log of receipts stands: all of it, or nothing."""
    log = fresh.meta.receipt_log
    return None if log is not None and log.size == before.expected.receipts else 0


def _onto(
    store: ModelStore,
    candidate: Candidate,
    before: Predecessor,
    published: Version | None,
    branch: Branch | None,
) -> ModelState:
    """Return the candidate as successor of the present state, later deletions left out."""
    fresh, old = candidate.state, tip(before, published, branch)
    later = store.ledgered(fresh.keys, candidate.data.ids)
    staged = Staged(
        candidate.where, fresh.generation, fresh.stream, fresh.sentinels, fresh.meta.ledger
    )
    caught_up = catch_up(store, staged, fresh.meta, sorted(later))
    counts = caught_up.class_counts(fresh.meta.class_counts)
    penalised = fresh.generation.objective.penalty.min() > 0
    if len(caught_up.rows) == fresh.meta.rows_live or (min(counts or (1,)) == 0 and not penalised):
        raise InvalidData(
            f"model {fresh.model_id!r}: the last rows of the file, or of one class, were deleted "
            "while it was registered; nothing was changed, register it again"
        )
    if caught_up.rows:
        staging.unstage_rows(store.client, candidate.where, caught_up.rows, store.row_keys)
        staging.stage_stream(store.client, candidate.where, caught_up.staged.stream)
    changed = fresh.meta.model_copy(
        update={
            "generation": old.generation + 1,
            "reference_epoch": 0 if before.meta is None else before.meta.reference_epoch + 1,
            "rows_live": fresh.meta.rows_live - len(caught_up.rows),
            "rows_deleted": old.rows_deleted,
            "deletions_logged": before.deletions,
            "class_counts": counts,
            "certified": None if caught_up.rows else fresh.meta.certified,
            "first_deletion_at": fresh.meta.refreshed_at
            if len(caught_up.staged.stream.V)
            else None,
            "ledger": caught_up.staged.ledger,
            "receipt_log": branch.log
            if branch is not None
            else continued_log(before, published, lambda: read_leaves(store.client, before.keys)),
            **scalars_of(caught_up.staged.stream),
        }
    )
    return replace(
        fresh,
        commit_seq=before.expected.commit_seq,
        version=old.version,
        digest=old.digest,
        meta=changed,
        generation=replace(fresh.generation, number=old.generation + 1),
        stream=caught_up.staged.stream,
        sentinels=caught_up.staged.sentinels,
        offsets=before.offsets,
        deferred=still_deferred(before.deferred, candidate.new)
        if branch is None
        else branch.answered(still_deferred(before.deferred, candidate.new)),
        secret=before.secret or fresh.secret,
    )
