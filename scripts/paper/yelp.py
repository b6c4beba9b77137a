"""The Yelp experiment (the paper's figure "Yelp FIT experiment", and its L2 test).

Linear regression of the label (+1 for four and five stars, else -1) on the counts of 1,500 words,
over 2,100 reviews by 200 users. Two kinds of deletion:

- ``groups``, the paper's figure: k reviews, 5 to 100. FIT: k positive reviews get the injected
  feature 1, each group holding the smaller ones of its trial. L2: any k reviews.
- ``users``: all reviews of one user, 1 to 20, for each of the 200 users. FIT: the user's reviews
  get the injected feature, their label, so that it predicts them perfectly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.results import where
from lethe.engine.errors import IllConditioned, InvalidData
from paper import linear
from paper.data import Array, Index
from paper.experiment import (
    PRINTS_AS_ZERO,
    Cell,
    Check,
    Experiment,
    Method,
    Metric,
    Progress,
    Sample,
    exact_within,
    feature_injection,
    gathered,
    generator,
    l2_ratio,
    largest_under,
    relative_error,
    summarise,
)
from paper.page import NAMES, column, distinct, figure, save, table, two_decimals
from paper.records import Record
from paper.retraining import LINEAR_RIDGE, retrain
from paper.yelp_reviews import PAPER, Recipe, Reviews, load

TABLE = "yelp"

SMALL = Recipe(users_each=3, most_reviews=5, vocabulary=30, sampled=200)
"""For `--quick` with a file, and for the tests."""

HOW_TO_GET = (
    "yelp: no file given. Get yelp_academic_dataset_review.json of the Yelp Open Dataset (from "
    "Yelp, under its terms of use), then: make paper YELP=FILE, or "
    "python scripts/study.py paper --yelp FILE"
)

FIT_OF_USER = "FIT of a user"
L2_OF_USER = "L2 of a user"
SHARE_REFUSED = "share refused as ill-conditioned"

_METRICS = (Metric.FIT, Metric.L2, FIT_OF_USER, L2_OF_USER)
_METHODS = (Method.INFLUENCE, Method.PRU_PUBLISHED, Method.PRU, Method.EXACT)


def cells(file: Path | None, quick: bool) -> list[Cell]:
    """Return one cell; none without a file."""
    if file is None:
        return []
    if not file.is_file():
        raise InvalidData(f"{file} is not a file. {HOW_TO_GET}")
    plan: dict[str, Any] = {
        "bytes": file.stat().st_size,  # stands for the release of the data set
        "recipe": asdict(SMALL if quick else PAPER),
        "groups": [2, 4, 8] if quick else list(range(5, 105, 5)),
        "trials": 2 if quick else 5,
    }
    return [Cell(TABLE, plan, 2.0 if quick else 900.0)]


def run_cell(file: Path | None, cell: Cell, seed: int, progress: Progress) -> list[Record]:
    """Run both kinds of deletion."""
    if file is None:
        raise InvalidData(HOW_TO_GET)
    reviews = load(file, Recipe(**cell.plan["recipe"]), seed)
    samples = list(group_samples(reviews, cell.plan, seed, progress))
    samples += user_samples(reviews, progress)
    return _summarised(samples, reviews)


def group_samples(
    reviews: Reviews, plan: Mapping[str, Any], seed: int, progress: Progress
) -> Iterator[Sample]:
    """Yield the figures of the paper's experiment, for every trial and group size."""
    positive = np.flatnonzero(reviews.y > 0)
    most = max(plan["groups"])
    if len(positive) < most:
        raise InvalidData(f"the chosen users wrote {len(positive)} positive reviews, under {most}")
    gram = reviews.X.T @ reviews.X
    for trial in range(plan["trials"]):
        order = generator(seed, TABLE, trial).permutation(positive)
        for number, k in enumerate(plan["groups"]):
            progress((trial + number / len(plan["groups"])) / plan["trials"] / 2)
            yield from _samples(reviews, gram, order[:k], np.ones(k), Metric.FIT)
            rng = generator(seed, TABLE, "any", trial, k)
            anyone = rng.choice(len(reviews.y), size=k, replace=False)
            yield from _samples(reviews, gram, anyone, None, Metric.L2)


def user_samples(reviews: Reviews, progress: Progress) -> Iterator[Sample]:
    """Yield the figures of deleting each user."""
    gram = reviews.X.T @ reviews.X
    users = int(reviews.user.max()) + 1
    for user in range(users):
        progress(0.5 + user / users / 2)
        own = np.flatnonzero(reviews.user == user)
        yield from _samples(reviews, gram, own, reviews.y[own], FIT_OF_USER)
        yield from _samples(reviews, gram, own, None, L2_OF_USER)


def _samples(
    reviews: Reviews, gram: Array, deleted: Index, injected: Array | None, metric: str
) -> Iterator[Sample]:
    """Yield the figures of one deletion: FIT if there is an injected feature, else L2.

    The deleted rows come first, as elsewhere. ``gram`` is X^T X without the injected feature.
    """
    k = len(deleted)
    X, y = arranged(reviews, deleted, injected)
    if injected is not None:
        border = X[:k].T @ injected
        gram = np.block([[gram, border[:-1, None]], [border[None, :]]])
    full = retrain(X, y, LINEAR_RIDGE, gram)
    # Counts are whole numbers: the difference of the Gram matrices is exact.
    live = retrain(X[k:], y[k:], LINEAR_RIDGE, gram - X[:k].T @ X[:k])
    answers = linear.answers(X, y, k, full, live, (Method.INFLUENCE, Method.PRU_PUBLISHED))
    refused = 0.0
    try:
        answers |= linear.answers(X, y, k, full, live, (Method.PRU, Method.EXACT))
    except IllConditioned:
        refused = 1.0  # the product lets such a request wait for a rebuild, which is exact
    yield Sample(k, None, None, Method.EXACT, f"{metric}: {SHARE_REFUSED}", refused)
    for method, theta in answers.items():
        if injected is not None:
            value = feature_injection(theta, full.theta)
        else:
            value = l2_ratio(theta, full.theta, live.theta)
        yield Sample(k, None, None, method, metric, value)
        error = relative_error(theta, live.theta)
        yield Sample(k, None, None, method, f"{metric}: {Metric.LARGEST_ERROR}", error)


def arranged(reviews: Reviews, deleted: Index, injected: Array | None) -> tuple[Array, Array]:
    """Return X and y with the deleted rows first, and the injected feature as last column."""
    rest = np.setdiff1d(np.arange(len(reviews.y)), deleted)
    order = np.concatenate([deleted, rest])
    X, y = reviews.X[order], reviews.y[order]
    if injected is None:
        return X, y
    feature = np.zeros((len(y), 1))
    feature[: len(deleted), 0] = injected
    return np.hstack([X, feature]), y


def _summarised(samples: Sequence[Sample], reviews: Reviews) -> list[Record]:
    """Return means; beside those of the metrics, standard errors of the mean, as in the figure."""
    n, d = reviews.X.shape
    common = {"table": TABLE, "n": n, "d": d, "ridge": LINEAR_RIDGE}
    largest = [f"{metric}: {Metric.LARGEST_ERROR}" for metric in _METRICS]
    values = gathered([samples])
    made = []
    for record in summarise([samples], common, {}, largest=largest):
        made.append(record)
        if record.metric in _METRICS and record.samples > 1:
            deviation = np.std(values[record.k, None, None, record.method, record.metric], ddof=1)
            error = float(deviation / np.sqrt(record.samples))
            update = {"metric": _error_of(record.metric), "value": error, "spread": None}
            made.append(record.model_copy(update=update))
    return made


def _error_of(metric: str) -> str:
    """Return the name of the metric's standard error of the mean."""
    return f"{metric}: standard error"


def tables(records: Sequence[Record]) -> dict[str, object]:
    """Return the tables of both kinds of deletion."""
    shares = [record for record in records if record.metric.endswith(SHARE_REFUSED)]
    return {
        "ridge": LINEAR_RIDGE,
        "groups": _table(records, Metric.FIT, Metric.L2),
        "users": _table(records, FIT_OF_USER, L2_OF_USER),
        "deletions": sum(record.samples for record in shares),
        "refused": round(sum(record.value * record.samples for record in shares)),
    }


def _table(records: Sequence[Record], *metrics: str) -> str:
    errors = {(r.k, r.method, r.metric): r.value for r in records}

    def with_error(record: Record) -> str:
        error = errors.get((record.k, record.method, _error_of(record.metric)))
        return two_decimals(record) + ("" if error is None else f" ({error:.2f})")

    of = [record for record in records if record.metric in metrics]
    columns = [
        column(f"{metric}, {NAMES[method]}", method, metric, with_error)
        for metric in metrics
        for method in _METHODS
    ]
    return table("k", [{"k": k} for k in sorted(distinct(of, "k"))], of, columns)


def checks(records: Sequence[Record]) -> list[Check]:
    """Check that ours leaves nothing of the injected weight, and equals retraining."""
    ours = where(records, method=Method.EXACT)
    fits = [abs(r.value) for r in ours if r.metric in (Metric.FIT, FIT_OF_USER)]
    said = "FIT of ours prints 0.00 at every k"
    return [largest_under(PRINTS_AS_ZERO, fits, said), exact_within(records)]


def draw(records: Sequence[Record], images: Path) -> None:
    """Write the figure: mean and standard error against the size of the removed group."""
    made, axes = figure(columns=2)
    for axis, metric, label in (
        (axes[0], Metric.FIT, "injected weight, after / before"),
        (axes[1], Metric.L2, "L2 distance, after / before"),
    ):
        axis.axhline(1.0, linestyle="--", color="grey", label="no removal")
        # As published, the PRU is the same line.
        for method in (Method.INFLUENCE, Method.PRU, Method.EXACT):
            of = sorted(where(records, method=method, metric=metric), key=lambda r: r.k)
            found = where(records, method=method, metric=_error_of(metric))
            errors = {record.k: record.value for record in found}
            axis.errorbar(
                [record.k for record in of],
                [record.value for record in of],
                [errors.get(record.k, 0.0) for record in of],
                label=NAMES[method],
                capsize=2,
            )
        axis.set_xlabel("size of removed group")
        axis.set_ylabel(label)
    axes[0].legend()
    save(made, images / "paper-yelp")


def experiment(file: Path | None = None) -> Experiment:
    """Return the experiment on a file of reviews; without one it has no cells."""
    return Experiment(
        name=TABLE,
        cells=partial(cells, file),
        run_cell=partial(run_cell, file),
        tables=tables,
        checks=checks,
        draw=draw,
        absent=f"Not run: the data set is not ours to pass on. {HOW_TO_GET}.",
    )
