"""The state that a registration commits: the candidate, continuing what was there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lethe.consumers.log.base import Reader
from lethe.consumers.registration.candidate import Candidate
from lethe.consumers.registration.predecessor import continued_log, still_deferred, tip_of
from lethe.consumers.versions.disclosures import scale_without
from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import unbounded
from lethe.engine.store.generation import scalars_of
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline import staging
from lethe.engine.store.offline.catch_up import catch_up
from lethe.engine.store.offline.predecessor import Predecessor
from lethe.engine.store.offline.staging import StagedGeneration
from lethe.engine.store.store import ModelStore


def successor_of(
    store: ModelStore,
    reader: Reader,
    candidate: Candidate,
    before: Predecessor,
    gone: Sequence[str],
) -> ModelState:
    """Return a candidate's state as the one after ``before``; what is staged loses rows, too.

    Parameters
    ----------
    store, reader
        Where the candidate is staged, and the log.
    candidate
        What was fitted and staged.
    before
        What it follows, or takes the place of.
    gone
        Rows of the candidate that were deleted or erased since it was staged.

    Raises
    ------
    InvalidData
        No row is left, or none of a class.
    """
    fresh, tip = candidate.state, tip_of(reader, before)
    staged = StagedGeneration(
        candidate.where,
        fresh.generation,
        fresh.stream,
        fresh.sentinels,
        fresh.meta.ledger,
        fresh.pipeline,
    )
    caught_up = catch_up(store, staged, fresh.meta, gone)
    counts = caught_up.class_counts(fresh.meta.class_counts)
    objective = fresh.generation.objective
    one_sided = counts is not None and unbounded(objective.kind, counts)
    if len(caught_up.deleted) == fresh.meta.rows_live or (
        one_sided and not objective.penalty.min() > 0
    ):
        raise InvalidData(
            f"model {fresh.model_id!r}: the last rows of the file, or of one class, were "
            "deleted while it was registered; nothing was changed, register it again"
        )
    scale = fresh.meta.disclosure
    if caught_up.deleted:
        leaving = caught_up.moved.leaving
        if scale is not None and leaving is not None:
            scale = scale_without(fresh, scale, caught_up.staged.stream, leaving)
        client, where = store.client, candidate.where
        staging.unstage_rows(client, where, caught_up.deleted, store.row_keys)
        after = caught_up.staged
        staging.stage_stream(client, where, after.stream, None, after.pipeline)
    forgotten_rows = len(before.ledger)
    changed = fresh.meta.model_copy(
        update={
            "generation": tip.generation + 1,
            "reference_epoch": 0 if before.meta is None else before.meta.reference_epoch + 1,
            "rows_live": fresh.meta.rows_live - len(caught_up.deleted),
            "rows_deleted": tip.rows_deleted,
            "deletions_logged": before.deletions + forgotten_rows * (before.meta is None),
            "class_counts": counts,
            "certified_bound": None if caught_up.deleted else fresh.meta.certified_bound,
            "first_deletion_at": fresh.meta.refreshed_at
            if len(caught_up.staged.stream.V) or (caught_up.deleted and fresh.meta.row_files)
            else None,
            "ledger": caught_up.staged.ledger,
            "disclosure": scale,
            "receipt_log": continued_log(store, before),
            **scalars_of(caught_up.staged.stream),
        }
    )
    return replace(
        fresh,
        head=before.head,
        version=before.version,
        digest=before.digest,
        meta=changed,
        generation=replace(fresh.generation, number=tip.generation + 1),
        stream=caught_up.staged.stream,
        sentinels=caught_up.staged.sentinels,
        pipeline=caught_up.staged.pipeline,
        offsets=before.offsets,
        deferred=still_deferred(before.deferred, fresh.meta.config, candidate.new),
        secret=before.secret or fresh.secret,
    )
