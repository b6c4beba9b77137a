"""Judge a setting: refused by name, or equal to a clone that was fitted to the remaining rows."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline

from lethe import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from lethe.engine.errors import LetheError
from lethe.engine.fit.objective import Kind
from tests.proof.conversions.setting import TABLES, TARGETS, N, Rows, Setting, rows_of

EXACT = 1e-9
"""Relative, of solvers that solve a linear system."""

ITERATIVE = 1e-5
"""Of scikit-learn's other solvers with the tolerances of `_sharpened`."""

SINGLE = 1e-3
"""Of a table in single precision, in which scikit-learn then computes."""

_DIRECT = ("auto", "svd", "cholesky")
_WAYS_OUT = re.compile(r"\b(fit|give|use|leave|apply|write|keep) ")
_MODELS: Mapping[Kind, Any] = {
    Kind.LINEAR: LinearModel,
    Kind.LOGISTIC: LogisticModel,
    Kind.POISSON: PoissonModel,
    Kind.SOFTMAX: SoftmaxModel,
}

_LONGEST = 600  # characters of a refusal


class Verdict(StrEnum):
    """What came of a setting."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a setting.

    Attributes
    ----------
    verdict
        Which of them.
    message
        The refusal, or what is wrong.
    distance, tolerance
        Largest relative distance from the clone, and what is allowed.
    """

    verdict: Verdict
    message: str = ""
    distance: float = 0.0
    tolerance: float = 0.0


def judged(setting: Setting, seed: int = 0) -> Outcome:
    """Judge a setting, with rows deleted that ``seed`` draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _judged(setting, np.random.default_rng(seed))
        except Exception as error:  # a crash, or a clone that cannot be fitted
            return Outcome(Verdict.FAILED, f"{type(error).__name__}: {error}")


def _judged(setting: Setting, rng: np.random.Generator) -> Outcome:
    X, y, everything = TABLES[setting.table], TARGETS[setting.target], np.arange(N)
    given = setting.fit(setting.estimator, copy.deepcopy(X), y, everything)
    kind = _MODELS[setting.kind]
    table = setting.learnt_from(X)
    before = copy.deepcopy(table)
    try:
        model = kind.from_sklearn(given, table, y, sample_weight=setting.weights)
    except LetheError as refusal:
        return _refused(setting, refusal)
    if not _equal(before, table):
        return Outcome(Verdict.FAILED, "the table was overwritten")
    left = everything
    for gone in _batches(rng):
        model.delete([str(i) for i in gone], method="exact")
        left = np.setdiff1d(left, gone)
    if setting.kind is not Kind.LINEAR:
        model.refresh("rebuild")  # to the optimum: a step of a deletion is as far as its error says
    sharp = _sharpened(setting.estimator)
    if setting.kind is Kind.POISSON:  # the ridge strength is alpha times the number of rows
        sharp.set_params(alpha=sharp.alpha * N / len(left))
    refit = setting.fit(sharp, rows_of(copy.deepcopy(X), left), y[left], left)
    theirs = _values(refit, rows_of(X, left))
    ours = [_values(one, rows_of(table, left)) for one in (model, model.to_sklearn())]
    worst, tolerance = max(_relative(one, theirs) for one in ours), _tolerance(setting)
    said = "" if worst <= tolerance else f"{worst:.2g} away, {tolerance:.0e} allowed"
    if setting.offences:
        said = f"accepted, and {worst:.2g} away; it should name one of {setting.offences}"
    return Outcome(Verdict.FAILED if said else Verdict.ACCEPTED, said, worst, tolerance)


def _refused(setting: Setting, refusal: LetheError) -> Outcome:
    """Judge a refusal: expected, one line, with all pieces of one reason, and a way out."""
    said = str(refusal)
    if not setting.offences:
        return Outcome(Verdict.FAILED, f"refused, where it should be accepted: {said}")
    if "\n" in said or len(said) > _LONGEST:
        return Outcome(Verdict.FAILED, f"not one line: {said}")
    if not any(all(piece in said for piece in offence) for offence in setting.offences):
        return Outcome(Verdict.FAILED, f"{said} -- names none of {setting.offences}")
    if not _WAYS_OUT.search(said):
        return Outcome(Verdict.FAILED, f"no way out: {said}")
    return Outcome(Verdict.REFUSED, said)


def _batches(rng: np.random.Generator) -> list[Rows]:
    """Return what is deleted: the town of three rows, and others in two batches."""
    others = 3 + rng.permutation(N - 3)[:9]
    return [others[:5], np.arange(3), others[5:]]


def _equal(one: Any, other: Any) -> bool:
    if issparse(one):
        return not (one != other).nnz
    return one.equals(other) if hasattr(one, "equals") else bool(np.array_equal(one, other))


def final_of(estimator: Any) -> Any:
    """Return the last step of a pipeline, and of one at its end; of the function of a target."""
    while isinstance(estimator, Pipeline | TransformedTargetRegressor):
        whole = isinstance(estimator, Pipeline)
        estimator = estimator.steps[-1][1] if whole else estimator.regressor
    return estimator


def _sharpened(estimator: Any) -> Any:
    """Return a clone that stops at its optimum: tolerances and iterations do not define it."""
    sharp = clone(estimator)
    final = final_of(sharp)
    inner = getattr(final, "estimator", final)
    if isinstance(inner, Ridge | RidgeClassifier):
        inner.set_params(tol=1e-14, max_iter=200_000)
    elif isinstance(inner, LogisticRegression | PoissonRegressor):
        inner.set_params(tol=1e-12, max_iter=200_000)
    return sharp


def _tolerance(setting: Setting) -> float:
    final = final_of(setting.estimator)
    if getattr(TABLES[setting.table], "dtype", None) == np.float32:
        return SINGLE
    return EXACT if setting.kind is Kind.LINEAR and final.solver in _DIRECT else ITERATIVE


def _values(fitted: Any, X: Any) -> NDArray[np.float64]:
    """Return what an estimator or a model predicts, before it decides for a class."""
    decide = getattr(fitted, "decision_function", fitted.predict)
    values = np.asarray(decide(X), dtype=np.float64)
    return values.reshape(len(values), -1)


def _relative(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    if ours.shape != theirs.shape:
        return np.inf
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
