"""How far a given estimator's parameters and predictions are from those of its own optimum."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.engine.fit.objective import Array, norm
from lethe.engine.result import MOVED, Conversion

if TYPE_CHECKING:
    from lethe.engine.estimator.base import BaseModel

_WANTED = MOVED / 10
"""Distance of predictions that the advice aims at."""

_LEAST = 1e-12
"""A tolerance below which rounding, and not the tolerance, says where a solver stops."""

_DIRECT = ("cholesky", "svd")
"""Solvers of ridge regressions that have no tolerance."""

_OTHERS = "give the rows, targets and weights that it was fitted on: no tolerance moves it so far"


def measured(
    name: str, final: Any, theta: Array, model: BaseModel, compared: tuple[Any, Any, Any]
) -> Conversion:
    """Return how far an estimator is from a model, its optimum on the same rows.

    Parameters
    ----------
    name
        Of the estimator's class.
    final
        It, or the last step of a Pipeline.
    theta
        Its parameters, d x m.
    model
        The fitted model.
    compared
        What predicts, and the rows that both were fitted on, as it takes them, and the model.

    Notes
    -----
    Cost O(n d): both predict every row.
    """
    optimum = model.published
    distance, size = norm(theta - optimum), norm(optimum)
    relative = distance / size if size > 0 else float(distance > 0)
    gaps = np.abs(_gaps(model, *compared))
    largest, mean = float(gaps.max(initial=0.0)), float(gaps.mean())
    advice = _advice(final, largest)
    return Conversion(name, distance, relative, largest, mean, advice)


def _gaps(model: Any, given: Any, X: Any, own: Any) -> Array:
    """Return the estimator's predictions less the model's, (n,) or (n, m)."""
    rows = deepcopy(X)  # with copy=False, a transformer writes into it
    with warnings.catch_warnings():
        # Categories of missing values are spelt in several ways, of which scikit-learn warns.
        warnings.simplefilter("ignore")
        if hasattr(model, "predict_proba"):
            return np.asarray(np.asarray(given.predict_proba(rows)) - model.predict_proba(own))
        read = given.decision_function if hasattr(given, "decision_function") else given.predict
        theirs = np.asarray(read(rows), dtype=np.float64)
    deviation = theirs.std(axis=0)
    ours = model.predict(own).reshape(theirs.shape)
    return np.asarray((theirs - ours) / np.where(deviation > 0, deviation, 1.0))


def _advice(final: Any, largest: float) -> str:
    """Return what would have brought an estimator closer to its optimum on these rows.

    The distance of an iterative one is about proportional to the tolerance at which it stopped.
    """
    one = getattr(final, "estimator", final)  # of a OneVsRestClassifier
    tolerance = getattr(one, "tol", None)
    if largest <= MOVED or tolerance is None:
        return ""
    if getattr(final, "solver_", None) in _DIRECT:
        return _OTHERS
    fitted = getattr(final, "estimators_", [final])
    most = getattr(one, "max_iter", None)
    steps = max((int(np.max(each.n_iter_)) for each in fitted if _counts(each)), default=0)
    if most is not None and steps >= most:
        return f"it stopped at max_iter={most}: fit it with more, to move it less"
    wanted = 10.0 ** np.floor(np.log10(tolerance * _WANTED / largest))
    if wanted < _LEAST:
        return _OTHERS
    return f"fit it with tol={wanted:.0e}, on the rows given, to move it less"


def _counts(estimator: Any) -> bool:
    return getattr(estimator, "n_iter_", None) is not None
