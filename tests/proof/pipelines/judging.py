"""Judge a pipeline: right after mixed changes, or refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from lethe import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from lethe.engine.conversion import final_of
from lethe.engine.conversion.converters import kind_of
from lethe.engine.conversion.steps import Step
from lethe.engine.errors import LetheError
from lethe.engine.fit.objective import Kind
from tests.proof.pipelines.corpus import Entry
from tests.proof.pipelines.table import customers

CHANGES = 50
LINEAR = 1e-9
"""Largest relative distance of predictions of a linear model."""
ITERATIVE = 1e-5
"""Of the others' probabilities, after a rebuild: what scikit-learn's own solvers leave."""

HOLDS = ("inside", "refitted", "refused")
"""Verdicts that keep what is promised."""

MODELS: Mapping[Kind, Any] = {
    Kind.LINEAR: LinearModel,
    Kind.LOGISTIC: LogisticModel,
    Kind.POISSON: PoissonModel,
    Kind.SOFTMAX: SoftmaxModel,
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of a pipeline.

    Attributes
    ----------
    entry
        It.
    verdict
        ``inside`` (right, and its steps follow by algebra), ``refitted`` (right, and its steps are
        fitted anew at every change), ``refused``, ``wrong`` (accepted, and too far away) or
        ``failed``.
    said
        The refusal, or what is wrong.
    distance
        Of predictions from the refitted pipeline's.
    """

    entry: Entry
    verdict: str
    said: str = ""
    distance: float = 0.0


def judged(entry: Entry, seed: int = 1) -> Judgement:
    """Fit a pipeline, change its model 50 times, and compare with one that is fitted anew."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _judged(entry, seed)
        except Exception as error:  # a pipeline that cannot be fitted, a model that raises
            return Judgement(entry, "failed", f"{type(error).__name__}: {error}")


def _judged(entry: Entry, seed: int) -> Judgement:
    table, draw = customers(seed), np.random.default_rng(seed)
    given = entry.make().fit(table[list(entry.columns)], table[entry.target])
    columns, ids = list(entry.columns), list(map(str, table.index))
    try:
        model = MODELS[_kind_of(given)].from_sklearn(
            given, table[columns], table[entry.target], ids, refit=True
        )
    except LetheError as refusal:
        named = str(refusal).startswith("step ") or _last(given) in str(refusal)
        return Judgement(entry, "refused" if named else "failed", str(refusal))
    rows = _changed(model, given, entry, table, draw, seed)
    if model.kind is not Kind.LINEAR:
        model.refresh("rebuild")  # versions in between are as far as their error says
    again = clone(given)
    if model.kind is Kind.POISSON:  # the ridge strength is alpha times the number of rows
        last = final_of(again)
        last.set_params(alpha=last.alpha * len(table) / len(rows))
    _converge(final_of(again))
    refit = again.fit(rows[list(entry.columns)], rows[entry.target])
    theirs = _predictions(refit, rows[list(entry.columns)])
    worst = max(
        float(np.abs(_predictions(one, rows[list(entry.columns)]) - theirs).max())
        for one in (model, model.to_sklearn())
    )
    linear = model.kind is Kind.LINEAR
    worst /= float(np.abs(theirs).max()) if linear else 1.0
    allowed = LINEAR if linear else ITERATIVE
    said = "" if worst <= allowed else f"{worst:.2g} away, {allowed:.0e} allowed"
    how = "inside" if model.refitted is None else "refitted"
    return Judgement(entry, "wrong" if said else how, said, worst)


def _kind_of(given: Any) -> Kind:
    """Return the kind of the library's model."""
    final = final_of(given)
    while isinstance(final, TransformedTargetRegressor):
        final = final_of(final.regressor_)
    return kind_of(Step(final))


def _converge(final: Any) -> None:
    """Have an estimator stop at its optimum: some solvers are further away than is allowed here.

    Ridge of sparse rows stops at 1e-4 by default, and lbfgs where its line search ends.
    """
    if isinstance(final, Ridge):
        final.set_params(tol=1e-15)
    elif isinstance(final, LogisticRegression) and final.solver == "lbfgs":
        final.set_params(solver="newton-cholesky", tol=1e-12)


def _changed(
    model: Any,
    given: Any,
    entry: Entry,
    table: pd.DataFrame,
    draw: np.random.Generator,
    seed: int,
) -> pd.DataFrame:
    """Delete, insert and correct, a row at a time; return the rows that are left."""
    others, columns = customers(seed + 1), list(entry.columns)
    live = {str(i): table.loc[i] for i in table.index}
    for step in range(CHANGES):
        new = others.iloc[[step]]
        what = draw.choice(["delete", "insert", "correct"])
        row = str(draw.choice(sorted(live)))
        if what == "delete":
            model.delete([row], method="exact")
            del live[row]
            continue
        row = row if what == "correct" else f"new{step}"
        getattr(model, what)(
            new[columns], _targets(given, new[entry.target]), [row], method="exact"
        )
        live[row] = new.iloc[0]
    return pd.DataFrame(list(live.values())).astype(table.dtypes.to_dict())


def _predictions(model: Any, X: pd.DataFrame) -> Any:
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    return np.asarray(getattr(model, "decision_function", model.predict)(X)).reshape(len(X), -1)


def _last(given: Any) -> str:
    return type(final_of(given)).__name__


def _targets(given: Any, y: Any) -> Any:
    """Return targets as the model has them: -1 and 1 of a RidgeClassifier, a column a class."""
    if _last(given) != "RidgeClassifier":
        return y
    classes = given.classes_ if len(given.classes_) > len("ab") else given.classes_[1:]
    signs = np.where(np.asarray(y)[:, None] == classes, 1.0, -1.0)
    return signs if len(classes) > 1 else signs[:, 0]
