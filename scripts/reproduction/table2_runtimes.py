"""Table 2: time of each method as a share of exact retraining, and the absolute seconds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.engine.fit.factor import lower_triangle, solve_with
from lethe.engine.fit.precompute import BLOCK_ROWS
from reproduction import ours, published, runtimes_page
from reproduction.data import ROWS_PER_COLUMN, Array, gaussian_rows, linear_targets
from reproduction.experiment import Cell, Experiment, Progress, generator
from reproduction.metrics import relative_error
from reproduction.records import Record, quartiles
from reproduction.retraining import LINEAR_RIDGE, retrain
from reproduction.runtimes_page import (
    ERROR,
    INFLUENCE,
    MEMORY,
    OURS,
    PAPER_RATIO,
    PAPER_SECONDS,
    PRU,
    PRU_PUBLISHED,
    RATIO,
    RATIO_WOODBURY,
    SECONDS,
    TABLE,
)

Index: TypeAlias = NDArray[np.intp]
Call: TypeAlias = Callable[[Array, Array, Array, Index, Array], Array]


@dataclass(frozen=True, slots=True)
class _Model:
    """A fitted model with the precomputation of every method (the hat matrix apart)."""

    X: Array
    y: Array
    theta: Array
    gram: Array
    inverse: Array
    W: Array


_FAST: Mapping[str, Call] = {
    INFLUENCE: published.influence,
    "influence by dual rows": ours.influence_from_dual_rows,
    PRU_PUBLISHED: published.projective_residual_update,
    PRU: ours.pru_from_dual_rows,
    "pru by gram matrix": ours.pru_by_gram_matrix,
    OURS: ours.exact_from_dual_rows,
}
_SLOW: Mapping[str, Call] = {
    "exact as timed": published.exact_as_timed,
    "exact by woodbury": published.exact,
}
_WITH_INVERSE = (INFLUENCE, *_SLOW)
_EXACT_ONES = ("exact as timed", "exact by woodbury", OURS)


def cells(quick: bool) -> list[Cell]:
    """Return one cell for each d."""
    sizes = (60, 120) if quick else (1000, 1500, 2000, 2500, 3000)
    k = [1, 5, 10] if quick else [1, 5, 10, 25, 50, 100]
    repeats = 5 if quick else 30
    return [
        Cell(f"{TABLE} d={d}", {"d": d, "k": k, "repeats": repeats}, 1.3e-8 * d**3) for d in sizes
    ]


def run_cell(cell: Cell, seed: int, progress: Progress) -> list[Record]:
    """Time all methods, in turns, at one d."""
    d, repeats = cell.plan["d"], cell.plan["repeats"]
    n = ROWS_PER_COLUMN * d
    rng = generator(seed, TABLE, d)
    model = _fit(rng, n, d)
    progress(0.2)
    blank = Record(
        table=TABLE, d=d, n=n, k=0, method="", metric="", value=0.0, ridge=LINEAR_RIDGE, samples=1
    )
    records = _memory(blank, model)
    sizes = cell.plan["k"]
    for done, k in enumerate(sizes):
        begin, share = 0.2 + 0.8 * done / len(sizes), 0.8 / len(sizes)

        def within(part: float, begin: float = begin, share: float = share) -> None:
            progress(begin + share * part)

        seconds = _time(model, rng, k, repeats, within)
        errors = _errors(model, rng, k)
        records += _records(blank.model_copy(update={"k": k}), seconds, errors)
    return records


def _fit(rng: np.random.Generator, n: int, d: int) -> _Model:
    X = gaussian_rows(rng, n, d)
    y = linear_targets(rng, X)
    gram = X.T @ X
    fitted = retrain(X, y, LINEAR_RIDGE, gram)
    A = gram.copy()
    A[np.diag_indices_from(A)] += LINEAR_RIDGE
    inverse: Array = np.linalg.inv(A).astype(np.float64, copy=False)
    return _Model(X, y, fitted.theta, gram, inverse, _dual_rows(A, X))


def _dual_rows(A: Array, X: Array) -> Array:
    """Return W = X A^-1 as the engine makes it, without its verified eigenvalue bound."""
    L = lower_triangle(A)
    W = np.empty_like(X)
    for begin in range(0, len(X), BLOCK_ROWS):
        W[begin : begin + BLOCK_ROWS] = solve_with(L, X[begin : begin + BLOCK_ROWS].T).T
    return W


def _precomputation(model: _Model, name: str, hat_rows: Array) -> Array:
    if name == PRU_PUBLISHED:
        return hat_rows
    return model.inverse if name in _WITH_INVERSE else model.W


def _time(
    model: _Model, rng: np.random.Generator, k: int, repeats: int, progress: Progress
) -> dict[str, list[float]]:
    """Time each method once a round, on rows drawn for the round; the fast ones in turning order.

    Before its timed call each fast method is called, untimed, on the rows of the round before:
    the program is warm then, and the rows are not.
    """
    samples: dict[str, list[float]] = {name: [] for name in (*_SLOW, *_FAST)}
    names = list(_FAST)
    before = _draw(model, rng, k)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for round_ in range(repeats):
            now = _draw(model, rng, k)
            for name, call in _SLOW.items():
                samples[name].append(_seconds(model, name, call, *now))
            turn = round_ % len(names)
            for name in names[turn:] + names[:turn]:
                _seconds(model, name, _FAST[name], *before)
                samples[name].append(_seconds(model, name, _FAST[name], *now))
            before = now
            progress((round_ + 1) / repeats)
    finally:
        if enabled:
            gc.enable()
    return samples


def _draw(model: _Model, rng: np.random.Generator, k: int) -> tuple[Index, Array]:
    """Return rows to delete, and their rows of the hat matrix (k x n)."""
    deleted = rng.choice(len(model.y), k, replace=False)
    return deleted, model.W[deleted] @ model.X.T


def _seconds(model: _Model, name: str, call: Call, deleted: Index, hat_rows: Array) -> float:
    given = _precomputation(model, name, hat_rows)
    begin = time.perf_counter()
    call(model.X, model.y, model.theta, deleted, given)
    return time.perf_counter() - begin


def _errors(model: _Model, rng: np.random.Generator, k: int) -> dict[str, float]:
    """Return the relative error to retraining of the methods that claim to be exact."""
    deleted, hat_rows = _draw(model, rng, k)
    live = np.ones(len(model.y))
    live[deleted] = 0.0
    rows = model.X[deleted]
    # The Gram matrix only steers the refinement: the gradient is taken from the live rows.
    retrained = retrain(model.X, model.y, LINEAR_RIDGE, model.gram - rows.T @ rows, live).theta
    errors = {}
    for name in _EXACT_ONES:
        call = {**_SLOW, **_FAST}[name]
        given = _precomputation(model, name, hat_rows)
        theta = call(model.X, model.y, model.theta, deleted, given)
        errors[name] = relative_error(theta, retrained)
    return errors


def _memory(blank: Record, model: _Model) -> list[Record]:
    """Return the bytes of each precomputation: the hat matrix computed, the rest measured."""
    n = len(model.y)
    sizes = {
        "hat matrix (computed)": 8 * n * n,
        "inverse Hessian": model.inverse.nbytes,
        "dual rows": model.W.nbytes,
    }
    return [
        blank.model_copy(update={"method": name, "metric": MEMORY, "value": float(size)})
        for name, size in sizes.items()
    ]


def _records(
    blank: Record, seconds: Mapping[str, Sequence[float]], errors: Mapping[str, float]
) -> list[Record]:
    medians = {name: float(np.median(samples)) for name, samples in seconds.items()}
    made = []
    for name, samples in seconds.items():
        common = {"method": name, "samples": len(samples)}
        paper = PAPER_SECONDS.get((blank.d, blank.k)) if name == "exact as timed" else None
        made.append(
            blank.model_copy(
                update=common
                | {
                    "metric": SECONDS,
                    "value": medians[name],
                    "spread": quartiles(samples),
                    "paper": paper,
                }
            )
        )
        for metric, baseline in ((RATIO, "exact as timed"), (RATIO_WOODBURY, "exact by woodbury")):
            ratio = medians[name] / medians[baseline]
            update = common | {"metric": metric, "value": ratio}
            if metric == RATIO:
                update["paper"] = PAPER_RATIO.get((name, blank.d, blank.k))
            made.append(blank.model_copy(update=update))
    for name, error in errors.items():
        made.append(
            blank.model_copy(update={"method": name, "metric": ERROR, "value": error, "samples": 1})
        )
    return made


def draw(records: Sequence[Record], images: Path) -> None:
    """Draw time against d."""
    runtimes_page.draw(records, images)


EXPERIMENT = Experiment(
    name=TABLE,
    title="Table 2: runtimes, linear",
    cells=cells,
    run_cell=run_cell,
    render=runtimes_page.render,
    checks=runtimes_page.checks,
    timing_checks=runtimes_page.timing_checks,
    draw=draw,
    timed=True,
)
