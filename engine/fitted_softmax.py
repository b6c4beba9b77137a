"""A fitted softmax model of the library: `engine.fitted.Fitted` for C coupled classes.

Its error is certified by a pass over the live rows after every change, O(n d C): there are no dual
rows from which an estimate could be made.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Self

import numpy as np

from lethe.engine.deletion.correction import INSERTED
from lethe.engine.deletion.coupled import parts_of, step
from lethe.engine.deletion.generation import Stream, at_rest, has_lost_digits
from lethe.engine.deletion.methods import method_named
from lethe.engine.error.coupled import certify
from lethe.engine.error.estimate import PublishedError, published_error
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.classes import one_sided
from lethe.engine.fit.multinomial import SoftmaxObjective
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.fitted import Fitted
from lethe.engine.refresh import coupled
from lethe.engine.refresh.kinds import rebuild
from lethe.engine.refresh.refreshes import NewGeneration, adopt_polish, complete
from lethe.engine.rows import Mask, Membership


class FittedSoftmax(Fitted):
    """Everything that a softmax fit produces; its attributes are those of `Fitted`."""

    __slots__ = ()

    @classmethod
    def of_rows(
        cls,
        penalty: Array,
        names: tuple[str, ...],
        rows: Rows,
        classes: tuple[str, ...],
        *,
        intercept: bool,
        ridge: float,
        columns: tuple[str, ...] | None,
    ) -> Self:
        """Return a fresh fit of ``rows``.

        Raises
        ------
        InvalidData, IllConditioned, NotConverged
            As `engine.refresh.coupled.begin`.
        """
        new = coupled.begin(0, SoftmaxObjective.of(penalty, rows), rows)
        members = Membership.of(Kind.SOFTMAX, names, rows, new.dual_rows)
        nobody = Sentinels((), rows.take(slice(0)), new.dual_rows[:0])
        return cls(
            members,
            new.generation,
            _judged(new.stream),
            new.factor,
            nobody,
            new.certified,
            classes,
            seed=0,
            intercept=intercept,
            ridge=ridge,
            columns=columns,
        )

    @property
    def objective(self) -> SoftmaxObjective:
        """The objective of the present generation."""
        return parts_of(self.generation)[0]

    def estimate(self) -> float | None:
        """Return the certified bound of theta_exact; None without one."""
        return self.certified

    def delete(self, ids: tuple[str, ...], method: str) -> PublishedError:
        """Delete live rows by a step, and certify it.

        The cost is that of `engine.deletion.coupled.step`, and a pass over the live rows.
        """
        members = self.members
        rows = members.rows.take(members.places(ids))
        stream = self._stepped(self._begun(method), rows, method)
        bound = self._certified(stream, members.rows.take(members.live_without(ids)))
        error = published_error(
            self.generation, stream, self.sentinels, len(members) - len(ids), bound
        )
        self.stream, self.certified, self.method = stream, bound, method
        self.leave(ids)
        return error

    def change(
        self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...], method: str
    ) -> None:
        """Insert rows, and delete live rows ``old`` in the same step; new rows come first."""
        stream = self._stepped(self._begun(method), new, method, INSERTED)
        if old:
            leaving = self.members.rows.take(self.members.places(old))
            stream = self._stepped(stream, leaving, method)
        members = deepcopy(self.members)
        members.forget(old)
        members.add(new_ids, new, np.empty((len(new), 0)))
        bound = self._certified(stream, members.rows.take(members.live))
        published_error(self.generation, stream, self.sentinels, len(members), bound)
        self.members, self.stream = members, stream
        self.certified, self.method = bound, method

    def polish(self, target: float) -> float:
        """Polish to ``target`` and return the error that is left. Cost O(n d C) a pass."""
        rows = self.members.rows.take(self.members.live)
        polished = coupled.polish(self.generation, self.stream, rows, target)
        stream = _judged(adopt_polish(self.stream, polished))
        published_error(self.generation, stream, self.sentinels, len(rows), polished.certified)
        self.stream, self.certified = stream, polished.certified
        return polished.left

    def compact(self) -> None:
        """Fold V into the factor. Cost O(n d C + K (d C)^2 + (d C)^3).

        Raises
        ------
        IllConditioned
            The inverse would no longer be known accurately enough; rebuild instead.
        """
        certified, rows = self.certified, self.members.rows.take(self.members.live)
        new = coupled.compact(self.generation, self.stream, rows)
        self._take(new, self.members.live)
        self.certified = certified  # of theta_exact, which has not moved

    def rebuild(self, leave_out: tuple[str, ...]) -> None:
        """Refit on the live rows without ``leave_out``. Cost O(n d^2 C^2 + (d C)^3).

        If a class has no row left, the intercept is penalised by ``ridge`` like the rest.
        """
        remain = self.members.live_without(leave_out)
        self.members.rebalance(remain)
        if not self.members.rows.weight[remain].any():
            origin = np.zeros_like(self.stream.theta_exact)
            self.stream = at_rest(origin, 0.0, origin.shape[1])
            self.leave(leave_out)
            return
        rows, generation = self.members.rows.take(remain), self.generation
        if self.intercept and one_sided(Kind.SOFTMAX, rows):
            penalised = replace(self.objective, penalty=np.full(self.objective.d, self.ridge))
            generation = replace(generation, objective=penalised)
        rebuilt = rebuild(generation, rows, self.stream.theta_exact)
        published_error(
            rebuilt.generation, rebuilt.stream, self.sentinels, len(rows), rebuilt.certified
        )
        self._take(rebuilt, remain, leave_out)

    def _take(self, new: NewGeneration, live: Mask, leave_out: tuple[str, ...] = ()) -> None:  # noqa: ARG002 (there are no dual rows)
        self.generation, self.factor = new.generation, new.factor
        self.stream = _judged(new.stream)
        self.certified = new.certified
        self.leave(leave_out)

    def _begun(self, method: str) -> Stream:
        """Return the stream, completed if it was published by another method."""
        return self.stream if self.method in (None, method) else complete(self.stream)

    def _stepped(self, stream: Stream, rows: Rows, method: str, sign: float = 1.0) -> Stream:
        return _judged(step(self.generation, stream, rows, method_named(method), sign))

    def _certified(self, stream: Stream, live: Rows) -> float | None:
        """Return a bound of |theta_exact - theta*| over ``live`` rows. Cost O(n d C).

        None once V has lost its digits.
        """
        if has_lost_digits(stream):
            return None
        return certify(
            self.objective, self.generation, stream, self.factor, live, stream.theta_exact
        ).bound


def _judged(stream: Stream) -> Stream:
    """Return the stream without what it knows of its error: a pass says all of it."""
    return stream._replace(carried=0.0, residual=0.0)
