"""A fitted softmax model of the library whose preprocessing is part of it.

Its classes are coupled, and a change of the statistics moves the rows of all of them. So a change
is a fit of the pipeline to the rows that are live then, begun at the last answer: exact, and two or
three Newton steps over all rows. Whatever the method, the answer itself is published.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream, smallest_eigenvalue
from lethe.engine.error.estimate import UNKNOWN, ErrorKind, PublishedError, relative_to
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.classes import one_sided
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.multinomial import SoftmaxObjective
from lethe.engine.fit.objective import Array, Rows, lengths, norm, ridge_penalty
from lethe.engine.preprocess.answer import LiveAnswer, Prepared
from lethe.engine.preprocess.error import stated
from lethe.engine.preprocess.estimate import moved_rows
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.library.fitted import PreparedFit
from lethe.engine.preprocess.library.state import PreparedState
from lethe.engine.preprocess.published import PipelineUnits
from lethe.engine.preprocess.transformation.base import fit_base
from lethe.engine.preprocess.transformation.layout import Places
from lethe.engine.preprocess.transformation.statistics import live_statistics
from lethe.engine.preprocess.transformation.sums import Contribution, Sums
from lethe.engine.refresh import coupled
from lethe.engine.rows import Membership

_FEW = 8.0  # roundings in a row in base units, and in a deviation
_SLACK = 1.0 + 1e-6  # for the products of roundings


@dataclass(slots=True)
class PreparedSoftmax(PreparedFit):
    """A fitted softmax model with preprocessing, as it is changed: by a fit each time.

    ``certified`` is a bound in the units of the pipeline's last step.
    """

    @classmethod
    def _prepare(
        cls,
        settings: Settings,
        table: Table,
        y: Array,
        weight: Array,
        number: int,
        near: PreparedState | None = None,
    ) -> Prepared:
        """Fit transformation and model to a table. Cost O(n d^2 C^2 + (d C)^3) a Newton step."""
        single = one_sided(settings.kind, Rows(np.empty((len(y), 0)), y, weight))
        free = settings.free_intercept and not single
        base = fit_base(settings.columns, table, y[:, 0], centred=free)
        X, entries = base.rows(table, intercept=settings.intercept)
        rows = Rows(X, y, weight)
        rows.check_finite()
        penalty = ridge_penalty(
            settings.ridge,
            X.shape[1],
            intercept=settings.intercept,
            penalise_intercept=not free,
        )
        sums = Sums.of(base.layout, _uncurved(rows, entries), (), base.intervals)
        live = live_statistics(base, table.vocabularies, sums)
        units = PipelineUnits.of(live, intercept=settings.intercept)
        start = None if near is None else _start(near, base.layout.names, units)
        made = coupled.begin(number, SoftmaxObjective.of(penalty, rows), rows, start)
        answer = LiveAnswer(sums, live, (), np.zeros_like(made.generation.theta_b), 0.0, 0)
        certified = made.certified
        if certified is not None:
            moved = moved_rows(base.layout, live, X, entries)
            distance = certified + _rounded_away(made.generation, made.stream, rows, moved, units)
            certified = units.growth * distance + units.rounding(made.generation.theta_b)
        return Prepared(
            made.generation, made.stream, made.factor, made.dual_rows, rows, entries, base, answer,
            certified, "INTERCEPT_PENALISED" if settings.intercept and single else "ACTIVE",
        )  # fmt: skip

    @classmethod
    def _sentinels_of(
        cls, members: Membership, generation: Generation, seed: int, without: tuple[str, ...] = ()
    ) -> Sentinels:
        """Return no rows: nothing is estimated."""
        del generation, seed, without
        return Sentinels((), members.rows.take(slice(0)), members.W[:0])

    def _error_of(
        self,
        stream: Stream,
        answer: LiveAnswer,
        sentinels: Sentinels,
        rows_live: int,
        certified: float | None,
    ) -> PublishedError:
        """Return the error of a state whose other parts are this one's: a bound, or unknown."""
        del sentinels, rows_live
        if certified is None:
            return UNKNOWN
        units = self._units_of(answer)
        published, fitted = (
            units.parameters(theta) for theta in (stream.published, self.generation.theta_b)
        )
        return stated(certified, relative_to(published, fitted), ErrorKind.CERTIFICATE)

    def estimate(self) -> float | None:
        """Return the bound; None without one."""
        return self.certified

    def delete(self, ids: tuple[str, ...], method: str) -> PublishedError:
        """Delete live rows by a fit to the others, and return the error."""
        self.rebuild(ids)
        self.method = method
        return self.error

    def change(
        self, new_ids: tuple[str, ...], new: Rows, old: tuple[str, ...], method: str
    ) -> None:
        """Insert rows, and delete live rows ``old``, by a fit to what is there then."""
        self.refit_with(new_ids, new, old)
        self.method = method

    def compact(self) -> None:
        """Do nothing: no step has left anything to fold away."""


def _uncurved(rows: Rows, entries: Places) -> Contribution:
    """Return rows as they enter the sums that statistics are made of: those have no curvature."""
    k, nothing = len(rows), np.zeros(len(rows))
    empty = np.zeros((k, 1))
    return Contribution(rows.X, entries, empty, empty, nothing, empty, nothing, nothing)


def _start(near: PreparedState, names: tuple[str, ...], units: PipelineUnits) -> Array:
    """Return the parameters of the state before in other base units; 0 for what it has not."""
    before = near.published
    place = {name: i for i, name in enumerate(near.feature_names)}
    start = np.zeros((len(names) + int(units.intercept), before.shape[1]))
    for i, name in enumerate(names):
        if name in place:
            start[i] = before[place[name]] / units.deviation[i]
    if units.intercept:
        start[-1] = before[-1] - units.mean @ start[: len(names)]
    return start


def _rounded_away(
    generation: Generation, stream: Stream, rows: Rows, moved: Array, units: PipelineUnits
) -> float:
    """Return a bound of how far rounding of the statistics and of the rows moves the minimiser.

    Rows that are wrong by a share of their lengths change the gradient by that share of what its
    rounding is proportional to; ``moved`` are the rows as the statistics in turn would have them.
    """
    objective, theta = generation.objective, generation.theta_b
    p, long = len(units.mean), lengths(rows.X)
    shares = np.divide(lengths(moved - rows.X), long, out=np.zeros(len(long)), where=long > 0)
    share = float(np.max(shares, initial=0.0)) + _FEW * EPS
    off = np.abs(units.deviation - 1.0) * (units.deviation + 1.0)
    off += _FEW * EPS * units.amplified * units.deviation**2
    pulled = norm((objective.penalty[:p] * off)[:, None] * theta[:p])
    gradient = share * objective.gradient_scale(rows, theta) + pulled
    gradient += _off_centre(generation, units)
    return _SLACK * gradient / smallest_eigenvalue(generation, stream)


def _off_centre(generation: Generation, units: PipelineUnits) -> float:
    """Return what centres that are rounded leave in the gradient of intercepts that are penalised.

    The pipeline penalises b + mean.theta, and the fit b: both are the same in columns that are
    centred by their mean, or as they are. A mean far from 0 is stored to eps of itself, and
    ``mean`` is the rest. Free intercepts take it up.
    """
    weight = float(generation.objective.penalty[-1]) if units.intercept else 0.0
    if weight == 0.0:
        return 0.0
    theta, intercept = generation.theta_b[:-1], generation.theta_b[-1]
    off = norm(np.abs(units.mean) + _FEW * EPS * units.mean_size)
    along = off * norm(theta)
    return weight * (off * (norm(intercept) + along) + along)
