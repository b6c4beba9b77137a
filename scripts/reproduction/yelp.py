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
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import IllConditioned, InvalidData
from reproduction import ours, published, yelp_page
from reproduction.data import Array
from reproduction.experiment import Cell, Experiment, Progress, generator
from reproduction.linear import EXACT, INFLUENCE, PRU, PRU_PUBLISHED
from reproduction.metrics import feature_injection, l2_ratio, relative_error
from reproduction.records import Record, quartiles
from reproduction.retraining import LINEAR_RIDGE, retrain
from reproduction.trials import Sample
from reproduction.yelp_page import FIT, FIT_OF_USER, L2, L2_OF_USER, RELATIVE_ERROR, SHARE_REFUSED
from reproduction.yelp_reviews import PAPER, Recipe, Reviews, load

TABLE = "yelp"

SMALL = Recipe(users_each=3, most_reviews=5, vocabulary=30, sampled=200)
"""For `--quick` with a file, and for the tests."""

HOW_TO_GET = (
    "yelp: no file given. Get yelp_academic_dataset_review.json of the Yelp Open Dataset (from "
    "Yelp, under its terms of use), then: make paper YELP=FILE, or scripts/paper.py --yelp FILE"
)

Index = NDArray[np.intp]


def with_file(file: Path) -> Experiment:
    """Return the experiment on a file of reviews."""
    return replace(EXPERIMENT, cells=partial(_cells_of, file), run_cell=partial(_run_cell_of, file))


def _no_cells(_quick: bool) -> list[Cell]:
    return []


def _no_file(_cell: Cell, _seed: int, _progress: Progress) -> list[Record]:
    raise InvalidData(HOW_TO_GET)


def _cells_of(file: Path, quick: bool) -> list[Cell]:
    if not file.is_file():
        raise InvalidData(f"{file} is not a file. {HOW_TO_GET}")
    recipe = SMALL if quick else PAPER
    groups = [2, 4, 8] if quick else list(range(5, 105, 5))
    plan: dict[str, Any] = {
        "bytes": file.stat().st_size,  # stands for the release of the data set
        "recipe": asdict(recipe),
        "groups": groups,
        "trials": 2 if quick else 5,
    }
    return [Cell(TABLE, plan, 2.0 if quick else 900.0)]


def _run_cell_of(file: Path, cell: Cell, seed: int, progress: Progress) -> list[Record]:
    plan = cell.plan
    reviews = load(file, Recipe(**plan["recipe"]), seed)
    samples = list(group_samples(reviews, plan, seed, progress))
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
            yield from _samples(reviews, gram, order[:k], np.ones(k), FIT)
            rng = generator(seed, TABLE, "any", trial, k)
            anyone = rng.choice(len(reviews.y), size=k, replace=False)
            yield from _samples(reviews, gram, anyone, None, L2)


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
    W = full.solve(X[:k].T).T
    answers = {
        INFLUENCE: published.influence(X, y, full.theta, np.arange(k), full.inverse),
        PRU_PUBLISHED: published.projective_residual_update(
            X, y, full.theta, np.arange(k), W @ X.T
        ),
    }
    try:
        answers[PRU] = ours.pru_from_dual_rows(X, y, full.theta, np.arange(k), W)
        answers[EXACT] = ours.exact_from_dual_rows(X, y, full.theta, np.arange(k), W)
        refused = 0.0
    except IllConditioned:
        refused = 1.0  # the product lets such a request wait for a rebuild, which is exact
    yield Sample(k, None, None, EXACT, f"{metric}: {SHARE_REFUSED}", refused)
    for method, theta in answers.items():
        if injected is not None:
            value = feature_injection(theta, full.theta)
        else:
            value = l2_ratio(theta, full.theta, live.theta)
        yield Sample(k, None, None, method, metric, value)
        error = relative_error(theta, live.theta)
        yield Sample(k, None, None, method, f"{metric}: {RELATIVE_ERROR}", error)


def arranged(reviews: Reviews, deleted: Index, injected: Array | None) -> tuple[Array, Array]:
    """Return X and y with the deleted rows first, and the injected feature as last column."""
    rest = np.setdiff1d(np.arange(len(reviews.y)), deleted)
    order = np.concatenate([deleted, rest])
    X, y = reviews.X[order], reviews.y[order]
    if injected is None:
        return X, y
    column = np.zeros((len(y), 1))
    column[: len(deleted), 0] = injected
    return np.hstack([X, column]), y


def _summarised(samples: Sequence[Sample], reviews: Reviews) -> list[Record]:
    """Return means; beside those of the metrics, standard errors of the mean, as in the figure."""
    gathered: dict[tuple[int, str, str], list[float]] = {}
    for sample in samples:
        gathered.setdefault((sample.k, sample.method, sample.metric), []).append(sample.value)
    n, d = reviews.X.shape
    common = {"table": TABLE, "n": n, "d": d, "ridge": LINEAR_RIDGE}
    made = []
    for (k, method, metric), values in gathered.items():
        largest = metric.endswith(RELATIVE_ERROR)
        of = {**common, "k": k, "method": method, "samples": len(values)}
        value = max(values) if largest else float(np.mean(values))
        made.append(Record(**of, metric=metric, value=value, spread=quartiles(values)))
        if ":" not in metric and len(values) > 1:
            error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
            made.append(Record(**of, metric=yelp_page.error_of(metric), value=error))
    return made


EXPERIMENT = Experiment(
    name=TABLE,
    title="Yelp reviews (the paper's figure, and its L2 test)",
    cells=_no_cells,
    run_cell=_no_file,
    render=yelp_page.render,
    checks=yelp_page.checks,
    draw=yelp_page.draw,
    absent=f"Not run: the data set is not ours to pass on. {HOW_TO_GET}.\n",
)
