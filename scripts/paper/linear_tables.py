"""Tables 3 and 4 and the theorem: linear data, all methods against retraining.

Table 3 is the feature injection test (FIT) on sparse data, with its baseline weights; Table 4 the
L2 distance after deleting outliers, with its baseline distances; the theorem says that the
influence method makes no update as the outlier grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.results import where
from paper import linear, published
from paper.data import (
    ROWS_PER_COLUMN,
    Array,
    enlarge,
    inject,
    linear_fit_targets,
    linear_targets,
    sparse_masks,
)
from paper.experiment import (
    PRINTS_AS_ZERO,
    Cell,
    Check,
    Experiment,
    Method,
    Metric,
    Printed,
    Sample,
    exact_within,
    feature_injection,
    generator,
    l2_ratio,
    largest_under,
    relative_error,
)
from paper.page import (
    as_number,
    beside_paper,
    column,
    distinct,
    figure,
    of_paper,
    save,
    scientific,
    settings,
    table,
    two_decimals,
)
from paper.records import Record
from paper.retraining import LINEAR_RIDGE, LinearFit, retrain

LKO_ERROR = "relative error of LKO predictions"
ONE_TOO_MANY = "influence, against one row too many"
PRU_ONE_TOO_MANY = "pru, against one row too many"
STEP = "step / exact step"
THEORY = "theory, 1 / (1 + c factor^2)"
_RATE_TOLERANCE = 1e-3

_PAPER_FIT = {  # p: {k: (FIT of influence, of the PRU, weight before)}
    0.25: {5: (1.09, 0.98, 8.97), 50: (0.84, 0.86, 10.23), 100: (0.76, 0.72, 9.51)},
    0.1: {5: (0.99, 0.96, 10.61), 50: (0.97, 0.67, 9.73), 100: (0.92, 0.32, 9.99)},
    0.05: {5: (1.01, 0.93, 11.03), 50: (2.32, 0.35, 10.10), 100: (0.98, 0.00, 10.01)},
}
_PRINTED_FIT: Printed = {
    (k, p, None, method, metric): {"paper": figure}
    for p, of_p in _PAPER_FIT.items()
    for k, (influence, pru, weight) in of_p.items()
    for method, metric, figure in (
        (Method.INFLUENCE, Metric.FIT, influence),
        (Method.PRU, Metric.FIT, pru),
        (Method.PRU_PUBLISHED, Metric.FIT, pru),
        (Method.FULL_MODEL, Metric.BASELINE_WEIGHT, weight),
    )
}


def _cells(name: str, cost: float, plan: Mapping[str, Any], quick: bool) -> list[Cell]:
    """Return one cell: all k, and all p or factors, share a trial's Gaussian matrix."""
    d, k, trials = (100, [2, 10, 20], 3) if quick else (linear.PAPER_D, [5, 50, 100], 50)
    whole = {"d": d, "k": k, **plan, "trials": trials}
    return [Cell(f"{name} all", whole, 0.5 if quick else cost)]


def _fit_trial(plan: Mapping[str, Any], seed: int, trial: int) -> list[Sample]:
    d = plan["d"]
    n, most = ROWS_PER_COLUMN * d, max(plan["k"])
    gaussian = linear.trial_rows(seed, n, d, trial)
    made: list[Sample] = []
    for p in plan["p"]:
        shared, own = sparse_masks(generator(seed, "table3", "masks", d, p, trial), n, d, p)
        never_deleted = inject(gaussian, 0, shared, own)[most:]
        rest = never_deleted.T @ never_deleted
        for k in plan["k"]:
            X = inject(gaussian, k, shared, own)
            y = linear_fit_targets(generator(seed, "table3", "targets", d, p, trial, k), X, k)
            gram = rest + X[k:most].T @ X[k:most]
            made += [Sample(k, p, None, *figure) for figure in _fit_figures(X, y, k, gram)]
    return made


def _fit_figures(X: Array, y: Array, k: int, live_gram: Array) -> Iterator[tuple[str, str, float]]:
    """Yield method, metric and value of all figures of one data set."""
    live = retrain(X[k:], y[k:], LINEAR_RIDGE, live_gram)
    full = retrain(X, y, LINEAR_RIDGE, live_gram + X[:k].T @ X[:k])
    hat_rows = (full.inverse @ X[:k].T).T @ X.T
    for method, theta in linear.answers(X, y, k, full, live, hat_rows=hat_rows).items():
        yield method, Metric.FIT, feature_injection(theta, full.theta)
        yield method, Metric.LARGEST_ERROR, relative_error(theta, live.theta)
    for method, as_printed in ((Method.PRU_PUBLISHED, False), (Method.PRU_PRINTED, True)):
        predictions = published.leave_k_out_predictions(
            y, np.arange(k), hat_rows, as_printed=as_printed
        )
        yield method, LKO_ERROR, relative_error(predictions, X[:k] @ live.theta)
    yield Method.FULL_MODEL, Metric.BASELINE_WEIGHT, float(full.theta[-1])


def fit_tables(records: Sequence[Record]) -> dict[str, object]:
    """Return the table, and what the misprint does."""
    fits = [
        *beside_paper(Method.INFLUENCE, Metric.FIT),
        *beside_paper(Method.PRU, Metric.FIT),
        column("Newton", Method.NEWTON, Metric.FIT),
        column("ours", Method.EXACT, Metric.FIT),
    ]
    misprint = [
        column("LKO, 1 - h_ii", Method.PRU_PUBLISHED, LKO_ERROR, scientific),
        column("LKO, 1 - h_jj as printed", Method.PRU_PRINTED, LKO_ERROR, scientific),
        column("FIT as printed", Method.PRU_PRINTED, Metric.FIT, as_number(".3g")),
        column("ours", Method.EXACT, Metric.LARGEST_ERROR, scientific),
    ]
    by_k_and_p = partial(table, "k, p", settings(records, "k", "p"), records)
    return {
        "fits": by_k_and_p(fits),
        "misprint": by_k_and_p(misprint),
    }


def fit_checks(records: Sequence[Record]) -> list[Check]:
    """Check that ours is exact: FIT 0.00, and the error to retraining."""
    fits = where(records, method=Method.EXACT, metric=Metric.FIT)
    sizes = [abs(value) for r in fits for value in (r.value, *(r.spread or ()))]
    said = f"FIT of ours prints 0.00 in all {len(fits)} cells"
    return [largest_under(PRINTS_AS_ZERO, sizes, said), exact_within(records)]


TABLE3 = Experiment(
    name="table3",
    cells=partial(_cells, "table3", 900.0, {"p": list(_PAPER_FIT)}),
    run_cell=partial(
        linear.run, "table3", _fit_trial, _PRINTED_FIT, (Metric.BASELINE_WEIGHT, LKO_ERROR)
    ),
    tables=fit_tables,
    checks=fit_checks,
)


_PAPER_L2 = {  # factor: {k: (L2 of influence, of the PRU, distance before)}
    1: {5: (0.38, 0.92, 0.018), 50: (0.16, 0.88, 0.057), 100: (0.14, 0.88, 0.082)},
    10: {5: (0.93, 0.92, 0.175), 50: (0.91, 0.88, 0.523), 100: (0.90, 0.88, 0.761)},
    100: {5: (0.99, 0.92, 0.192), 50: (0.99, 0.88, 0.572), 100: (0.99, 0.88, 0.842)},
}
_PRINTED_L2: Printed = {
    (k, None, factor, method, metric): {"paper": figure}
    for factor, of_factor in _PAPER_L2.items()
    for k, (influence, pru, distance) in of_factor.items()
    for methods, metric, figure in (
        ((Method.INFLUENCE, ONE_TOO_MANY), Metric.L2, influence),
        ((Method.PRU, Method.PRU_PUBLISHED, PRU_ONE_TOO_MANY), Metric.L2, pru),
        ((Method.FULL_MODEL,), Metric.BASELINE_DISTANCE, distance),
    )
    for method in methods
}


def _l2_trial(plan: Mapping[str, Any], seed: int, trial: int) -> list[Sample]:
    d = plan["d"]
    n, most = ROWS_PER_COLUMN * d, max(plan["k"]) + 1
    X = linear.trial_rows(seed, n, d, trial)
    y = linear_targets(generator(seed, "table4", "targets", d, trial), X)
    first, first_y = X[:most].copy(), y[:most].copy()
    rest = X[most:].T @ X[most:]
    typical = retrain(X, y, LINEAR_RIDGE, rest + first.T @ first)
    made: list[Sample] = []
    for k in plan["k"]:
        X[:most], y[:most] = first, first_y
        live, one_more = (
            retrain(X[out:], y[out:], LINEAR_RIDGE, rest + first[out:].T @ first[out:])
            for out in (k, k + 1)
        )
        for factor in plan["factors"]:
            X[:most], y[:most] = enlarge(first, k, factor), enlarge(first_y, k, factor)
            gram = rest + X[:most].T @ X[:most]
            full = typical if factor == 1 else retrain(X, y, LINEAR_RIDGE, gram)
            against = one_more if factor == 1 else None
            figures = _l2_figures(linear.answers(X, y, k, full, live), full, live, against)
            made += [Sample(k, None, factor, *figure) for figure in figures]
    return made


def _l2_figures(
    answers: Mapping[str, Array], full: LinearFit, live: LinearFit, one_more: LinearFit | None
) -> Iterator[tuple[str, str, float]]:
    """Yield method, metric and value of all figures of one data set."""
    for method, theta in answers.items():
        yield method, Metric.L2, l2_ratio(theta, full.theta, live.theta)
        yield method, Metric.LARGEST_ERROR, relative_error(theta, live.theta)
    distance = float(np.linalg.norm(full.theta - live.theta))
    yield Method.FULL_MODEL, Metric.BASELINE_DISTANCE, distance
    if one_more is not None:
        for method, name in ((Method.INFLUENCE, ONE_TOO_MANY), (Method.PRU, PRU_ONE_TOO_MANY)):
            yield name, Metric.L2, l2_ratio(answers[method], full.theta, one_more.theta)


def l2_tables(records: Sequence[Record]) -> dict[str, object]:
    """Return the table, and the authors' baseline."""
    ratios = [
        *beside_paper(Method.INFLUENCE, Metric.L2),
        *beside_paper(Method.PRU, Metric.L2),
        column("PRU, T_ij as printed", Method.PRU_PRINTED, Metric.L2),
        column("Newton", Method.NEWTON, Metric.L2),
        column("ours", Method.EXACT, Metric.L2),
        column("ours, largest relative error", Method.EXACT, Metric.LARGEST_ERROR, scientific),
    ]
    baselines = [
        column("paper inf", ONE_TOO_MANY, Metric.L2, of_paper(two_decimals)),
        column("inf, k + 1 left out", ONE_TOO_MANY, Metric.L2, two_decimals),
        column("inf, k left out", Method.INFLUENCE, Metric.L2, two_decimals),
        column("paper PRU", PRU_ONE_TOO_MANY, Metric.L2, of_paper(two_decimals)),
        column("PRU, k + 1 left out", PRU_ONE_TOO_MANY, Metric.L2, two_decimals),
    ]
    by_k_and_factor = partial(table, "k, factor", settings(records, "k", "outlier"), records)
    typical = where(records, outlier=1)
    largest = max(distinct(records, "outlier"))
    shares = where(records, outlier=largest, method=Method.INFLUENCE, metric=Metric.L2)
    return {
        "ratios": by_k_and_factor(ratios),
        "baselines": table("k", settings(records, "k"), typical, baselines),
        "share": np.mean([record.value for record in shares]),
    }


TABLE4 = Experiment(
    name="table4",
    cells=partial(_cells, "table4", 500.0, {"factors": list(_PAPER_L2)}),
    run_cell=partial(linear.run, "table4", _l2_trial, _PRINTED_L2, (Metric.BASELINE_DISTANCE,)),
    tables=l2_tables,
    checks=lambda records: [exact_within(records, " in all {} cells")],
)


def step_cells(quick: bool) -> list[Cell]:
    """Return one cell."""
    d, trials = (100, 3) if quick else (1500, 10)
    factors = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]
    plan = {"d": d, "factors": factors, "trials": trials}
    return [Cell("theorem k=1", plan, 0.3 if quick else 80.0)]


def _step_trial(plan: Mapping[str, Any], seed: int, trial: int) -> list[Sample]:
    """Delete one row times a growing factor."""
    d = plan["d"]
    X = linear.trial_rows(seed, ROWS_PER_COLUMN * d, d, trial)
    y = linear_targets(generator(seed, "theorem", "targets", d, trial), X)
    x, target = X[0].copy(), float(y[0])
    rest = X[1:].T @ X[1:]
    live = retrain(X[1:], y[1:], LINEAR_RIDGE, rest)
    c = float(x @ (live.inverse @ x))
    made: list[Sample] = []
    for factor in plan["factors"]:
        X[0], y[0] = x * factor, target * factor
        full = retrain(X, y, LINEAR_RIDGE, rest + np.outer(X[0], X[0]))
        exact = float(np.linalg.norm(live.theta - full.theta))
        answers = linear.answers(X, y, 1, full, live, (Method.INFLUENCE, Method.PRU, Method.EXACT))
        for method, theta in answers.items():
            step = float(np.linalg.norm(theta - full.theta))
            error = relative_error(theta, live.theta)
            made.append(Sample(1, None, factor, method, STEP, step / exact))
            made.append(Sample(1, None, factor, method, Metric.LARGEST_ERROR, error))
        made.append(Sample(1, None, factor, THEORY, STEP, 1 / (1 + c * factor**2)))
    return made


def step_tables(records: Sequence[Record]) -> dict[str, object]:
    """Return the measured steps beside the theory's."""
    columns = [
        column("influence", Method.INFLUENCE, STEP, scientific),
        column("theory", THEORY, STEP, scientific),
        column("PRU", Method.PRU, STEP, as_number(".6f")),
        column("ours", Method.EXACT, STEP, as_number(".6f")),
    ]
    return {"steps": table("factor", settings(records, "outlier"), records, columns)}


def step_checks(records: Sequence[Record]) -> list[Check]:
    """Check the rate of the theorem and that ours does not care."""
    theory = {r.outlier: r.value for r in where(records, method=THEORY)}
    measured = where(records, method=Method.INFLUENCE, metric=STEP)
    deviations = [abs(r.value / theory[r.outlier] - 1) for r in measured]
    said = "the influence step follows 1 / (1 + c factor^2)"
    return [
        largest_under(_RATE_TOLERANCE, deviations, said, "largest deviation"),
        exact_within(records),
    ]


def draw_steps(records: Sequence[Record], images: Path) -> None:
    """Draw the steps."""
    made, axes = figure()
    for method, style, name in (
        (Method.INFLUENCE, "o", "influence, measured"),
        (THEORY, "-", THEORY),
        (Method.PRU, "s--", "PRU"),
        (Method.EXACT, "^--", "ours (exact)"),
    ):
        of = where(records, method=method, metric=STEP)
        axes.loglog([r.outlier for r in of], [r.value for r in of], style, label=name)
    axes.set_xlabel("factor of the deleted row")
    axes.set_ylabel("length of the step / exact step")
    axes.set_title("As the outlier grows, the influence method stops updating")
    axes.legend()
    save(made, images / "paper-theorem")


THEOREM = Experiment(
    name="theorem",
    cells=step_cells,
    run_cell=partial(linear.run, "theorem", _step_trial, {}, (STEP,)),
    tables=step_tables,
    checks=step_checks,
    draw=draw_steps,
)
