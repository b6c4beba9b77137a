"""What registration and unregistration change, worked out from the state before: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from lethe.consumers.commits.apply import Arrays, Live
from lethe.consumers.commits.commit import CommitKind, Staged
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.decide import OTHER_PEOPLE
from lethe.consumers.registration.candidate import Candidate
from lethe.consumers.registration.predecessor import of_others
from lethe.consumers.versions.refresh_schedule import in_turn
from lethe.consumers.versions.transition import (
    Origin,
    Transition,
    commit_of,
    next_version,
    publish_version,
    rejected_receipt,
    with_receipts,
)
from lethe.engine.deletion.stream import at_rest
from lethe.engine.store.generation import thetas_of
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import DeferredRequest, ModelState
from lethe.engine.store.offline.predecessor import Predecessor


def registration(
    candidate: Candidate,
    before: Predecessor,
    *,
    deleted: Sequence[str],
    left_out: Sequence[str],
    mark: str,
    now: datetime,
) -> Transition:
    """Return the commit that makes a candidate live.

    Parameters
    ----------
    candidate, before
        The candidate as successor of the present state, and what it replaces.
    deleted
        Rows whose deletion the log has and the ledger of the store lacks.
    left_out
        Former rows that the new file lacks: they are retired.
    mark
        What was written into the staged keys when they were complete.
    """
    fresh = candidate.state
    state, job = next_version(fresh, now)
    state, answers = with_receipts(
        state,
        _rejections(
            of_others(before.deferred, state.meta.config),
            state.model_id,
            "UNKNOWN_ROWS",
            OTHER_PEOPLE,
            now,
        ),
    )
    after, version = publish_version(state, request_ids=(), refresh=None, origin=Origin(), now=now)
    commit = commit_of(
        fresh,
        after,
        CommitKind.REGISTRATION,
        Origin(),
        version=version,
        configures=True,
        answers=answers,
        deleted=tuple(deleted),
        left_out=tuple(left_out),
        deferred=after.deferred,
        job=job,
        staged=Staged(
            candidate.where.name,
            candidate.dataset.name,
            mark,
            (),
            (
                *(f"gen:{name}" for name in before.generations),
                *(f"data:{name}" for name in before.datasets),
            ),
        ),
        opening=None,
        skips=before.expired or before.gap or (before.head.commit >= 0 and not before.head.digest),
        secret=fresh.secret,
    )
    thetas = {**commit.thetas, **thetas_of(after.stream)}
    commit = replace(commit, offsets=before.offsets, thetas=thetas)
    stream = fresh.stream
    arrays = Arrays(  # V and Q are staged: the commit appends nothing to them
        stream.V.array[len(stream.V) :],
        stream.Q.array[len(stream.Q) :],
        len(stream.V),
        len(stream.Q),
        None,
    )
    return Transition(commit, after, arrays)


def unregistration(state: ModelState, now: datetime) -> Transition:
    """Return the commit that ends a model; deferred requests get their final receipts."""
    config = state.meta.config
    meta = with_meta(
        state.meta,
        status="UNREGISTERED",
        dataset_key="",
        generation_key="",
        rows_live=0,
        class_counts=None,
        first_deletion_at=None,
        certified_bound=None,
        ledger=None,
        pending_job=None,
        failures=None,
    )
    stream = at_rest(np.zeros((config.d, config.m)), 0.0, config.blocks)
    detail = (
        f"model {state.model_id!r} was unregistered while the request waited: all of its rows are "
        "gone"
    )
    after, answers = with_receipts(
        replace(state, meta=meta, stream=stream, deferred={}),
        _rejections(state.deferred, state.model_id, "MODEL_UNREGISTERED", detail, now),
    )
    commit = commit_of(
        state,
        after,
        CommitKind.UNREGISTRATION,
        Origin(),
        answers=answers,
        undeferred=tuple(state.deferred),
    )
    commit = replace(commit, thetas=thetas_of(stream))  # the former thetas derive from the rows
    return Transition(commit, after, None, Live(state.keys.generation("none"), ()))


def _rejections(
    requests: Mapping[str, DeferredRequest], model_id: str, code: str, detail: str, now: datetime
) -> list[tuple[Receipt, bytes]]:
    """Return the final receipts of deferred requests, each with the digest of its content."""
    return [
        (rejected_receipt(request, model_id, code, detail, now), bytes.fromhex(request.body))
        for request in in_turn(requests.values())
    ]
