"""Deletion from a head, against two retrainings: of the head, and of the features as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_expit, log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from harness.timing import Call, Samples
from heads.features import EXTRACTORS, Array, Extractor, Images, Labels, split
from lethe import LogisticModel

RIDGE = 1.0
_TOLERANCE = 1e-10  # of the retraining that distances are measured from


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes: units by kind of features, rows to train on, rows deleted, draws of deleted rows.

    ``served`` are the kinds of features whose heads the commands delete from, too.
    """

    units: Mapping[str, int]
    training: int = 1400
    deleted: int = 70
    draws: int = 5
    served: tuple[str, ...] = ("random", "hidden")


@dataclass(frozen=True, slots=True)
class Head:
    """A linear layer: p x C coefficients, and C intercepts."""

    theta: Array
    intercept: Array

    @classmethod
    def of(cls, model: LogisticModel) -> Head:
        """Return what a model of Lethe publishes."""
        return cls(model.theta, model.intercept)

    def margins(self, features: Array) -> Array:
        """Return n x C margins."""
        return features @ self.theta + self.intercept

    def answers(self, features: Array) -> Labels:
        """Return the class of the largest margin, which is the digit."""
        digits: Labels = self.margins(features).argmax(axis=1)
        return digits

    def accuracy(self, features: Array, digits: Labels) -> float:
        """Return the share of right answers."""
        return float(np.mean(self.answers(features) == digits))

    def log_loss(self, features: Array, digits: Labels) -> float:
        """Return the mean log loss; probabilities are one against the rest, over their sum."""
        logarithms = log_softmax(log_expit(self.margins(features)), axis=1)
        return float(-np.mean(logarithms[np.arange(len(digits)), digits]))

    def distance(self, other: Head) -> float:
        """Return the distance to another head, relative to the other's length."""
        mine, its = (np.vstack([one.theta, one.intercept]) for one in (self, other))
        return float(np.linalg.norm(mine - its) / np.linalg.norm(its))


def retrained(features: Array, digits: Labels) -> Head:
    """Return the head that scikit-learn fits: code that shares nothing with Lethe's."""
    solver = LogisticRegression(C=1 / RIDGE, solver="newton-cholesky", tol=_TOLERANCE)
    fitted = OneVsRestClassifier(solver).fit(features, digits).estimators_
    theta = np.array([one.coef_[0] for one in fitted]).T
    return Head(theta, np.array([one.intercept_[0] for one in fitted]))


def _processor_seconds(call: Call) -> float:
    """Return the processor time of one call: what else runs on the machine does not count."""
    samples = Samples()
    samples.take(call)
    return samples.processor[0]


def _by_default(features: Array, digits: Labels) -> None:
    OneVsRestClassifier(LogisticRegression(C=1 / RIDGE)).fit(features, digits)


def measure(plan: Plan, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a record for each kind of features and each draw of the rows to delete."""
    train, held_out = split(plan.training, seed)
    for kind, units in plan.units.items():
        extract = EXTRACTORS[kind](train, units, seed)
        for draw in range(plan.draws):
            rng = np.random.default_rng([seed, draw])
            gone = rng.choice(plan.training, plan.deleted, replace=False)
            yield {
                "features": kind,
                "units": units,
                "draw": draw,
                **_forgotten(extract, train, gone, held_out),
                **_left(kind, units, extract, train, gone, held_out, seed),
            }


def _forgotten(
    extract: Extractor, train: Images, gone: Any, held_out: Images
) -> dict[str, float | str | None]:
    """Return what the head comes to, against its retraining on the same features."""
    features, outside = extract(train.pixels), extract(held_out.pixels)
    kept = train.without(gone)
    kept_features = extract(kept.pixels)
    goal = retrained(kept_features, kept.digits)
    model = LogisticModel(ridge=RIDGE).fit(features, train.digits, ids=train.ids)
    before = Head.of(model)
    ids = train.take(gone).ids
    deleting = _processor_seconds(lambda: model.delete(ids, method="exact"))
    after, error = Head.of(model), model.error
    refreshing = _processor_seconds(model.refresh)
    refreshed = Head.of(model)
    again = LogisticModel(ridge=RIDGE)
    return {
        "distance_before": before.distance(goal),
        "distance_after": after.distance(goal),
        "distance_refreshed": refreshed.distance(goal),
        "published": str(error.kind),
        "published_relative": error.relative,
        "accuracy_before": before.accuracy(outside, held_out.digits),
        "accuracy_after": after.accuracy(outside, held_out.digits),
        "accuracy_retrained": goal.accuracy(outside, held_out.digits),
        "delete_seconds": deleting,
        "refresh_seconds": refreshing,
        "fit_seconds": _processor_seconds(lambda: again.fit(kept_features, kept.digits)),
        "retrain_seconds": _processor_seconds(lambda: _by_default(kept_features, kept.digits)),
    }


def _left(
    kind: str, units: int, extract: Extractor, train: Images, gone: Any, held_out: Images, seed: int
) -> dict[str, float]:
    """Return what is left in the features: the head at its best, against retraining everything.

    The head is the retrained one, so that nothing of the difference is the head's. ``another`` is
    a training of everything from other random numbers, without the rows: what differs anyway.
    """
    kept, deleted = train.without(gone), train.take(gone)
    extractors: list[Extractor] = [extract]
    training = _processor_seconds(lambda: extractors.append(EXTRACTORS[kind](kept, units, seed)))
    extractors.append(EXTRACTORS[kind](kept, units, seed + 1))
    heads = [retrained(one(kept.pixels), kept.digits) for one in extractors]
    pairs = list(zip(("head", "all", "another"), heads, extractors, strict=True))
    answers = [head.answers(one(held_out.pixels)) for _, head, one in pairs]
    record = {
        "extractor_seconds": training,
        "same_answers": float(np.mean(answers[0] == answers[1])),
        "same_answers_anyway": float(np.mean(answers[1] == answers[2])),
    }
    for name, head, one in pairs:
        for which, images in (("deleted", deleted), ("held_out", held_out)):
            features = one(images.pixels)
            record[f"accuracy_{which}_{name}"] = head.accuracy(features, images.digits)
            record[f"loss_{which}_{name}"] = head.log_loss(features, images.digits)
    return record
