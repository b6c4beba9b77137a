"""The library alone, no servers: fit a model, delete rows, keep the error known.

model = LinearModel(ridge=1.0, fit_intercept=True).fit(X, y, ids=ids)
model.delete(["u17", "u42"], method="pru")
model.theta, model.intercept, model.error
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from engine.error import (
    ErrorKind,
    PublishedError,
    Sentinels,
    choose_sentinels,
    published_error,
    remainder_estimate,
)
from engine.errors import InvalidData, UnknownRows
from engine.factor import Factor
from engine.methods import method_named
from engine.objective import Array, Kind, Objective, Rows, norm, ridge_penalty, with_intercept
from engine.precompute import precompute
from engine.refresh import (
    Choice,
    Limits,
    NewGeneration,
    Size,
    adopt_polish,
    choose,
    compact,
    complete,
    facts_of,
    polish_snapshot,
    rebuild,
)
from engine.stream import Generation, Stream, at_rest, begin, delete


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """What one call of `delete` did.

    Attributes
    ----------
    deleted
        Ids deleted by this call; those deleted before are left out.
    step
        Change of the published theta, (d,) or (d, m), the intercept's change last if there is one.
    error
        The published error after the step.
    bound
        A true bound of it, or None where there is only an estimate.
    """

    deleted: tuple[str, ...]
    step: Array
    error: PublishedError
    bound: float | None


@dataclass(slots=True)
class _Fitted:
    """Everything that `fit` makes. Rows keep their place; ``live`` says which remain."""

    ids: tuple[str, ...]
    place: dict[str, int]
    rows: Rows
    live: Any  # boolean array (n,)
    generation: Generation
    stream: Stream
    factor: Factor
    W: Array
    sentinels: Sentinels
    certified: float | None


class _Model:
    """What both models share."""

    kind: ClassVar[Kind]

    def __init__(
        self,
        ridge: float = 1.0,
        *,
        fit_intercept: bool = True,
        penalise_intercept: bool = False,
        error_budget: float = 0.01,
        limits: Limits | None = None,
        seed: int = 0,
    ) -> None:
        self.ridge = float(ridge)
        self.fit_intercept = fit_intercept
        self.penalise_intercept = penalise_intercept
        self.error_budget = float(error_budget)
        self.limits = limits or Limits()
        self.seed = seed
        self._state: _Fitted | None = None
        self._flat = True

    # -- fitting ------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        ids: Sequence[str] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit and precompute.

        Parameters
        ----------
        X
            n x p features, finite.
        y
            (n,) or, for a linear model, (n, m) targets; 0 or 1 for a logistic model.
        ids
            One distinct id a row; by default "0", "1", ...
        sample_weight
            (n,) weights above 0.

        Raises
        ------
        InvalidData
            Shapes, ids or numbers cannot be used.
        IllConditioned, NotConverged
            As `engine.fit.fit`.

        Notes
        -----
        Cost O(n d^2); keeps X and the dual rows, 2 n d numbers.
        """
        features = np.ascontiguousarray(X, dtype=np.float64)
        if features.ndim != 2:
            raise InvalidData(f"X must have two dimensions, not {features.ndim}")
        targets = np.asarray(y, dtype=np.float64)
        self._flat = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        n = features.shape[0]
        weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, np.float64)
        names = tuple(str(i) for i in range(n)) if ids is None else tuple(str(i) for i in ids)
        rows = Rows(with_intercept(features) if self.fit_intercept else features, targets, weight)
        self._check(rows, names)
        penalty = ridge_penalty(
            self.ridge,
            rows.X.shape[1],
            intercept=self.fit_intercept,
            penalise_intercept=self.penalise_intercept or self._one_class(rows),
        )
        made = precompute(Objective(self.kind, penalty), rows)
        generation, stream = begin(
            0, Objective(self.kind, penalty), made.theta, made.factor, made.certificate
        )
        live = np.ones(n, dtype=np.bool_)
        self._state = _Fitted(
            names,
            {name: i for i, name in enumerate(names)},
            rows,
            live,
            generation,
            stream,
            made.factor,
            made.dual_rows,
            self._choose_sentinels(names, rows, made.dual_rows, live, 0),
            made.certificate.bound,
        )
        return self

    def _check(self, rows: Rows, names: tuple[str, ...]) -> None:
        rows.check_finite()
        if len(names) != len(rows):
            raise InvalidData(f"{len(names)} ids for {len(rows)} rows; give one id a row")
        if len(set(names)) != len(names):
            raise InvalidData("ids are not distinct; give each row its own id")
        if not (rows.weight > 0).all():
            raise InvalidData("every sample weight must be above 0")
        if self.kind is Kind.LOGISTIC:
            if rows.y.shape[1] != 1:
                raise InvalidData("a logistic model has one target")
            if not np.isin(rows.y, (0.0, 1.0)).all():
                raise InvalidData("logistic targets must be 0 or 1")

    def _one_class(self, rows: Rows) -> bool:
        return self.kind is Kind.LOGISTIC and len(np.unique(rows.y)) == 1

    def _choose_sentinels(
        self, ids: tuple[str, ...], rows: Rows, W: Array, live: Any, number: int
    ) -> Sentinels:
        places = np.flatnonzero(live)
        chosen = places[choose_sentinels(len(places), self.seed + number)]
        return Sentinels(tuple(ids[i] for i in chosen), rows.take(chosen), W[chosen])

    # -- deletion -----------------------------------------------------------------------------

    def delete(self, ids: Iterable[str], method: str = "pru") -> DeletionResult:
        """Delete rows by id; ids deleted before are no error and change nothing.

        Parameters
        ----------
        ids
            Row ids, in any order; duplicates count once.
        method
            ``pru``, ``exact`` or ``influence``.

        Raises
        ------
        UnknownRows
            Some id was never a row of this model; nothing is deleted.
        IllConditioned
            Leverage too near to 1; nothing is deleted. Rebuild without the rows instead:
            ``refresh("rebuild", without=ids)``.

        Notes
        -----
        Cost O(K k d + k^2 d), K rows deleted since the last compact or rebuild.
        """
        state = self._fitted
        chosen_method = method_named(method)
        new = self._live_ids(state, ids)
        before = state.stream.published
        if new:
            places = np.array([state.place[name] for name in new])
            if len(new) == state.live.sum() or self._leaves_one_class(state, places):
                self.refresh(Size.REBUILD, without=new)
            else:
                done = delete(
                    state.generation,
                    state.stream,
                    state.rows.take(places),
                    state.W[places],
                    chosen_method,
                )
                self._forget(state, new)
                state.stream = done.stream
                state.certified = None
        error = self.error
        step = self._state.stream.published - before if self._state else before
        return DeletionResult(new, self._shaped(step), error, error.bound)

    def _live_ids(self, state: _Fitted, ids: Iterable[str]) -> tuple[str, ...]:
        wanted = dict.fromkeys(str(name) for name in ids)
        unknown = [name for name in wanted if name not in state.place]
        if unknown:
            raise UnknownRows(
                f"{len(unknown)} of {len(wanted)} ids were never rows of this model, the first "
                f"is {unknown[0]!r}; nothing was deleted"
            )
        return tuple(name for name in wanted if state.live[state.place[name]])

    def _leaves_one_class(self, state: _Fitted, places: Any) -> bool:
        if self.kind is not Kind.LOGISTIC or state.generation.objective.penalty[-1] > 0:
            return False
        remain = state.live.copy()
        remain[places] = False
        return len(np.unique(state.rows.y[remain])) == 1

    def _forget(self, state: _Fitted, ids: tuple[str, ...]) -> None:
        places = np.array([state.place[name] for name in ids])
        state.live[places] = False
        state.rows.X[places] = 0.0
        state.rows.y[places] = 0.0
        state.W[places] = 0.0
        state.sentinels = state.sentinels.without(frozenset(ids))

    # -- refresh ------------------------------------------------------------------------------

    def refresh(self, size: Size | str | None = None, *, without: Iterable[str] = ()) -> Choice:
        """Refresh by the policy of `engine.refresh`, or to an ordered size.

        Parameters
        ----------
        size
            None lets the policy choose the smallest size that does.
        without
            With a rebuild: rows to delete by leaving them out of it.

        Returns
        -------
        Choice
            The size and its reason.
        """
        state = self._fitted
        leave_out = self._live_ids(state, without)
        ordered = None if size is None else Size(size)
        if leave_out:
            ordered = Size.REBUILD
            self._forget(state, leave_out)
        facts = facts_of(
            state.generation,
            state.stream,
            estimate=self._estimate(state),
            budget_relative=self.error_budget,
        )
        choice = choose(facts, self.limits, ordered)
        if not state.live.any():
            state.stream = at_rest(np.zeros_like(state.stream.theta_exact), 0.0)
            return choice
        rows, W = state.rows.take(state.live), state.W[state.live]
        match choice.size:
            case Size.COMPLETE:
                state.stream = complete(state.stream)
            case Size.POLISH:
                target = self.limits.far_under * self.error_budget * norm(state.stream.published)
                polished = polish_snapshot(
                    state.generation, state.stream, state.factor, rows, W, target=target
                )
                state.stream = adopt_polish(state.stream, polished)
                state.certified = polished.certified
            case Size.COMPACT:
                made = compact(state.generation, state.stream, state.factor, rows, W)
                self._take_generation(state, made)
            case Size.REBUILD:
                generation = self._with_class_penalty(state, rows)
                made = rebuild(generation, rows, state.stream.theta_exact)
                self._take_generation(state, made)
        return choice

    def _with_class_penalty(self, state: _Fitted, rows: Rows) -> Generation:
        objective = state.generation.objective
        if not self.fit_intercept or not self._one_class(rows):
            return state.generation
        penalty = np.full(objective.d, self.ridge)
        return Generation(
            state.generation.number,
            Objective(objective.kind, penalty),
            state.generation.theta_b,
            state.generation.smallest,
            state.generation.largest,
        )

    def _take_generation(self, state: _Fitted, made: NewGeneration) -> None:
        state.generation, state.stream, state.factor = made.generation, made.stream, made.factor
        state.W[state.live] = made.dual_rows
        state.certified = made.certified
        state.sentinels = self._choose_sentinels(
            state.ids, state.rows, state.W, state.live, made.generation.number
        )

    # -- reading ------------------------------------------------------------------------------

    @property
    def _fitted(self) -> _Fitted:
        if self._state is None:
            raise InvalidData("the model is not fitted; call fit first")
        return self._state

    def _estimate(self, state: _Fitted) -> float:
        return remainder_estimate(
            state.generation, state.stream, state.sentinels, int(state.live.sum())
        )

    def _shaped(self, theta: Array) -> Array:
        return theta[:, 0] if self._flat else theta

    @property
    def theta(self) -> Array:
        """Published parameters, (p,) or (p, m); the intercept is apart."""
        published = self._fitted.stream.published
        return self._shaped(published[:-1] if self.fit_intercept else published)

    @property
    def intercept(self) -> Any:
        """Published intercept: a float, or (m,) for several targets; 0.0 without one."""
        published = self._fitted.stream.published
        if not self.fit_intercept:
            return 0.0 if self._flat else np.zeros(published.shape[1])
        return float(published[-1, 0]) if self._flat else published[-1]

    @property
    def error(self) -> PublishedError:
        """Error of the published parameters against retraining on the live rows."""
        state = self._fitted
        if not state.live.any():
            return PublishedError(0.0, ErrorKind.EXACT, 0.0, 0.0)
        return published_error(
            state.generation,
            state.stream,
            state.sentinels,
            int(state.live.sum()),
            state.certified,
        )

    @property
    def live_ids(self) -> tuple[str, ...]:
        """Ids of the rows that remain."""
        state = self._fitted
        return tuple(name for name, alive in zip(state.ids, state.live, strict=True) if alive)

    def predict(self, X: ArrayLike) -> Array:
        """Return predictions: values for a linear model, probabilities for a logistic one."""
        features = np.asarray(X, dtype=np.float64)
        margin = features @ self._fitted.stream.published[: features.shape[1]]
        if self.fit_intercept:
            margin = margin + self._fitted.stream.published[-1]
        return self._shaped(self._fitted.generation.objective.mean(margin))


class LinearModel(_Model):
    """Ridge regression that can forget.

    Equivalent to ``sklearn.linear_model.Ridge(alpha=ridge, fit_intercept=...)`` refitted on the
    remaining rows after every deletion. Deletion by ``exact`` is exact; by ``pru`` and
    ``influence`` the distance to exact is known.
    """

    kind = Kind.LINEAR


class LogisticModel(_Model):
    """Ridge-regularised logistic regression that can forget.

    Equivalent to ``sklearn.linear_model.LogisticRegression(C=1/ridge)`` refitted on the remaining
    rows, within the error that every result carries.
    """

    kind = Kind.LOGISTIC
