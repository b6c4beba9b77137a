"""A stream under way: fit, delete, refresh, and after each what was published against the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from lethe.engine import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from lethe.engine.errors import LetheError
from tests.proof.bounds import oracle_glm, rationals
from tests.proof.bounds.case import Array, Case
from tests.proof.bounds.oracle import Answer, Problem, Wide, distance, length, solve, widened

BUDGET = 0.01
_FLOOR = 1e-3  # of the first theta: below that a model has no relative error of its own

Model = LinearModel | LogisticModel | PoissonModel | SoftmaxModel


class Record(NamedTuple):
    """One state. ``excess`` is distance - oracle's error - bound, taken in longdouble."""

    family: str
    seed: int
    step: int
    how: str
    stage: str
    live: int
    kind: str
    value: float | None
    bound: float | None
    relative: float | None
    distance: float
    oracle: float
    excess: float | None
    scale: float

    @property
    def false(self) -> bool:
        """Whether the bound is below the truth by more than the oracle's own error.

        A state of kind ``unknown`` claims nothing.
        """
        if self.excess is None or self.kind == "unknown":
            return False
        return not self.excess <= 0.0

    @property
    def ratio(self) -> float:
        """Return truth / bound, the truth lessened by the oracle's own error."""
        sure = self.distance - self.oracle
        if self.bound is None or sure <= 0.0:
            return 0.0
        return sure / self.bound if self.bound > 0.0 else np.inf

    @property
    def true_relative(self) -> float:
        """Return what the relative error is at least."""
        return max(self.distance - self.oracle, 0.0) / self.scale if self.scale > 0.0 else 0.0

    @property
    def under_a_tenth(self) -> bool:
        """Whether the published value is under a tenth of the truth (or no number)."""
        return self.value is not None and not 10.0 * self.value >= self.distance - self.oracle


@dataclass(slots=True)
class Stream:
    """What one stream came to. ``escaped`` are exceptions that no user can be asked to catch."""

    records: list[Record] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    escaped: list[str] = field(default_factory=list)
    undecided: int = 0


class Truth:
    """The minimiser on the live rows, found once for each set of them."""

    def __init__(self, case: Case, kind: type[Model]) -> None:
        X, y = widened(case.X), widened(case.y)
        n = len(X)
        self.kind = kind
        self.X = np.hstack([X, np.ones((n, 1), dtype=X.dtype)]) if case.intercept else X
        self.y = y.reshape(n, -1)
        self.labels = np.unique(case.y)
        if kind is SoftmaxModel:
            self.y = widened(case.y[:, None] == self.labels)
        self.weight = widened(np.ones(n) if case.weight is None else case.weight)
        self.case = case
        self.live = np.ones(n, dtype=np.bool_)
        self.penalised = False
        self.exact = False  # in rational numbers
        self._found: Answer | None = None
        self._last: Wide | None = None

    def forget(self, places: list[int]) -> None:
        self.live[places] = False
        self._found = None

    def write(
        self, places: list[int], X: NDArray[np.floating[Any]], y: Array, weight: Array | None
    ) -> None:
        """Correct rows, or insert them behind the others; without a weight it is 1."""
        more = max([*places, -1]) + 1 - len(self.X)
        if more > 0:
            self.X, self.y, self.weight, self.live = (
                np.concatenate([of, np.zeros((more, *of.shape[1:]), dtype=of.dtype)])
                for of in (self.X, self.y, self.weight, self.live)
            )
        self.X[places, : X.shape[1]] = widened(X)
        self.X[places, X.shape[1] :] = 1
        labels = y[:, None] == self.labels if self.kind is SoftmaxModel else y.reshape(len(y), -1)
        self.y[places] = widened(labels)
        self.weight[places] = 1 if weight is None else widened(weight)
        self.live[places] = True
        self._found = None

    @property
    def intercept_is_penalised(self) -> bool:
        if not self.case.intercept:
            return False
        return self.penalised or self.case.penalise_intercept or self._one_sided()

    def note_penalty(self) -> None:
        """Remember that a class had no row: the intercept stays penalised when it has one again."""
        self.penalised = self.intercept_is_penalised

    def _one_sided(self) -> bool:
        """Return whether a free intercept would be infinite."""
        y = self.y[self.live]
        if self.kind is PoissonModel:
            return not y.any()
        if self.kind is SoftmaxModel:
            return not y.any(axis=0).all()
        return self.kind is LogisticModel and bool((y == y[0]).all())

    def answer(self) -> Answer:
        if self._found is None:
            penalty = np.full(self.X.shape[1], widened(self.case.ridge))
            if self.case.intercept and not self.intercept_is_penalised:
                penalty[-1] = 0.0
            X, y, weight = self.X[self.live], self.y[self.live], self.weight[self.live]
            self._found = self._solved(X, y, weight, penalty)
            self._last = self._found.theta if np.isfinite(self._found.error) else None
        return self._found

    def _solved(self, X: Wide, y: Wide, weight: Wide, penalty: Wide) -> Answer:
        if self.kind is LinearModel and self.exact and X.shape[1] <= rationals.MOST_COLUMNS:
            return rationals.solve(Problem(X, y, weight, penalty, logistic=False))
        if self.kind not in (PoissonModel, SoftmaxModel):
            return solve(Problem(X, y, weight, penalty, self.kind is LogisticModel), self._last)
        loss: oracle_glm.Smooth = (
            oracle_glm.Counts(X, y[:, 0], weight, penalty)
            if self.kind is PoissonModel
            else oracle_glm.Softmax(X, y, weight, penalty)
        )
        start = None if self._last is None else self._last.T.ravel()
        answer = oracle_glm.solve(loss, X.shape[1] * y.shape[1], start)
        return Answer(answer.theta.reshape(y.shape[1], -1).T, answer.error)


class Run:
    """One stream under way."""

    def __init__(self, name: str, seed: int, case: Case, rng: Generator, kind: type[Model]):
        self.name, self.seed, self.case, self.rng = name, seed, case, rng
        self.kind = kind
        self.truth = Truth(case, kind)
        self.model: Model = kind(
            case.ridge,
            fit_intercept=case.intercept,
            penalise_intercept=case.penalise_intercept,
            error_budget=BUDGET,
        )
        if isinstance(self.model, LinearModel):  # the stream: `tests.proof.exact` has exact sums
            self.model.rounded_features = 0
        self.done = Stream()
        self.step = 0
        self.floor = 0.0

    def fit(self) -> bool:
        try:
            self.model.fit(self.case.X, self.case.y, sample_weight=self.case.weight)
        except LetheError as error:
            self.done.refusals[f"fit: {error.code}"] += 1
            return False
        self.floor = _FLOOR * float(length(widened(_published(self.model, self.case))))
        return True

    def delete(self, places: list[int], method: str) -> str | None:
        """Delete, by a rebuild if need be; return how, or None where that is refused too."""
        ids = [str(place) for place in places]
        how: str | None = method
        try:
            self.model.delete(ids, method=method)
        except LetheError as error:
            self.done.refusals[f"delete: {error.code}"] += 1
            how = "refused, rebuilt" if self.refresh("rebuild", ids) else None
        if how is not None:
            self.truth.forget(places)
        self.step += 1
        return how

    def refresh(self, size: str | None, without: list[str] | None = None) -> str | None:
        """Refresh; return the size, or None where it is refused."""
        try:
            return str(self.model.refresh(size, without=without or ()).size)
        except LetheError as error:
            self.done.refusals[f"{size or 'policy'}: {error.code}"] += 1
            return None

    def judge(self, how: str, stage: str = "final") -> Record:
        answer, error = self.truth.answer(), self.model.error
        if self.case.intercept and self.model.intercept_penalised != (
            self.truth.intercept_is_penalised
        ):
            self.done.escaped.append(f"step {self.step}: the penalty of the intercept is not told")
        away = distance(_published(self.model, self.case), answer.theta)
        bound = _or_none(error.bound)
        excess = None if bound is None else float(away - answer.error - widened(bound))
        record = Record(
            self.name,
            self.seed,
            self.step,
            how,
            stage,
            int(self.truth.live.sum()),
            str(error.kind),
            _or_none(error.value),
            bound,
            _or_none(error.relative),
            float(away),
            float(answer.error),
            excess,
            max(float(length(answer.theta)), self.floor),
        )
        self.done.undecided += not np.isfinite(answer.error)
        self.done.records.append(record)
        return record


def _or_none(number: float | None) -> float | None:
    """Return a number that may be missing: a state may come to be unknown."""
    return None if number is None else float(number)


def _published(model: Model, case: Case) -> Array:
    theta = np.asarray(model.theta)
    theta = theta.reshape(len(theta), -1)
    if not case.intercept:
        return theta
    return np.vstack([theta, np.reshape(model.intercept, (1, -1))])


def batches(case: Case, rng: Generator) -> Iterator[list[int]]:
    n = len(case.X)
    first = list(case.order)
    known = set(first)
    order = first + [i for i in rng.permutation(n).tolist() if i not in known]
    order = order[: max(n - case.keep, 0)]
    sizes = list(case.batches)
    for _ in range(max(case.deletions, len(sizes))):
        u, small, large = rng.random(), int(rng.integers(2, 5)), rng.random()
        drawn_size = 1 if u < 0.55 else small if u < 0.85 else 1 + int(large * len(order) / 2)
        size = sizes.pop(0) if sizes else drawn_size
        batch, order = order[:size], order[size:]
        if not batch:
            return
        yield batch
