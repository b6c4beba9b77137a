"""Last steps: the values that scikit-learn documents for each parameter, and what they minimise.

A model minimises sum_i weight_i loss_i + ridge / 2 |theta|^2 with one ridge above 0, the intercept
free: squared errors, the logistic loss of two classes or of each class against the rest, that of
several classes together, or the Poisson loss.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import BaggingRegressor, RandomForestClassifier, VotingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lars,
    Lasso,
    LassoCV,
    LassoLars,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    MultiTaskLasso,
    OrthogonalMatchingPursuit,
    Perceptron,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
    TheilSenRegressor,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeRegressor

from lethe.engine.fit.objective import Kind
from tests.proof.conversions.setting import TABLES, TARGETS, Offence, Setting

Values = Mapping[str, Sequence[Any]]

_TWO = ("two words", "two integers", "true or false")
_EVERY_SOLVER = ("auto", "svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga", "lbfgs")

RIDGE: Values = {
    "alpha": (1.0, 1e-3, 0.3, 7.0, 1e4, [2.0], np.array(0.5), 0.0, [1.0, 2.0]),
    "fit_intercept": (True, False),
    "copy_X": (True, False),
    "max_iter": (None, 500, 2),
    "tol": (1e-4, 1e-10, 0.5),
    "solver": _EVERY_SOLVER,
    "positive": (False, False, False, True),
    "random_state": (None, 7),
}

RIDGE_CLASSIFIER: Values = {
    **RIDGE,
    "alpha": (1.0, 1e-3, 0.3, 7.0, 1e4, 0.0),
    "class_weight": (None, None, None, "balanced", {"yes": 2.0, "no": 0.5}),
}

LOGISTIC: Values = {
    "penalty": ("deprecated",) * 5 + ("l2", "elasticnet", "l1", None),
    "C": (1.0, 0.01, 0.3, 5.0, 100.0, np.inf),
    "l1_ratio": (0.0, 0.0, 0.0, None, 1.0, 0.4),
    "dual": (False, False, True),
    "tol": (1e-4, 1e-10, 0.1),
    "fit_intercept": (True, False),
    "intercept_scaling": (1, 10.0),
    "class_weight": (None, None, None, "balanced", {"yes": 2.0, "no": 0.5}),
    "random_state": (None, 7),
    "solver": ("lbfgs", "newton-cg", "newton-cholesky", "sag", "saga", "liblinear"),
    "max_iter": (100, 1000, 3),
    "verbose": (0,),
    "warm_start": (False, True),
    "n_jobs": (None,),
}

POISSON: Values = {
    "alpha": (1.0, 1e-3, 0.3, 7.0, 0.0),
    "fit_intercept": (True, False),
    "solver": ("lbfgs", "newton-cholesky"),
    "max_iter": (100, 1000, 3),
    "tol": (1e-4, 1e-10, 0.1),
    "warm_start": (False, True),
    "verbose": (0,),
}

ONE_VS_REST: Values = {
    "estimator": (LogisticRegression(),),  # drawn from `LOGISTIC`
    "n_jobs": (None, 1),
    "verbose": (0,),
}

OWN_INVERSE = "its own"
INVERSES = {np.log1p: np.expm1, np.sqrt: np.square, np.arcsinh: np.sinh}

TRANSFORMED: Values = {
    "regressor": (Ridge(), Ridge(0.3, fit_intercept=False), Ridge(tol=1e-9), None, Lasso()),
    "transformer": (None, None, None, None, StandardScaler()),
    "func": (np.log1p, np.sqrt, np.arcsinh, np.cbrt, None),
    "inverse_func": (OWN_INVERSE, OWN_INVERSE, OWN_INVERSE, np.square),
    "check_inverse": (True, False),
}


def shown(estimator: Any, parameter: str, value: object) -> str:
    """Return how a refusal names a parameter's value: the first 60 characters of a long one."""
    return f"{type(estimator).__name__}: {parameter}={' '.join(repr(value).split())[:60]}"


def offences(estimator: Any) -> list[Offence]:
    """Return why an estimator minimises something else than a model does."""
    p = estimator.get_params(deep=False)
    if isinstance(estimator, OneVsRestClassifier):
        inner = estimator.estimator
        if not isinstance(inner, LogisticRegression):
            return [("OneVsRestClassifier: of a",)]
        weighed = inner.class_weight is not None
        each = [("LogisticRegression: class_weight weighs",)] if weighed else []
        return [("'estimator'", *offence) for offence in [*offences(inner), *each]]
    wrong: list[str] = []
    if isinstance(estimator, TransformedTargetRegressor):
        func, inverse = p["func"], p["inverse_func"]
        wrong += ["transformer"] if p["transformer"] is not None else []
        wrong += ["func"] if func not in (*INVERSES, None) else []
        wrong += ["inverse_func"] if func in INVERSES and inverse is not INVERSES[func] else []
        each = [("TransformedTargetRegressor: it has no func",)] if func is None else []
        if not isinstance(p["regressor"], Ridge):
            each.append(("TransformedTargetRegressor: its regressor is a L",))
        return [*((shown(estimator, name, p[name]),) for name in wrong), *each]
    if isinstance(estimator, LogisticRegression):
        # "l1_ratio=0 for penalty='l2', l1_ratio=1 for penalty='l1', and C=np.inf for penalty=None";
        # l1_ratio is ignored with a penalty that is named and not "elasticnet".
        wrong += ["penalty"] if p["penalty"] in ("l1", None) else []
        mixes = p["penalty"] in ("deprecated", "elasticnet") and p["l1_ratio"] not in (0, None)
        wrong += ["l1_ratio"] if mixes else []
        wrong += ["C"] if np.isinf(p["C"]) else []
        penalised = p["solver"] == "liblinear" and p["fit_intercept"]
        wrong += ["intercept_scaling"] if penalised and p["intercept_scaling"] != 1 else []
    else:
        wrong += ["alpha"] if np.size(p["alpha"]) > 1 or np.min(p["alpha"]) == 0 else []
        wrong += ["positive"] if p.get("positive") else []
    return [(shown(estimator, name, p[name]),) for name in wrong]


def drawn(rng: Random, kind: type, values: Values) -> Any:
    """Return an estimator with drawn values of all its parameters."""
    given = {name: rng.choice(options) for name, options in values.items()}
    if kind is OneVsRestClassifier:
        two = {**LOGISTIC, "class_weight": (None, None, None, "balanced")}
        given["estimator"] = drawn(rng, LogisticRegression, two)
    if given.get("inverse_func") == OWN_INVERSE:  # the cube's root has its own as well
        given["inverse_func"] = None if given["transformer"] else INVERSES.get(given["func"])
    if given.get("C") == np.inf and given["solver"] == "liblinear":
        given["solver"] = "lbfgs"  # liblinear may never return
    return kind(**given)


def one_at_a_time(kind: type, values: Values) -> Iterator[Any]:
    """Yield estimators with each documented value beside the defaults."""
    needed = {"estimator": LogisticRegression()} if "estimator" in values else {}
    for name, options in values.items():
        distinct: list[Any] = []
        for value in options:
            if not any(value is other or repr(value) == repr(other) for other in distinct):
                distinct.append(value)
                yield kind(**{**needed, name: value})


def can_be_fitted(estimator: Any, table: str, target: str) -> bool:
    """Return whether scikit-learn takes the setting at all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            clone(estimator).fit(TABLES[table].copy(), TARGETS[target])
        except Exception:  # whatever it raises
            return False
    return True


CLASSES: Mapping[type, tuple[Values, tuple[str, ...]]] = {
    Ridge: (RIDGE, ("number", "column of numbers", "two numbers")),
    RidgeClassifier: (RIDGE_CLASSIFIER, (*_TWO, "three words")),
    LogisticRegression: (LOGISTIC, (*_TWO, "three words")),
    PoissonRegressor: (POISSON, ("counts",)),
    OneVsRestClassifier: (ONE_VS_REST, ("three words", "two words")),
    TransformedTargetRegressor: (TRANSFORMED, ("counts",)),
}
"""Classes that become models: their values, and the targets that they are fitted on."""


def settings(rng: Random, each: int) -> Iterator[Setting]:
    """Yield settings of the last steps alone: value by value, and ``each`` drawn of each class."""
    for kind, (values, targets) in CLASSES.items():
        linear = kind in (Ridge, RidgeClassifier, TransformedTargetRegressor)
        found = [*one_at_a_time(kind, values)]
        wanted = len(found) + each
        while len(found) < wanted:
            found.append(drawn(rng, kind, values))
        for estimator in found:
            table = rng.choice(("numbers", "named"))
            names = [t for t in targets if can_be_fitted(estimator, table, t)]
            if names:
                target = rng.choice(names)
                other = Kind.POISSON if kind is PoissonRegressor else None
                if kind is LogisticRegression and target == "three words":
                    other = Kind.SOFTMAX
                wrong = tuple(offences(estimator))
                yield Setting(kind.__name__, linear, estimator, table, target, wrong, other=other)


def others() -> Iterator[Setting]:
    """Yield estimators that minimise something else, or nothing."""
    number: list[Any] = [
        LinearRegression(), LinearRegression(fit_intercept=False), LinearRegression(positive=True),
        Lasso(), ElasticNet(), ElasticNet(l1_ratio=0.0), LassoCV(), ElasticNetCV(), Lars(),
        LassoLars(), MultiTaskLasso(), OrthogonalMatchingPursuit(), RidgeCV(), BayesianRidge(),
        ARDRegression(), HuberRegressor(), TheilSenRegressor(), QuantileRegressor(),
        SGDRegressor(), KernelRidge(), LinearSVR(), DummyRegressor(), DecisionTreeRegressor(),
        KNeighborsRegressor(), TransformedTargetRegressor(Ridge()), BaggingRegressor(Ridge()),
        VotingRegressor([("ridge", Ridge())]), MultiOutputRegressor(Ridge()),
        GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}),
    ]  # fmt: skip
    counts: list[Any] = [PoissonRegressor(), TweedieRegressor(power=0), TweedieRegressor(power=1)]
    words: list[Any] = [
        RidgeClassifierCV(), LogisticRegressionCV(), SGDClassifier(loss="log_loss"), Perceptron(),
        LinearSVC(), SVC(kernel="linear"), LinearDiscriminantAnalysis(), GaussianNB(),
        RandomForestClassifier(5), CalibratedClassifierCV(LogisticRegression()),
        OneVsOneClassifier(LogisticRegression()), OutputCodeClassifier(LogisticRegression()),
        OneVsRestClassifier(LinearSVC()), OneVsRestClassifier(RidgeClassifier()),
        GridSearchCV(LogisticRegression(), {"C": [1.0, 2.0]}),
    ]  # fmt: skip
    for estimator in [*number, *counts, GammaRegressor(), *words]:
        name = type(estimator).__name__
        target = "two words" if estimator in words else "number"
        target = "counts" if estimator in counts else target
        target = "two numbers" if name.startswith("Multi") else target
        for linear in (True, False):
            if can_be_fitted(estimator, "numbers", target):
                yield Setting(name, linear, estimator, "numbers", target, ((f"{name}: ",),))
    for estimator, target, linear in (
        (Ridge(), "number", False),
        (RidgeClassifier(), "two words", False),
        (LogisticRegression(), "two words", True),
        (OneVsRestClassifier(LogisticRegression()), "three words", True),
        (LogisticRegression(), "three words", False),  # `SoftmaxModel` has the multinomial loss
    ):
        name = type(estimator).__name__
        yield Setting(name, linear, estimator, "numbers", target, ((f"{name}: ",),))
