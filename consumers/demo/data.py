"""The demo's two data sets, which come with scikit-learn, and how their models are registered.

Budgets and limits are small, so that the policy (`engine.refresh.policy`) chooses every kind of
refresh within about fifty rows. Nothing else is arranged, and no refresh is requested explicitly.

Both have one row per patient. To make requests by subject meaningful, the demo groups neighbouring
rows into patients with one to three rows (visits) each; that grouping is the demo's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from lethe.consumers.registration.register import TrainingData
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.store.state import LimitsRecord, ModelConfig

SEED = 20_21
"""Seed of the demo's only random choices: who has how many rows, and who withdraws."""

_MOST_VISITS = 3


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A model of the demo: its configuration and its training rows."""

    config: ModelConfig
    data: TrainingData

    @property
    def model_id(self) -> str:
        """The model's id."""
        return self.config.model_id


def diabetes() -> DemoModel:
    """Return a linear model of disease progression: 442 rows, 65 features of degree 1 and 2.

    A linear model's exact answer is always at hand: its budget triggers completions, and the limits
    on a generation trigger the rebuild and the compaction.
    """
    bunch = load_diabetes()
    degree_2 = PolynomialFeatures(degree=2, include_bias=False)
    X = degree_2.fit_transform(bunch.data)
    names = tuple(str(name) for name in degree_2.get_feature_names_out(bunch.feature_names))
    limits = LimitsRecord(completions=3, fraction_of_d=0.0, floor_rows=20)
    return _model("diabetes", Kind.LINEAR, X, bunch.target, names, 0.03, limits)


def breast_cancer() -> DemoModel:
    """Return a logistic model of the diagnosis: 569 rows, 30 features.

    The quadratic model of a logistic loss has an error of its own, which only a polish removes.
    """
    bunch = load_breast_cancer()
    names = tuple(str(name) for name in bunch.feature_names)
    limits = LimitsRecord(completions=2, fraction_of_d=0.0, floor_rows=24)
    return _model("breast-cancer", Kind.LOGISTIC, bunch.data, bunch.target, names, 0.02, limits)


def models() -> tuple[DemoModel, ...]:
    """Return the demo's models."""
    return diabetes(), breast_cancer()


def _model(
    model_id: str,
    kind: Kind,
    X: Array,
    y: Array,
    names: tuple[str, ...],
    budget: float,
    limits: LimitsRecord,
) -> DemoModel:
    config = ModelConfig(
        model_id=model_id,
        kind=kind,
        method="pru",
        ridge=1.0,
        fit_intercept=True,
        feature_names=names,
        target_names=("target",),
        error_budget=budget,
        limits=limits,
    )
    ids, subjects = _patients(len(X))
    standardised = np.asarray(StandardScaler().fit_transform(X), dtype=np.float64)
    target = np.asarray(y, dtype=np.float64)[:, None]
    return DemoModel(config, TrainingData(ids, standardised, target, names, ("target",), subjects))


def _patients(n: int) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Return row ids ``p017.2`` (patient 17, visit 2), and each patient's rows."""
    rng = np.random.default_rng(SEED)
    subjects: dict[str, list[str]] = {}
    remaining = n
    while remaining:
        visits = min(remaining, int(rng.integers(1, _MOST_VISITS + 1)))
        patient = f"p{len(subjects) + 1:03d}"
        subjects[patient] = [f"{patient}.{visit}" for visit in range(1, visits + 1)]
        remaining -= visits
    return tuple(row for rows in subjects.values() for row in rows), subjects
