"""A fitted library model: its rows and state, and how deletions and refreshes change them.

A change is made on a `Fitted.draft`, which the model adopts once the change is complete. Arrays are
shared with it, and written to in place only then (`Fitted.erase`): an operation that raises changes
nothing, and readers in other threads see one state or the other.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from lethe.engine.deletion.change import RowMoves, RowsAndDuals, change
from lethe.engine.deletion.generation import Generation, Stream, at_rest, begin
from lethe.engine.deletion.insertion import base_dual_rows
from lethe.engine.error.estimate import (
    ErrorKind,
    PublishedError,
    believed_estimate,
    published_error,
)
from lethe.engine.error.sentinels import SENTINELS, Sentinels
from lethe.engine.exact.sums import Sums
from lethe.engine.fit.classes import one_sided, unbounded, weighted_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Objective, Rows
from lethe.engine.fit.precompute import Precomputation
from lethe.engine.refresh.policy import RefreshFacts, facts_of
from lethe.engine.refresh.refreshes import (
    NewGeneration,
    adopt_polish,
    compact,
    complete,
    polish_snapshot,
    rebuild,
)
from lethe.engine.rows import Mask, Membership

if TYPE_CHECKING:
    from lethe.engine.preprocess.refitted import RefittedRows


@dataclass(slots=True)
class Fitted:
    """Everything that `fit` produces.

    Attributes
    ----------
    members, generation, stream, factor, sentinels
        The rows and the state.
    certified
        A bound of |theta_exact - theta*_live| from an audit of this state, or None.
    classes
        Names of the classes; empty if the labels were 0 and 1.
    seed
        Draws the sentinels.
    intercept, ridge
        Whether the last coordinate is an intercept, and the ridge strength.
    columns
        Names of the features, or None.
    method
        The deletion method used since the last refresh, if any.
    leaving
        Rows that a draft has deleted, and whose data are still there.
    refitted
        The rows as they were given, if their transformers are fitted anew at every change.
    """

    members: Membership
    generation: Generation
    stream: Stream
    factor: Factor
    sentinels: Sentinels
    certified: float | None
    classes: tuple[str, ...]
    seed: int
    intercept: bool
    ridge: float
    columns: tuple[str, ...] | None = None
    method: str | None = None
    leaving: tuple[str, ...] = ()
    refitted: RefittedRows | None = None

    @classmethod
    def of(
        cls,
        objective: Objective,
        names: tuple[str, ...],
        rows: Rows,
        precomputation: Precomputation,
        classes: tuple[str, ...],
        seed: int,
        *,
        intercept: bool,
        ridge: float,
        columns: tuple[str, ...] | None,
    ) -> Fitted:
        """Return a fresh fit of ``rows``.

        Raises
        ------
        IllConditioned
            Its error cannot be stated.
        """
        generation, stream = begin(0, objective, precomputation)
        members = Membership.of(objective.kind, names, rows, precomputation.dual_rows)
        sentinels, bound = members.sentinels(generation, seed), precomputation.certificate.bound
        fitted = cls(
            members,
            generation,
            stream,
            precomputation.factor,
            sentinels,
            bound,
            classes,
            seed,
            intercept,
            ridge,
            columns,
        )
        _ = fitted.error
        return fitted

    def draft(self) -> Self:
        """Return a state that may be changed while this one is read. Cost O(1)."""
        draft = _shallow(self)
        draft.members = _shallow(self.members)
        return draft

    def leave(self, ids: tuple[str, ...]) -> None:
        """Stop counting rows; `erase` overwrites them. Cost O(k m)."""
        self.members.leave(ids)
        self.leaving = ids

    def erase(self) -> None:
        """Overwrite the data of the rows that have left: when a draft is adopted. Cost O(k d)."""
        self.members.erase(self.leaving)
        self.leaving = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; empty if they are columns of X, which do not change."""
        if self.refitted is None:
            return ()
        return self.refitted.names(len(self.published) - int(self.intercept))

    @property
    def published(self) -> Array:
        """What is published, d x m, the intercept last."""
        return self.stream.published

    @property
    def error(self) -> PublishedError:
        """Error of what is published against retraining on the live rows."""
        live = len(self.members)
        if self.members.weighted == 0:
            return PublishedError(0.0, ErrorKind.EXACT, 0.0, 0.0)
        return published_error(self.generation, self.stream, self.sentinels, live, self.certified)

    def estimate(self) -> float | None:
        """Return the sentinels' estimate on top of the carried error; 0 after an audit."""
        if self.certified is not None:
            return 0.0
        return believed_estimate(self.generation, self.stream, self.sentinels, len(self.members))

    def facts(self, budget: float) -> RefreshFacts:
        """Return what the policy of refreshes looks at, for a relative error ``budget``."""
        return facts_of(
            self.generation,
            self.stream,
            rows_live=len(self.members),
            estimate=self.estimate(),
            budget_relative=budget,
            audited=self.certified is not None,
        )

    def sums(self) -> Sums:
        """Return the exact sums of the live rows. Cost O(n d^2)."""
        return Sums.of(self.members.rows.take(self.members.live))

    def diagnosed(self) -> Fitted:
        """Return the state that `engine.diagnostics` looks at: one with present dual rows."""
        return self

    def needs_refit(self, ids: tuple[str, ...]) -> bool:
        """Return whether the objective has no minimiser without ``ids``, or is another. O(k m).

        It is another if the weights of classes are balanced: those of all rows change.
        """
        if self.members.balanced:
            return True
        left = self.members.counts_without(ids)
        unpenalised = bool(self.generation.objective.penalty[-1] == 0)
        return sum(left) == 0 or (unpenalised and unbounded(self.members.kind, left))

    def needs_refit_for(self, new: Rows, old: tuple[str, ...]) -> bool:
        """Return whether a change cannot be a step: there is no minimiser before it, or after."""
        if self.members.weighted == 0 or self.members.balanced:
            return True
        added = weighted_counts(self.members.kind, new)
        left = [
            kept + more for kept, more in zip(self.members.counts_without(old), added, strict=True)
        ]
        unpenalised = bool(self.generation.objective.penalty[-1] == 0)
        return sum(left) == 0 or (unpenalised and unbounded(self.members.kind, left))

    def delete(self, ids: tuple[str, ...], method: str) -> PublishedError:
        """Delete live rows by a step, and return the error.

        If the method differs from the last one, the stream is completed first. The cost is that of
        `engine.deletion.change`, and O(n d) for a new sample once half of the old one is
        deleted.
        """
        members, stream = self.members, self.stream
        if self.method not in (None, method):
            stream = complete(stream)
        stream = change(self.generation, stream, RowMoves(leaving=members.moved(ids)), method)
        sentinels = self.sentinels.without(frozenset(ids))
        remaining = len(members) - len(ids)
        if 2 * len(sentinels.ids) < min(SENTINELS, remaining):
            seed = self.seed + self.generation.number
            sentinels = members.sentinels(self.generation, seed, ids)
        error = published_error(self.generation, stream, sentinels, remaining)
        self.stream, self.sentinels = stream, sentinels
        self.certified, self.method = None, method
        self.leave(ids)
        return error

    def change(
        self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...], method: str
    ) -> None:
        """Insert rows, and delete live rows ``old`` in the same step: for a correction, the same.

        A new sample of the live rows is chosen.
        Cost O(k d^2) for the new dual rows, that of a deletion of each row, and O(n d).
        """
        members, stream, generation = self.members, self.stream, self.generation
        if self.method not in (None, method):
            stream = complete(stream)
        W, off = base_dual_rows(generation, self.factor, new.X)
        leaving = members.moved(old) if old else None
        stream = change(generation, stream, RowMoves(RowsAndDuals(new, W, off), leaving), method)
        changed = replace(self, members=deepcopy(members), stream=stream, certified=None)
        changed.members.forget(old)
        changed.members.add(new_ids, new, W)
        changed.sentinels = changed.members.sentinels(generation, self.seed + len(members.ids))
        _ = changed.error  # it can be stated
        self.members, self.stream, self.sentinels = changed.members, stream, changed.sentinels
        self.certified, self.method = None, method

    def refit_with(self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...]) -> None:
        """Do `change` by a rebuild: where no row, or none of a class, is left before or after it.

        Cost O(n d^2).
        """
        changed = replace(self, members=deepcopy(self.members))
        changed.members.forget(old)
        changed.members.add(new_ids, new, np.zeros((len(new), self.members.W.shape[1])))
        changed.rebuild(())
        self.members = changed.members
        self._take_over(changed)

    def _take_over(self, other: Fitted) -> None:
        self.generation, self.stream, self.factor = other.generation, other.stream, other.factor
        self.certified, self.sentinels, self.method = other.certified, other.sentinels, None

    def polish(self, target: float) -> float:
        """Polish to ``target`` and return the error that is left. Cost O(n d) a pass."""
        live = self.members.live
        rows, W = self.members.rows.take(live), self.members.W[live]
        polished = polish_snapshot(
            self.generation, self.stream, self.factor, rows, W, target=target
        )
        stream = adopt_polish(self.stream, polished)
        left = len(self.members)
        published_error(self.generation, stream, self.sentinels, left, polished.certified)
        self.stream, self.certified = stream, polished.certified
        return polished.left

    def compact(self) -> None:
        """Fold V away. Cost O(n K d).

        Raises
        ------
        IllConditioned
            The inverse would no longer be known accurately enough; rebuild instead.
        """
        live = self.members.live
        rows, W = self.members.rows.take(live), self.members.W[live]
        self._take(compact(self.generation, self.stream, self.factor, rows, W), live)

    def rebuild(self, leave_out: tuple[str, ...]) -> None:
        """Refit on the live rows without ``leave_out``. Cost O(n d^2).

        If a class has no row left, the intercept is penalised by ``ridge`` like the rest; if there
        is none at all, theta is 0.
        """
        remain = self.members.live_without(leave_out)
        self.members.rebalance(remain)
        if not self.members.rows.weight[remain].any():
            self.sentinels = self.sentinels.without(frozenset(leave_out))
            origin = np.zeros_like(self.stream.theta_exact)
            self.stream = at_rest(origin, 0.0, self.generation.blocks)
            self.leave(leave_out)
            return
        rows = self.members.rows.take(remain)
        generation, kind = self.generation, self.generation.objective.kind
        if self.intercept and one_sided(kind, rows):
            penalised = Objective(kind, np.full(generation.objective.d, self.ridge))
            generation = replace(generation, objective=penalised)
        rebuilt = rebuild(generation, rows, self.stream.theta_exact)
        published_error(
            rebuilt.generation, rebuilt.stream, self.sentinels, len(rows), rebuilt.certified
        )
        self._take(rebuilt, remain, leave_out)

    def _take(self, new: NewGeneration, live: Mask, leave_out: tuple[str, ...] = ()) -> None:
        """Take over a generation of the ``live`` rows, which are all but those left out."""
        self.members = self.members.with_dual_rows(live, new.dual_rows)
        seed = self.seed + new.generation.number
        self.sentinels = self.members.sentinels(new.generation, seed, leave_out)
        self.generation, self.stream, self.factor = new.generation, new.stream, new.factor
        self.certified = new.certified
        self.leave(leave_out)


_T = TypeVar("_T", bound="Fitted | Membership")


def _shallow(state: _T) -> _T:
    """Return a copy that shares what it holds: `dataclasses.replace` takes five times as long."""
    other = object.__new__(type(state))
    for name in state.__dataclass_fields__:
        setattr(other, name, getattr(state, name))
    return other


def moved_by(state: Fitted, before: Array, names: tuple[str, ...]) -> Array:
    """Return by how much a change has moved what is published, d x m.

    Parameters
    ----------
    state
        After the change.
    before, names
        What was published before, and the names of its features. A feature that one of the two
        lacks (a category that is new, or that a rebuild has left out) counts as 0 there.
    """
    if state.feature_names == names:
        return state.published - before
    place = {name: i for i, name in enumerate(names)}
    moved = state.published.copy()
    for i, name in enumerate(state.feature_names):
        moved[i] -= before[place[name]] if name in place else 0.0
    moved[len(state.feature_names) :] -= before[len(names) :]
    return moved
