"""The library alone, no servers: fit a model, delete rows, keep the error known.

model = LinearModel(ridge=1.0, fit_intercept=True).fit(X, y, ids=ids)
model.delete(["u17", "u42"], method="pru")
model.theta, model.intercept, model.error
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from lethe.engine.changes import check_live, check_new, kept_weights, new_rows
from lethe.engine.deletion.methods import method_named
from lethe.engine.error.estimate import PublishedError
from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.fit.classes import one_sided, probabilities
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, check_finite, ridge_penalty
from lethe.engine.fitted import Fitted
from lethe.engine.refresh.blockwise import precompute_blocks
from lethe.engine.refresh.kind import RefreshKind
from lethe.engine.refresh.kinds import complete
from lethe.engine.refresh.policy import Choice, Limits, choose, facts_of
from lethe.engine.result import ChangeResult, DeletionResult
from lethe.engine.rows import checked_rows, numbers

_OVERFLOW = np.errstate(over="ignore", invalid="ignore")  # detected in the results: no warning


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
        self._state: Fitted | None = None
        self._flat = True

    # -- fitting ------------------------------------------------------------------------------

    @_OVERFLOW
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
            (n,) or, for a linear model, (n, m) targets. For a logistic model, 0 and 1, or labels:
            whole numbers or text. Of two other labels, the second in order counts as 1; more than
            two give one model of each class against the rest (`classes`), and theta is (p, C).
            If all rows are of one class, an intercept is penalised: it would be infinite.
        ids
            One distinct id a row; by default "0", "1", ...
        sample_weight
            (n,) weights above 0.

        Raises
        ------
        InvalidData
            Shapes, ids or numbers cannot be used, or are past the limits of `engine.fit.magnitude`.
        IllConditioned, NotConverged
            As `engine.fit.fit.fit`.

        Notes
        -----
        Cost O(n d^2); keeps copies of X and the dual rows, 2 n d numbers. With C classes, C times
        the work and (1 + C) n d numbers.
        """
        if not self.error_budget > 0:
            raise InvalidData(f"error_budget must be a number above 0, not {self.error_budget}")
        names, rows, classes = checked_rows(
            self.kind, X, y, ids, sample_weight, intercept=self.fit_intercept
        )
        penalty = ridge_penalty(
            self.ridge,
            rows.X.shape[1],
            intercept=self.fit_intercept,
            penalise_intercept=self.penalise_intercept or one_sided(self.kind, rows),
        )
        fitted = self._fitted_to(penalty, names, rows, classes)
        self._flat = np.ndim(y) == 1 and rows.y.shape[1] == 1
        self._state = fitted
        return self

    def _fitted_to(
        self, penalty: Array, names: tuple[str, ...], rows: Rows, classes: tuple[str, ...]
    ) -> Fitted:
        objective = Objective(self.kind, penalty)
        precomputation = precompute_blocks(objective, rows)
        return Fitted.of(objective, names, rows, precomputation, classes, self.seed)

    # -- deletion -----------------------------------------------------------------------------

    @_OVERFLOW
    def delete(self, ids: Iterable[str], method: str = "pru") -> DeletionResult:
        """Delete rows by id; ids that are already deleted are ignored.

        If no update exists, the model is refitted on the remaining rows: once every row is deleted,
        theta is 0; once a class of a logistic model has lost its last row, the intercept (with
        several classes, that of each) is penalised from then on (`intercept_penalised`).

        Parameters
        ----------
        ids
            Row ids, in any order; duplicates count once.
        method
            ``pru``, ``exact`` or ``influence``. If it differs from the last call's method, the
            model is completed first (`engine.refresh.kinds.complete`).

        Raises
        ------
        UnknownRows
            Some id was never a row of this model; nothing is deleted.
        IllConditioned
            Leverage too near to 1, or a step or an error that is not finite; nothing is
            deleted. Rebuild without the rows instead: ``refresh("rebuild", without=ids)``.

        Notes
        -----
        Cost O(K k d + k^2 d), K rows deleted since the last compact or rebuild: independent of n,
        except for a new sample of the live rows, O(n d), once half of the old one is deleted.
        """
        state = self._fitted
        method_named(method)  # refuse an unknown method whatever the ids are
        to_delete = state.members.live_among(ids)
        before = state.stream.published
        if to_delete and state.needs_refit(to_delete):
            self.refresh(RefreshKind.REBUILD, without=to_delete)
            error = state.error
        else:
            error = state.delete(to_delete, method) if to_delete else state.error
        moved = self._shaped(state.stream.published - before)
        return DeletionResult(to_delete, moved, error, error.bound)

    # -- inserting and correcting -------------------------------------------------------------

    @_OVERFLOW
    def insert(
        self,
        X: ArrayLike,
        y: ArrayLike,
        ids: Sequence[str],
        sample_weight: ArrayLike | None = None,
        method: str = "pru",
    ) -> ChangeResult:
        """Insert rows, as if they had been there when the model was fitted.

        Parameters
        ----------
        X, y, sample_weight
            k x p features, (k,) or (k, m) targets, and (k,) weights above 0; labels are those that
            the model was fitted on.
        ids
            k ids that the model has never had: a deleted id never comes back.
        method
            As of `delete`; a projection is onto the span of all rows deleted or inserted.

        Raises
        ------
        InvalidData
            Shapes, ids, labels or numbers cannot be used; nothing is inserted.
        IllConditioned
            A step or an error is not a finite number; nothing is inserted.

        Notes
        -----
        Cost O(k d^2 + K k d), K rows changed since the last compact or rebuild, and O(n d) for a
        new sample of the live rows.
        """
        names, rows = self._new_rows(X, y, ids, sample_weight)
        check_new(self._fitted.members, names)
        return self._change(names, rows, (), method)

    @_OVERFLOW
    def correct(
        self,
        X: ArrayLike,
        y: ArrayLike,
        ids: Sequence[str],
        sample_weight: ArrayLike | None = None,
        method: str = "pru",
    ) -> ChangeResult:
        """Correct live rows: as if they had been these when the model was fitted.

        The parameters are those of `insert`, the ids those of live rows. Without ``sample_weight``
        a row keeps its weight.

        Raises
        ------
        UnknownRows
            Some id is not a live row; nothing is corrected.
        InvalidData, IllConditioned
            As `insert`, and `delete` of the rows as they were; nothing is corrected.

        Notes
        -----
        Cost: that of `insert` and `delete` together.
        """
        names, rows = self._new_rows(X, y, ids, sample_weight)
        check_live(self._fitted.members, names)
        if sample_weight is None:
            rows = replace(rows, weight=kept_weights(self._fitted.members, names))
        return self._change(names, rows, names, method)

    def _new_rows(
        self, X: ArrayLike, y: ArrayLike, ids: Sequence[str], sample_weight: ArrayLike | None
    ) -> tuple[tuple[str, ...], Rows]:
        state = self._fitted
        d, m = state.stream.published.shape
        return new_rows(
            self.kind,
            X,
            y,
            ids,
            sample_weight,
            intercept=self.fit_intercept,
            shape=(d - int(self.fit_intercept), m),
            classes=state.classes,
        )

    def _change(
        self, names: tuple[str, ...], rows: Rows, old: tuple[str, ...], method: str
    ) -> ChangeResult:
        state = self._fitted
        method_named(method)
        before = state.stream.published
        if len(rows) and state.needs_refit_for(rows, old):
            state.refit_with(names, rows, old, self.ridge, intercept=self.fit_intercept)
        elif len(rows):
            state.change(names, rows, old, method)
        error = state.error
        moved = self._shaped(state.stream.published - before)
        return ChangeResult(names, moved, error, error.bound)

    # -- refresh ------------------------------------------------------------------------------

    @_OVERFLOW
    def refresh(
        self, size: RefreshKind | str | None = None, *, without: Iterable[str] = ()
    ) -> Choice:
        """Refresh by the policy of `engine.refresh.policy`, or by a given size.

        Parameters
        ----------
        size
            None lets the policy choose the smallest sufficient size; a polish that misses its
            target is then followed by a rebuild. So is every polish that ends without a bound.
        without
            Rows to delete by leaving them out of a rebuild, whatever ``size`` says.

        Returns
        -------
        Choice
            The size and its reason.

        Raises
        ------
        InvalidData
            There is no such size.
        UnknownRows, IllConditioned, NotConverged
            Nothing was changed.
        """
        state = self._fitted
        if size is not None and size not in list(RefreshKind):
            raise InvalidData(
                f"there is no refresh {size!r}; choose one of {', '.join(RefreshKind)}"
            )
        leave_out = state.members.live_among(without)
        requested = (
            RefreshKind.REBUILD if leave_out else None if size is None else RefreshKind(size)
        )
        facts = facts_of(
            state.generation,
            state.stream,
            rows_live=len(state.members),
            estimate=state.estimate(),
            budget_relative=self.error_budget,
            audited=state.certified is not None,
        )
        choice = choose(facts, self.limits, requested)
        target = self.limits.far_under * facts.budget
        if choice.size is RefreshKind.REBUILD or len(state.members) == 0:
            self._rebuild(state, leave_out)
        elif choice.size is RefreshKind.COMPLETE:
            state.stream = complete(state.stream)
        elif choice.size is RefreshKind.COMPACT:
            choice = self._compact(state, choice)
        else:
            choice = self._polish(state, choice, target, needed=requested is None)
        state.method = None
        return choice

    def _polish(self, state: Fitted, choice: Choice, target: float, *, needed: bool) -> Choice:
        """Polish; rebuild if it ends without a bound or misses a needed target."""
        left = state.polish(target)
        if state.certified is None:
            return self._rebuild(state, (), "a polish ended without a bound")
        if needed and not left <= target:
            return self._rebuild(state, (), "a polish did not reach its target")
        return choice

    def _compact(self, state: Fitted, choice: Choice) -> Choice:
        try:
            state.compact()
        except IllConditioned as error:
            return self._rebuild(state, (), f"a compact cannot be had: {error}")
        return choice

    def _rebuild(self, state: Fitted, leave_out: tuple[str, ...], reason: str = "") -> Choice:
        state.rebuild(leave_out, self.ridge, intercept=self.fit_intercept)
        return Choice(RefreshKind.REBUILD, reason)

    # -- reading ------------------------------------------------------------------------------

    @property
    def _fitted(self) -> Fitted:
        if self._state is None:
            raise InvalidData("the model is not fitted; call fit first")
        return self._state

    def _shaped(self, theta: Array) -> Array:
        return theta[:, 0].copy() if self._flat else theta.copy()

    @property
    def theta(self) -> Array:
        """Published parameters, (p,), (p, m) or (p, C), a copy without the intercept."""
        published = self._fitted.stream.published
        return self._shaped(published[:-1] if self.fit_intercept else published)

    @property
    def intercept(self) -> Any:
        """Published intercept: a float, or (m,) for several outputs; 0.0 without one."""
        published = self._fitted.stream.published
        if not self.fit_intercept:
            return 0.0 if self._flat else np.zeros(published.shape[1])
        return float(published[-1, 0]) if self._flat else published[-1].copy()

    @property
    def intercept_penalised(self) -> bool:
        """Whether the intercept is penalised: by request, or because a class lost its last row."""
        return self.fit_intercept and bool(self._fitted.generation.objective.penalty[-1] > 0)

    @property
    @_OVERFLOW
    def error(self) -> PublishedError:
        """Error of the published parameters against retraining on the live rows."""
        return self._fitted.error

    @property
    def live_ids(self) -> tuple[str, ...]:
        """Ids of the rows that remain."""
        return self._fitted.members.live_ids()

    def predict(self, X: ArrayLike) -> Array:
        """Return predictions: values for a linear model, probabilities for a logistic one.

        Probabilities are those of label 1, or of the second of two `classes`, (n,). With more
        classes they are (n, C): each class's own against the rest, divided by their sum, as in
        scikit-learn's OneVsRestClassifier.

        Raises
        ------
        InvalidData
            X does not have the columns that the model was fitted on, a number in it is not
            finite, or a prediction would not be.
        """
        published = self._fitted.stream.published
        features = numbers(X, "X", (2,))
        p = published.shape[0] - int(self.fit_intercept)
        if features.shape[1] != p:
            raise InvalidData(f"X has {features.shape[1]} columns; the model was fitted on {p}")
        check_finite("feature", features)
        with np.errstate(over="ignore", invalid="ignore"):
            margin = features @ published[:p]
            if self.fit_intercept:
                margin = margin + published[-1]
        check_finite("prediction", margin, "rescale its features")
        return self._shaped(self._means(margin))

    def _means(self, margin: Array) -> Array:
        return margin if self.kind is Kind.LINEAR else probabilities(margin)


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
    rows, within the error that every result carries; with more than two classes, in a
    ``sklearn.multiclass.OneVsRestClassifier``.
    """

    kind = Kind.LOGISTIC

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of theta's columns; empty for labels 0 and 1."""
        return self._fitted.classes
