"""The null pipeline: the same worker with its mathematics taken out.

`install` replaces, in the worker's own process, the step (step 4), the published error and the
choice of a refresh by canned values of the same sizes. Everything else is the worker itself:
poll, validation, the look-up of receipts, ledger and k row records, the record of the same bytes,
its append, the script, publication and advancing. Row records are read and not decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

import lethe.consumers.deletions.batch_processor
import lethe.consumers.versions.refresh_schedule
import lethe.consumers.versions.transition
from lethe.consumers.deletions.decide import Accepted, Decision, StepResult
from lethe.engine.error.estimate import ErrorKind, PublishedError
from lethe.engine.fit.objective import Array
from lethe.engine.store.lookup import Lookup
from lethe.engine.store.state import ModelState

_CANNED = PublishedError(0.012345678901234567, ErrorKind.ESTIMATE, None, 0.0012345678901234567)


class _Canned:
    """Arrays of full-length numbers, drawn once for each shape."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[int, int], Array] = {}

    def array(self, rows: int, columns: int) -> Array:
        shape = (rows, columns)
        if shape not in self._arrays:
            self._arrays[shape] = np.random.default_rng(shape).standard_normal(shape)
        return self._arrays[shape]


_canned = _Canned()


def canned_batch(state: ModelState, decisions: Sequence[Decision], _lookup: Lookup) -> StepResult:
    """Return a batch of the size that `deletions.decide.compute` would return, uncomputed."""
    config, stream = state.meta.config, state.stream
    ids = tuple(row for d in decisions if isinstance(d, Accepted) for row in d.rows)
    rows = _canned.array(len(ids), config.d)
    theta = _canned.array(config.d, config.m).copy()  # a new array: the head's field changes
    after = replace(
        stream,
        theta_exact=theta,
        published=theta,
        V=stream.V.append(rows),
        Q=stream.Q.append(rows),
    )
    return StepResult(tuple(decisions), ids, after, rows, rows, state.meta.class_counts)


def canned_error(_state: ModelState) -> PublishedError:
    """Return an error that was not measured."""
    return _CANNED


def no_reason(_state: ModelState, _now: datetime) -> str | None:
    """Order no refresh."""
    return None


_REPLACED = (
    (lethe.consumers.deletions.batch_processor, "compute", canned_batch),
    (lethe.consumers.versions.transition, "measured_error", canned_error),
    (lethe.consumers.versions.refresh_schedule, "refresh_reason", no_reason),
)


def install() -> None:
    """Take the mathematics out of this process's worker."""
    for module, name, canned in _REPLACED:
        getattr(module, name)  # a name that has moved is an error, and no real mathematics
        setattr(module, name, canned)
