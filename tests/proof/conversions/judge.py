"""Converts a setting, deletes rows, and compares with scikit-learn fitted to what remains."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone, is_classifier

from lethe import LinearModel, LogisticModel
from lethe.engine.errors import InvalidData, LetheError
from tests.proof.conversions.settings import ROWS, Setting

DELETED = tuple(range(0, 15))
LINEAR = 1e-9
"""Of the largest prediction, for ridge regressions: both are exact but for rounding."""
SOLVER = 1e-6
"""For what an iterative solver of scikit-learn leaves, at the tolerances of the settings."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a setting.

    Attributes
    ----------
    refused
        The message, or None if it was accepted.
    distance
        Of an accepted one: the largest difference of predictions, over the largest prediction.
    allowed
        What that may come to.
    fault
        What is wrong; None if nothing is.
    """

    refused: str | None
    distance: float
    allowed: float
    fault: str | None


def judge(setting: Setting) -> Verdict | None:
    """Return the verdict; None where scikit-learn itself cannot be fitted with the setting."""
    with warnings.catch_warnings(), config_context(enable_metadata_routing=setting.routed):
        warnings.simplefilter("ignore")
        return _judged(setting)


def _judged(setting: Setting) -> Verdict | None:
    weight = np.arange(ROWS) % 3 + 1.0 if setting.routed else None
    X = setting.X.copy()  # a transformer may write to what it is given
    try:
        given = _fitted(setting.estimator, setting.X.copy(), setting.y, weight)
    except Exception:  # no setting of scikit-learn's
        return None
    linear = not is_classifier(given) or "Ridge" in type(_last(given)).__name__
    try:
        model: Any = (LinearModel if linear else LogisticModel).from_sklearn(
            given, X, setting.y, sample_weight=weight
        )
        model.delete([str(i) for i in DELETED], method="exact")
        if not linear:
            model.refresh("rebuild")
    except InvalidData as error:
        return Verdict(str(error), 0.0, 0.0, _unclear(str(error)))
    except LetheError as error:
        return Verdict(str(error), 0.0, 0.0, f"refused as {type(error).__name__}: {error}")
    except Exception as error:
        return Verdict(None, 0.0, 0.0, f"{type(error).__name__}: {error}")
    return _compared(setting, model, weight, linear=linear)


def _compared(setting: Setting, model: Any, weight: Any, *, linear: bool) -> Verdict:
    keep = np.setdiff1d(np.arange(ROWS), DELETED)
    X = setting.X.iloc[keep] if hasattr(setting.X, "iloc") else setting.X[keep]
    refitted = _fitted(
        clone(setting.estimator),
        X.copy(),
        setting.y[keep],
        None if weight is None else weight[keep],
    )
    try:
        exported = model.to_sklearn()
        pairs = [
            (_scores(refitted, X), _scores(model, X)),
            (_scores(refitted, X), _scores(exported, X)),
        ]
    except Exception as error:
        return Verdict(None, 0.0, 0.0, f"{type(error).__name__}: {error}")
    last = type(_last(refitted)).__name__
    iterative = not linear or getattr(_last(refitted), "solver", "") in (
        "sag",
        "saga",
        "lsqr",
        "sparse_cg",
    )
    allowed = SOLVER if iterative else LINEAR
    distance = max(
        float(np.max(np.abs(truth.reshape(-1) - found.reshape(-1)))) / float(np.max(np.abs(truth)))
        for truth, found in pairs
    )
    fault = None if distance <= allowed else f"{last}: predictions differ by {distance:.1e}"
    return Verdict(None, distance, allowed, fault)


def _scores(model: Any, given: Any) -> np.ndarray[Any, Any]:
    X = given.copy()
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(X))
    return np.asarray(model.predict(X))


def _fitted(estimator: Any, X: Any, y: Any, weight: Any) -> Any:
    return estimator.fit(X, y) if weight is None else estimator.fit(X, y, sample_weight=weight)


def _last(estimator: Any) -> Any:
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _unclear(message: str) -> str | None:
    """Return what a refusal lacks: a class by name, a way out, and one line."""
    if "\n" in message:
        return "the refusal has several lines"
    if not re.match(r"(step '|column )|\w+: ", message):
        return f"the refusal names no step, column or class: {message}"
    if ";" not in message and ". " not in message:
        return f"the refusal names no way out: {message}"
    return None
