"""Workers with a part taken out, to measure what that part costs.

`install` replaces functions in the worker's own process; everything else is the worker itself.

null
    Without mathematics: the step (step 4), the published error and the choice of a refresh are
    canned values of the same sizes. What is left: poll, validation, the look-up of receipts, ledger
    and k row records, the record of the same bytes, its append, the script, publication and
    advancing. Row records are read and not decoded.
plain
    Without evidence: no receipt log, no commitments to rows; without a key it signs nothing
    either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

import lethe.consumers.deletions.batch_processor
import lethe.consumers.deletions.decide
import lethe.consumers.versions.draft
import lethe.consumers.versions.refresh_schedule
from lethe.consumers.commits.commit import Answer
from lethe.consumers.deletions.compute import BatchStep
from lethe.consumers.deletions.decisions import Accepted, Decision
from lethe.consumers.versions.draft import Draft
from lethe.engine.error.estimate import ErrorKind, PublishedError
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array
from lethe.engine.store.generation import scalars_of
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import Lookup

_CANNED = PublishedError(0.012345678901234567, ErrorKind.ESTIMATE, None, 0.0012345678901234567)


@cache
def _canned(rows: int, columns: int) -> Array:
    """Return full-length numbers, drawn once for each shape."""
    return np.random.default_rng((rows, columns)).standard_normal((rows, columns))


def canned_batch(
    state: ModelState, decisions: Sequence[Decision], _lookup: Lookup, _factor: Factor | None
) -> BatchStep:
    """Return a batch of the size that `deletions.compute.compute` would return, uncomputed."""
    config, stream, meta = state.meta.config, state.stream, state.meta
    ids = tuple(row for d in decisions if isinstance(d, Accepted) for row in d.rows)
    rows = _canned(len(ids), config.d)
    theta = _canned(config.d, config.m).copy()  # a new array: the head's field changes
    after = stream._replace(
        theta_exact=theta,
        published=theta,
        V=stream.V.append(rows),
        Q=stream.Q.append(rows),
    )
    counted = with_meta(
        meta,
        **scalars_of(after),
        rows_live=meta.rows_live - len(ids),
        rows_deleted=meta.rows_deleted + len(ids),
        deletions_logged=meta.deletions_logged + len(ids),
    )
    return BatchStep(tuple(decisions), replace(state, stream=after, meta=counted), ids)


def canned_error(_state: ModelState) -> PublishedError:
    """Return an error that was not measured."""
    return _CANNED


def no_reason(_state: ModelState, _now: datetime, **_why: bool) -> str | None:
    """Order no refresh."""
    return None


def without_log(draft: Draft) -> Mapping[str, Answer]:
    """Return the receipts as they are kept, of a state that has no log of them."""
    meta = draft.state.meta.model_copy(update={"receipt_log": None})
    draft.state = replace(draft.state, meta=meta)
    kept = ((receipt, receipt.value(), body) for receipt, body in draft._answers)
    return {receipt.request_id: Answer(receipt, value, body) for receipt, value, body in kept}


def no_commitment(_secret: bytes | None, _request_id: str, _row_ids: Collection[str]) -> str | None:
    """Return no commitment."""
    return None


_REPLACED: Mapping[str, Sequence[tuple[ModuleType | type, str, Callable[..., Any]]]] = {
    "null": (
        (lethe.consumers.deletions.batch_processor, "compute", canned_batch),
        (lethe.consumers.versions.draft, "measured_error", canned_error),
        (lethe.consumers.versions.refresh_schedule, "refresh_reason", no_reason),
    ),
    "plain": (
        (Draft, "_kept", without_log),
        (lethe.consumers.deletions.decide, "rows_commitment", no_commitment),
    ),
}


def install(role: str) -> None:
    """Make this process's worker the one of this role; of any other, leave it as it is."""
    for module, name, substitute in _REPLACED.get(role, ()):
        getattr(module, name)  # a name that has moved is an error, and not the whole worker
        setattr(module, name, substitute)
