"""What registration and unregistration change, worked out from the state before: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from lethe.consumers.commits.apply import Arrays, LiveGeneration
from lethe.consumers.commits.commit import CommitKind, Staged
from lethe.consumers.contract import codes
from lethe.consumers.deletions.decide import OTHER_PEOPLE
from lethe.consumers.registration.candidate import Candidate
from lethe.consumers.registration.predecessor import requests_of_other_namespaces
from lethe.consumers.versions.draft import Draft, Transition
from lethe.consumers.versions.receipts import Asked
from lethe.consumers.versions.refresh_schedule import in_turn
from lethe.engine.deletion.generation import at_rest
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.predecessor import Predecessor
from lethe.engine.store.row_files import former_files, without_files


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
    draft = Draft(fresh, CommitKind.REGISTRATION, now)
    draft.number_version()
    for request in in_turn(
        requests_of_other_namespaces(before.deferred, fresh.meta.config).values()
    ):
        draft.answer_rejected(Asked.of(request), codes.UNKNOWN_ROWS, OTHER_PEOPLE)
    former = (
        *(f"gen:{name}" for name in before.generations),
        *(f"data:{name}" for name in before.datasets),
        *former_files(before.meta),
    )
    V, Q = fresh.stream.V, fresh.stream.Q
    return draft.finish(
        whole=True,
        # V and Q are staged: the commit appends nothing to them
        arrays=Arrays(V.array[len(V) :], Q.array[len(Q) :], len(V), len(Q), None),
        configures=True,
        offsets=before.offsets,
        deleted=tuple(deleted),
        left_out=tuple(left_out),
        deferred=fresh.deferred,
        staged=Staged(candidate.where.name, candidate.dataset.name, mark, (), former),
        skips=before.expired or before.gap or (before.head.commit >= 0 and not before.head.digest),
        secret=fresh.secret,
    )


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
        row_files=without_files(state.meta.row_files),
    )
    stream = at_rest(np.zeros((config.d, config.m)), 0.0, config.stacked)
    draft = Draft(state, CommitKind.UNREGISTRATION, now)
    draft.state = replace(state, meta=meta, stream=stream, deferred={})
    detail = (
        f"model {state.model_id!r} was unregistered while the request waited: all of its rows are "
        "gone"
    )
    for request in in_turn(state.deferred.values()):
        draft.answer_rejected(Asked.of(request), codes.MODEL_UNREGISTERED, detail)
    return draft.finish(
        whole=True,  # the former thetas derive from the rows
        live=LiveGeneration(state.keys.generation("none"), ()),
        undeferred=tuple(state.deferred),
    )
