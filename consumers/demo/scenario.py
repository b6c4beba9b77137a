"""The demo's models and deletion requests, the same in every run.

The data sets come with scikit-learn and have one row per patient. To make requests by subject
meaningful, the demo groups neighbouring rows into patients with one to three rows (visits) each.
In every wave patients withdraw, named by row or by subject, sometimes several in one batch. The
first waves also contain what goes wrong in real life.

Budgets and limits are small, so that the policy (`engine.refresh.policy`) chooses polish, compact
and rebuild within about fifty rows. Nothing else is arranged; nobody requests a refresh.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from lethe.consumers.contract import codes, topics
from lethe.consumers.log.base import Message
from lethe.consumers.registration.register import TrainingData
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig

_SEED = 20_21
"""Seed of the demo's only random choices: who has how many rows, and who withdraws."""

_MOST_VISITS = 3
_WAVES = 20
"""Number of waves: enough for each model to exceed its budget several times."""

_WITHDRAWALS = ((0,), (1,), (0, 1), (2,))
"""A model's requests in four waves in turn: each names so many patients' rows, or (0) a subject."""


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A model of the demo: its configuration and its training rows."""

    config: ModelConfig
    data: TrainingData

    @property
    def model_id(self) -> str:
        """The model's id."""
        return self.config.model_id


@dataclass(frozen=True, slots=True)
class Request:
    """One record of ``lethe.deletions``, and its outcome under the contract."""

    what: str  # a description for people
    message: Message
    model_id: str
    request_id: str | None  # None: it cannot be read, and becomes a dead letter
    rows: tuple[str, ...]  # that it names; for a request by subject, the subject's rows
    status: str | None  # of its receipt; None: there is no receipt
    code: str | None = None


def models() -> tuple[DemoModel, DemoModel]:
    """Return the demo's models: a linear and a logistic one.

    The first predicts the progression of diabetes from 442 rows and 65 features of degree 1 and 2.
    A linear model's exact answer is always known: it is published once the projection is over the
    budget, and the limits on a generation trigger the rebuild and the compaction. The second
    predicts a diagnosis of breast cancer from 569 rows and 30 features. The quadratic model of a
    logistic loss has an error of its own, which only a polish removes.
    """
    diabetes = load_diabetes()
    degree_2 = PolynomialFeatures(degree=2, include_bias=False)
    X = degree_2.fit_transform(diabetes.data)
    names = degree_2.get_feature_names_out(diabetes.feature_names)
    limits = LimitsRecord(completions=3, fraction_of_d=0.0, floor_rows=20)
    linear = _model("diabetes", Kind.LINEAR, X, diabetes.target, names, 0.03, limits)
    cancer = load_breast_cancer()
    X, y, names = cancer.data, cancer.target, cancer.feature_names
    limits = LimitsRecord(completions=2, fraction_of_d=0.0, floor_rows=24)
    return linear, _model("breast-cancer", Kind.LOGISTIC, X, y, names, 0.02, limits)


def _model(
    model_id: str,
    kind: Kind,
    X: Array,
    y: Array,
    features: Sequence[str],
    budget: float,
    limits: LimitsRecord,
) -> DemoModel:
    names = tuple(str(name) for name in features)
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
        exact_sums=kind is Kind.LINEAR,
    )
    subjects = _patients(len(X))
    ids = tuple(row for rows in subjects.values() for row in rows)
    standardised = np.asarray(StandardScaler().fit_transform(X), dtype=np.float64)
    target = np.asarray(y, dtype=np.float64)[:, None]
    return DemoModel(config, TrainingData(ids, standardised, target, names, ("target",), subjects))


def _patients(n: int) -> dict[str, list[str]]:
    """Return each patient's rows, with ids such as ``p017.2``: patient 17, visit 2."""
    rng = np.random.default_rng(_SEED)
    subjects: dict[str, list[str]] = {}
    while n:
        visits = min(n, int(rng.integers(1, _MOST_VISITS + 1)))
        patient = f"p{len(subjects) + 1:03d}"
        subjects[patient] = [f"{patient}.{visit}" for visit in range(1, visits + 1)]
        n -= visits
    return subjects


def waves(linear: DemoModel, logistic: DemoModel) -> list[list[Request]]:
    """Return the requests that are sent together; those for one model become one version."""
    rng = np.random.default_rng(_SEED)
    streams = [_withdrawals(model, rng) for model in (linear, logistic)]
    script = [[request for stream in streams for request in next(stream)] for _ in range(_WAVES)]
    first, other = script[0]
    for wave, request in zip(script[1:], _mishaps(logistic, first, other), strict=False):
        wave.append(request)
    return script


def _withdrawals(model: DemoModel, rng: np.random.Generator) -> Iterator[list[Request]]:
    """Yield each wave's requests for a model; nobody withdraws twice."""
    subjects = model.data.subjects
    names = list(subjects)
    patients = iter([names[i] for i in rng.permutation(len(names))])
    numbers = itertools.count(1)
    for wave in itertools.cycle(_WITHDRAWALS):
        requests = []
        for count in wave:
            named = [next(patients) for _ in range(count or 1)]
            rows = tuple(row for patient in named for row in subjects[patient])
            subject = None if count else named[0]
            request_id = f"withdraw-{next(numbers):02d}"
            requests.append(_request(model.model_id, request_id, rows, subject))
        yield requests


def _request(
    model_id: str, request_id: str, rows: tuple[str, ...], subject: str | None = None
) -> Request:
    """Return a request that is to be applied; with ``subject``, it names no rows."""
    named: dict[str, object] = {"row_ids": list(rows)}
    if subject is not None:
        named = {"subject_id": subject}
    body = json.dumps({"request_id": request_id, "model_id": model_id, **named})
    message = Message(topics.DELETIONS, model_id.encode(), body.encode())
    what = f"rows {', '.join(rows)}" if subject is None else f"subject {subject}"
    return Request(what, message, model_id, request_id, rows, "APPLIED")


def _mishaps(model: DemoModel, first: Request, other: Request) -> list[Request]:
    """Return what goes wrong in real life, one request for each wave after the first.

    ``first`` is a request that was applied, ``other`` one that was applied to ``model``.
    """

    def rejected(request: Request, code: str, what: str) -> Request:
        return replace(request, what=what, status="REJECTED", code=code)

    name, other_id = model.model_id, str(other.request_id)
    message = Message(topics.DELETIONS, name.encode(), b"please forget me {")
    nobody = _request("churn", "stray-1", ("p001.1",))
    stranger = _request(name, "stray-2", ("p999.1",))
    conflicting = _request(name, other_id, model.data.ids[-1:])
    late = _request(first.model_id, "late-1", first.rows)
    return [
        Request("a record that is not JSON", message, name, None, (), None),
        rejected(nobody, codes.UNKNOWN_MODEL, "a model that nobody registered"),
        rejected(stranger, codes.UNKNOWN_ROWS, "a row that was never a member"),
        replace(first, what=f"{first.request_id} once more, the same body"),
        rejected(
            conflicting, codes.REQUEST_ID_CONFLICT, f"{other_id} once more, with another body"
        ),
        replace(late, what="a new request for rows that are gone", status="ALREADY_APPLIED"),
    ]
