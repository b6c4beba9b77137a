"""Bounds of models with preprocessing against the 80-bit oracle.

The pipeline's transformation is written here from its definition, in longdouble, and the oracle of
`tests.proof.bounds.oracle` minimises over what it makes of the live rows. Nothing is shared with
the engine, or with scikit-learn, which computes in double.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from threadpoolctl import threadpool_limits

from lethe.engine import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from lethe.engine.errors import LetheError
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import (
    Column,
    Columns,
    Numeric,
    OneHot,
    Ordinal,
    Standardise,
    TargetEncode,
    by_order,
    centres,
    scales,
)
from tests.proof.bounds import oracle_glm
from tests.proof.bounds.case import Array, power
from tests.proof.bounds.figures import Figures
from tests.proof.bounds.oracle import Answer, Problem, Real, Wide, distance, length, solve, widened

_MOVED = 1e-9  # relative distance to the optimum: a fit is nearer
_CHUNK, _ROUND = 25, 200  # streams of a job, and between two looks at the number of states
_COUNTS, _CLASSES = 0.25, 0.25  # of the streams of models that are not linear
_HELD = 4  # one seed of so many has a stream of a model whose intercept is penalised, too
Model = LinearModel | LogisticModel | PoissonModel | SoftmaxModel
_MODELS: Mapping[Kind, type[Model]] = {
    Kind.LINEAR: LinearModel,
    Kind.LOGISTIC: LogisticModel,
    Kind.POISSON: PoissonModel,
    Kind.SOFTMAX: SoftmaxModel,
}
_EPS = Real(np.finfo(np.float64).eps)


class State(NamedTuple):
    """One published state. ``excess`` is distance - oracle's error - bound, in longdouble.

    Where ``pru`` published, the distance is that of its projection.
    """

    seed: int
    step: int
    how: str
    family: str
    bound: float
    distance: float
    relative: float
    relative_bound: float
    excess: float


@dataclass(slots=True)
class Outcome:
    """What some streams came to: states, refusals by class, and exceptions that nobody expects."""

    states: list[State] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    escaped: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Take in what other streams came to."""
        self.states += other.states
        self.refusals += other.refusals
        self.escaped += other.escaped

    @property
    def false(self) -> list[State]:
        """States whose bound is below the truth by more than the oracle's own error."""
        return [state for state in self.states if not state.excess <= 0.0]


# -- the pipeline in longdouble ----------------------------------------------------------------


def transformed(columns: Columns, rows: dict[Any, np.ndarray], y: Wide) -> Wide:
    """Return what the pipeline, fitted to these rows, makes of them, n x p.

    Means are taken of differences to a value of the column: of values far from 0 with a small
    spread, longdouble would lose as many digits as the bounds claim.
    """
    features: list[Wide] = []
    for name, column in columns.items():
        for origin, values in _features(column, rows[name], y):
            features.append(_standardised(column.standardise, origin, values))
    return np.stack(features, axis=1)


def _features(column: Column, values: np.ndarray, y: Wide) -> Iterator[tuple[Real, Wide]]:
    """Return each feature as a number, and its values less that number."""
    if isinstance(column, Numeric):
        numbers = widened([np.nan if v is None else v for v in values])
        known = ~np.isnan(numbers)
        origin = numbers[known][0] if known.any() else Real(0)
        numbers = numbers - origin
        fill = _fill(column, numbers[known]) if known.any() else Real(0)
        yield origin, np.where(known, numbers, fill)
        return
    categories = sorted(set(values))
    place = np.array([categories.index(v) for v in values])
    if isinstance(column, OneHot):
        for c in range(len(categories)):
            yield Real(0), widened((place == c).astype(float))
    elif isinstance(column, Ordinal):
        yield Real(0), widened(place.astype(float))
    else:
        yield y[0], _encoded(column, place, len(categories), y - y[0])[place]


def _fill(column: Numeric, known: Wide) -> Real:
    """Return what stands in for missing values."""
    if column.impute == "median":
        return _quantile(known, Real(0.5))
    if column.impute == "most_frequent":  # of several the least
        values, counts = np.unique(known, return_counts=True)
        return Real(values[np.argmax(counts)])
    return Real(known.sum() / len(known))


def _encoded(column: TargetEncode, place: np.ndarray, k: int, y: Wide) -> Wide:
    mean = y.sum() / Real(len(y))
    total = ((y - mean) ** 2).sum() / Real(len(y))
    out = np.empty(k, dtype=Real)
    for c in range(k):
        own = y[place == c]
        n, own_mean = Real(len(own)), own.sum() / Real(len(own))
        if column.smooth == "auto":
            within = ((own - own_mean) ** 2).sum() / n
            share = total * n / (total * n + within) if total > 0 else Real(0)
        else:
            share = n / (n + Real(column.smooth))
        out[c] = mean + share * (own_mean - mean)
    return out


def _standardised(standardise: Standardise, origin: Real, values: Wide) -> Wide:
    if by_order(standardise):
        return _by_order(standardise, origin, values)
    n = Real(len(values))
    mean = values.sum() / n
    variance = ((values - mean) ** 2).sum() / n
    constant = variance <= n * _EPS * variance + (n * (origin + mean) * _EPS) ** 2
    if constant or not scales(standardise):
        variance = Real(1)
    scaled: Wide = values - mean if centres(standardise) else origin + values
    scaled = scaled / np.sqrt(variance)
    return scaled


def _by_order(standardise: Standardise, origin: Real, values: Wide) -> Wide:
    least, lower, median, upper, most = (
        _quantile(values, q) for q in (Real(0), Real(0.25), Real(0.5), Real(0.75), Real(1))
    )
    low, high, centre, spread = Real(0), Real(1), median, upper - lower
    if isinstance(standardise, tuple):
        (low, high), centre, spread = map(Real, standardise), least, most - least
    elif standardise == "max-abs":
        centre, spread = -origin, max(abs(origin + least), abs(origin + most))
    spread = Real(1) if spread < 10 * _EPS else spread
    scaled: Wide = low + (values - centre) / spread * (high - low)
    return scaled


def _quantile(values: Wide, q: Real) -> Real:
    position = (len(values) - 1) * q
    rank, ordered = int(position), np.sort(values)
    upper = ordered[min(rank + 1, len(values) - 1)]
    quantile: Real = ordered[rank] + (position - rank) * (upper - ordered[rank])
    return quantile


# -- hostile tables ----------------------------------------------------------------------------


def draw_columns(rng: Generator) -> Columns:
    """Return one to five columns of any kind that means and deviations are the statistics of."""
    kinds: list[Column] = [
        Numeric(),
        Numeric(standardise=False),
        OneHot(),
        Ordinal(standardise=bool(rng.integers(2))),
        TargetEncode(standardise=bool(rng.integers(2))),
        TargetEncode(smooth=power(rng, -2, 2), standardise=bool(rng.integers(2))),
    ]
    return {f"c{i}": kinds[rng.integers(len(kinds))] for i in range(rng.integers(1, 6))}


def scaled_otherwise(columns: Columns, rng: Generator) -> Columns:
    """Return the columns with scalers of every kind after those of numbers and of categories."""
    found = dict(columns)
    hows: list[Any] = [True, "centre", "scale", (0.0, 1.0), (-1.0, 3.0), "max-abs", "robust"]
    for name, column in columns.items():
        if isinstance(column, Numeric | OneHot) and rng.random() < 0.7:
            most = len(hows) if isinstance(column, Numeric) else 3
            found[name] = replace(column, standardise=hows[rng.integers(most)])
    return found


def imputed_otherwise(columns: Columns, rng: Generator) -> Columns:
    """Return the columns, what is missing of numbers filled in by any statistic."""
    hows: list[Any] = ["mean", "median", "most_frequent"]
    return {
        name: replace(column, impute=hows[rng.integers(len(hows))])
        if isinstance(column, Numeric)
        else column
        for name, column in columns.items()
    }


def draw_values(column: Column, n: int, rng: Generator) -> np.ndarray:
    """Return a column's values: far from 0, badly scaled, heavy-tailed, rare, or often missing.

    Some columns of numbers hold floats that are next to each other.
    """
    values = np.empty(n, dtype=object)
    if isinstance(column, Numeric):
        spread = rng.integers(3)
        drawn = rng.standard_normal(n) if spread == 0 else rng.standard_t((1.0, 1.5)[spread - 1], n)
        if rng.random() < 0.2:
            drawn = np.round(drawn)
        furthest = 9 if rng.random() < 0.2 else 4  # dates are 2e4, times in seconds 2e9
        drawn = drawn * power(rng, -3, 3) + (power(rng, -2, furthest) if rng.random() < 0.5 else 0)
        if rng.random() < 0.1:
            drawn = _neighbours(n, rng)
        values[:] = drawn.tolist()
        values[rng.random(n) < rng.choice([0.0, 0.1, 0.5])] = None
        values[0] = float(drawn[0])
        return values
    k = int(rng.integers(2, 9))
    skew = rng.uniform(1.0, 4.0)
    values[:] = [f"v{int(k * u**skew)}" for u in rng.random(n)]
    return values


def _neighbours(n: int, rng: Generator) -> Array:
    """Return floats some steps apart: those of a few steps count as constant."""
    first, most = power(rng, -3, 10), rng.choice([1, n, 3 * n, 1000])
    values: Array = first + np.spacing(first) * rng.integers(0, most + 1, n)
    return values


def draw_targets(rows: dict[Any, np.ndarray], n: int, rng: Generator) -> Array:
    """Return targets of any size, some of them far out."""
    y = rng.standard_normal(n) if rng.random() < 0.7 else rng.standard_t(1.5, size=n)
    for values in rows.values():
        numbers = [float(v[1:]) % 5 if isinstance(v, str) else 0.1 * (v or 0.0) for v in values]
        y = y + rng.standard_normal() * np.tanh(numbers)
    return y * power(rng, -3, 3) + (power(rng, 0, 4) if rng.random() < 0.4 else 0.0)


def _counts(y: Array, rng: Generator) -> Array:
    """Return counts whose log means are these targets, brought near 0; most of some are 0."""
    spread = np.median(np.abs(y - np.median(y))) or 1.0
    margin = (y - np.median(y)) / spread * rng.uniform(0.2, 1.5) + rng.uniform(-2.0, 3.0)
    return rng.poisson(np.exp(np.clip(margin, -8.0, 8.0))).astype(np.float64)


# -- streams -----------------------------------------------------------------------------------


class Truth:
    """The pipeline's minimiser over live rows, against which published states are judged."""

    def __init__(
        self,
        columns: Columns,
        ridge: float,
        rows: dict[Any, np.ndarray],
        y: Array,
        *,
        kind: Kind,
        classes: int = 2,
        held: bool = False,
    ) -> None:
        self.columns, self.ridge, self.rows, self.y = columns, ridge, rows, y
        self.kind, self.classes, self.held = kind, classes, held

    @property
    def family(self) -> str:
        """What figures are by: the kind, logistic models of several classes, or `held`."""
        if self.held:
            return "penalised"
        several = self.kind is Kind.LOGISTIC and self.classes > len("ab")
        return "classes" if several else str(self.kind)

    def judge(
        self, model: Model, live: list[int], seed: int, step: int, how: str
    ) -> Iterator[State]:
        """Compare what is published with the pipeline's minimiser over the live rows.

        Estimates are left out. The intercept is penalised where that was asked for (``held``), and
        with a class without rows, or counts of 0 alone, unless the model is linear.
        """
        bound = model.error.bound
        if bound is None:
            return
        single = _one_sided(self.kind, self.y[live], self.classes)
        y = widened(self.y[live])
        rows = {name: values[live] for name, values in self.rows.items()}
        features = transformed(self.columns, rows, y)
        X = np.hstack([features, np.ones((len(live), 1), dtype=Real)])
        ridge = Real(self.ridge)
        last = ridge if single or self.held else Real(0)
        penalty = np.append(np.full(features.shape[1], ridge), last)
        weight = np.ones(len(live), dtype=Real)
        answer = _minimiser(self.kind, X, y, weight, penalty, self.classes)
        if not np.isfinite(answer.error):
            return
        theta = self._placed(answer.theta, rows, model)
        published = model.published
        away = distance(published, theta)
        excess = float(away - answer.error - Real(bound))
        size = float(length(theta)) or 1.0
        relative = float(away) / size
        yield State(
            seed, step, how, self.family, bound, float(away), relative, bound / size, excess
        )

    def _placed(self, theta: Wide, rows: dict[Any, np.ndarray], model: Model) -> Wide:
        """Return the minimiser with a 0 for each category that the model still has a column of."""
        names = []
        for name, column in self.columns.items():
            own = sorted(set(rows[name])) if isinstance(column, OneHot) else [None]
            names += [f"{name}_{v}" if isinstance(column, OneHot) else name for v in own]
        state: Any = model._state
        place = {name: i for i, name in enumerate(names)}
        here = [
            theta[place[n]] if n in place else np.zeros(theta.shape[1], Real)
            for n in state.feature_names
        ]
        return np.stack([*here, theta[-1]])


def _one_sided(kind: Kind, y: Array, classes: int) -> bool:
    """Return whether a free intercept would be infinite."""
    if kind is Kind.POISSON:
        return not y.any()
    return kind is not Kind.LINEAR and len(set(y.tolist())) < classes


def _minimiser(kind: Kind, X: Wide, y: Wide, weight: Wide, penalty: Wide, classes: int) -> Answer:
    if kind is Kind.POISSON:
        found = oracle_glm.solve(oracle_glm.Counts(X, y, weight, penalty), X.shape[1])
        return Answer(found.theta[:, None], found.error)
    if classes <= len("ab"):
        return solve(Problem(X, y[:, None], weight, penalty, logistic=kind is Kind.LOGISTIC))
    hot = widened(np.eye(classes)[y.astype(np.intp)])
    if kind is Kind.SOFTMAX:
        loss = oracle_glm.Softmax(X, hot, weight, penalty)
        found = oracle_glm.solve(loss, X.shape[1] * classes)
        return Answer(found.theta.reshape(classes, -1).T, found.error)
    each = [solve(Problem(X, own[:, None], weight, penalty, logistic=True)) for own in hot.T]
    error = length(np.array([one.error for one in each]))
    return Answer(np.hstack([one.theta for one in each]), error)


def _family(kind: Kind, columns: Columns, rng: Generator) -> tuple[Kind, int]:
    """Return the kind of a stream of models that are not linear, and of how many classes."""
    if kind is Kind.LINEAR:
        return kind, 2
    which, encoded = rng.random(), any(isinstance(one, TargetEncode) for one in columns.values())
    if which < _COUNTS:
        return Kind.POISSON, 2
    if which < _COUNTS + _CLASSES and not encoded:
        return Kind.SOFTMAX if rng.random() < 0.5 else Kind.LOGISTIC, 3
    return kind, 2


def run_stream(seed: int, *, held: bool = False) -> Outcome:
    """Fit, then delete, insert, correct and refresh; judge every state.

    ``held``: the intercept is penalised, and columns are scaled in more ways.
    """
    rng, outcome = np.random.default_rng([20, seed]), Outcome()
    columns, kind = draw_columns(rng), Kind.LOGISTIC if rng.random() < 0.65 else Kind.LINEAR
    kind, classes = _family(kind, columns, np.random.default_rng([21, seed]))
    others = np.random.default_rng([23, seed])
    if held or others.random() < 0.5:
        columns = scaled_otherwise(columns, np.random.default_rng([22, seed]))
    if not held:
        columns = imputed_otherwise(columns, others)
    # Of a small table few deletions are near enough to such a model's fit for a bound.
    n = int(rng.integers(12, 60 if kind is Kind.LINEAR else 200))
    rows = {name: draw_values(column, 2 * n, rng) for name, column in columns.items()}
    y, ridge = draw_targets(rows, 2 * n, rng), power(rng, -6, 2)
    if kind is Kind.LOGISTIC and classes == len("ab"):
        y = (y > np.median(y)).astype(np.float64)
    elif classes > len("ab"):
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)).astype(np.float64)
    elif kind is Kind.POISSON:
        y = _counts(y, rng)
    truth = Truth(columns, ridge, rows, y, kind=kind, classes=classes, held=held)
    live, spare = list(range(n)), list(range(n, 2 * n))
    names = {i: str(i) for i in live}
    try:
        model = _MODELS[kind](ridge, preprocess=columns, penalise_intercept=held, seed=seed)
        if isinstance(model, LinearModel):  # with bounds: `tests.proof.exact` has exact sums
            model.rounded_features = 0
        model.fit({name: values[:n] for name, values in rows.items()}, y[:n])
        outcome.states.extend(truth.judge(model, live, seed, 0, "fit"))
        for step in range(1, 9):
            how = _act(model, truth, names, live, spare, rng)
            if len(live) < 3:
                break
            outcome.states.extend(truth.judge(model, live, seed, step, how))
            if rng.random() < 0.3:
                size = str(rng.choice(["complete", "polish", "compact", "rebuild"]))
                model.refresh(size)
                outcome.states.extend(truth.judge(model, live, seed, step, size))
    except LetheError as error:
        outcome.refusals[type(error).__name__] += 1
    except Exception as error:  # whatever else is raised is a defect
        outcome.escaped.append(f"seed {seed}: {error!r}")
    return outcome


def _act(
    model: Model,
    truth: Truth,
    names: dict[int, str],
    live: list[int],
    spare: list[int],
    rng: Generator,
) -> str:
    """Delete, insert, correct or mistype up to three rows; keep ``live`` and ``names``.

    Now and then a whole class leaves, or a whole category.
    """
    hows = ["delete", "delete", "insert", "correct", "mistype", "one class leaves"]
    how, k = str(rng.choice(hows, p=[0.28, 0.28, 0.16, 0.14, 0.08, 0.06])), int(rng.integers(1, 4))
    method = str(rng.choice(["exact", "exact", "pru"]))
    chosen = [live[i] for i in rng.permutation(len(live))[:k]]
    if how == "one class leaves":
        labels = truth.y[live]
        rarest = min(set(labels.tolist()), key=lambda label: int(np.sum(labels == label)))
        chosen = [i for i in live if truth.y[i] == rarest][: len(live) - 3] or chosen
        how = "delete"
    fresh = spare[: len(chosen)]
    if how == "delete" or not fresh:
        ids = [names[i] for i in chosen]
        try:
            model.delete(ids, method=method)
        except LetheError:
            model.refresh("rebuild", without=ids)
        live[:] = [i for i in live if i not in chosen]
        return f"delete by {method}"
    chosen = chosen[: len(fresh)]
    if how == "mistype":
        _mistype(truth, fresh, rng)
    table = {name: values[fresh] for name, values in truth.rows.items()}
    if how == "insert":
        ids = [f"new{i}" for i in fresh]
        model.insert(table, truth.y[fresh], ids, method=method)
    else:  # a typing error is a correction, too, and so is what rights it later
        ids = [names[i] for i in chosen]
        model.correct(table, truth.y[fresh], ids, method=method)
        live[:] = [i for i in live if i not in chosen]
    live += fresh
    names |= dict(zip(fresh, ids, strict=True))
    del spare[: len(fresh)]
    return f"{how} by {method}"


def _mistype(truth: Truth, rows: list[int], rng: Generator) -> None:
    """Put the decimal point of a number elsewhere, or its sign."""
    numeric = [name for name, column in truth.columns.items() if isinstance(column, Numeric)]
    for i in rows[: 1 if numeric else 0]:
        values = truth.rows[numeric[rng.integers(len(numeric))]]
        if values[i] is not None:
            values[i] = float(values[i]) * float(rng.choice([10.0, 100.0, 1e3, -1.0, 0.01]))


def run_seeds(seeds: range) -> Outcome:
    """Run some streams in this process."""
    outcome = Outcome()
    with threadpool_limits(1), np.errstate(all="ignore"):
        for seed in seeds:
            outcome.add(run_stream(seed))
            if seed % _HELD == 0:
                outcome.add(run_stream(seed, held=True))
    return outcome


def run(pool: ProcessPoolExecutor, states: int, first: int, seeds: int | None) -> Outcome:
    """Run ``seeds`` streams, or as many as make ``states`` states."""
    outcome, place = Outcome(), first
    while len(outcome.states) < states if seeds is None else place < first + seeds:
        until = place + _ROUND if seeds is None else min(place + _ROUND, first + seeds)
        chunks = [range(i, min(i + _CHUNK, until)) for i in range(place, until, _CHUNK)]
        for done in pool.map(run_seeds, chunks):
            outcome.add(done)
        place = until
    return outcome


def figures(outcome: Outcome) -> dict[str, Figures]:
    """Return the number of states, and how far bounds are above the truth where it is not 0.

    Of logistic and Poisson models also of those alone that a change has taken away from a fit.
    """
    found = {"pipelines": _figures(outcome.states)}
    for family in (*map(str, _MODELS), "classes", "penalised"):
        states = [state for state in outcome.states if state.family == family]
        found[family] = _figures(states)
        if family != Kind.LINEAR:
            moved = [state for state in states if state.relative > _MOVED]
            found[f"{family}, changed"] = _figures(moved)
    return found


def _figures(states: list[State]) -> Figures:
    exact = [state for state in states if "pru" not in state.how and state.distance > 0]
    return {
        "states": len(states),
        "below": sum(not state.excess <= 0.0 for state in states),
        "median_bound_over_truth": _median([s.bound / s.distance for s in exact]),
        "median_relative_bound": _median([s.relative_bound for s in exact]),
        "median_relative_error": _median([s.relative for s in exact]),
    }


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else math.nan


def broken(outcome: Outcome, promised: int) -> list[str]:
    """Return what was not kept: false bounds, exceptions that escaped, too few states."""
    failed = [f"pipelines: {state} is below the truth" for state in outcome.false]
    failed += [f"pipelines: {what}" for what in outcome.escaped]
    if len(outcome.states) < promised:
        failed.append(f"pipelines: only {len(outcome.states)} states were judged, not {promised}")
    return failed
