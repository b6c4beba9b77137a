"""Table 2: time of each method as a share of exact retraining, and the absolute seconds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.records import slope
from harness.results import where
from lethe.engine.fit.factor import lower_triangle, solve_with
from lethe.engine.fit.precompute import BLOCK_ROWS
from paper import ours, published
from paper.data import ROWS_PER_COLUMN, Array, Index, gaussian_rows, linear_targets
from paper.experiment import (
    Cell,
    Check,
    Experiment,
    Method,
    Metric,
    Progress,
    exact_within,
    generator,
    relative_error,
)
from paper.page import column, distinct, figure, of_paper, save, table
from paper.records import Record, quartiles
from paper.retraining import LINEAR_RIDGE, retrain

TABLE = "table2"
SECONDS = "seconds"
RATIO = "share of exact as timed"
RATIO_WOODBURY = "share of exact by woodbury"
MEMORY = "bytes of the precomputation"

TIMED = "exact as timed"
WOODBURY = "exact by woodbury"
INFLUENCE = "influence as published"
PRU = "pru from dual rows"


class _Timed(NamedTuple):
    """A method: its function, what of the precomputation it is handed, and its heading."""

    call: Callable[[Array, Array, Array, Index, Array], Array]
    handed: str
    heading: str


_METHODS: Mapping[str, _Timed] = {
    TIMED: _Timed(published.exact_as_timed, "inverse", "exact as timed"),
    WOODBURY: _Timed(published.exact, "inverse", "exact, O(k d^2)"),
    INFLUENCE: _Timed(published.influence, "inverse", "inf"),
    Method.PRU_PUBLISHED: _Timed(published.projective_residual_update, "H", "PRU as published"),
    PRU: _Timed(ours.pru_from_dual_rows, "W", "PRU from dual rows"),
    "pru by gram matrix": _Timed(ours.pru_by_gram_matrix, "W", "PRU by Gram matrix"),
    "influence by dual rows": _Timed(ours.influence_from_dual_rows, "W", "inf by dual rows"),
    Method.EXACT: _Timed(ours.exact_from_dual_rows, "W", "ours"),
}
_SLOW, _FAST = list(_METHODS)[:2], list(_METHODS)[2:]
_ASIDE = ("pru by gram matrix", "influence by dual rows")  # in the results alone

_SIZES = (1000, 1500, 2000, 2500, 3000)
_PAPER_RATIOS = {  # k: (influence, PRU), by d
    1: ((0.0085, 0.0053, 0.0041, 0.0036, 0.0028), (0.0062, 0.0017, 0.0008, 0.0004, 0.0003)),
    5: ((0.0092, 0.0052, 0.0043, 0.0033, 0.0028), (0.0112, 0.0035, 0.0019, 0.0011, 0.0007)),
    10: ((0.0098, 0.0054, 0.0045, 0.0033, 0.0031), (0.0155, 0.0049, 0.0025, 0.0015, 0.0010)),
    25: ((0.0105, 0.0058, 0.0050, 0.0035, 0.0032), (0.0365, 0.0121, 0.0067, 0.0037, 0.0026)),
    50: ((0.0122, 0.0065, 0.0051, 0.0036, 0.0033), (0.0794, 0.0273, 0.0151, 0.0085, 0.0059)),
}
_PAPER_SECONDS = {
    1: (0.08, 0.27, 0.67, 1.19, 2.25),
    5: (0.08, 0.31, 0.67, 1.33, 2.22),
    10: (0.08, 0.31, 0.63, 1.33, 2.04),
    25: (0.08, 0.32, 0.62, 1.36, 2.06),
    50: (0.09, 0.33, 0.64, 1.40, 2.11),
}
_PRINTED = {
    (d, k, method, metric): figure
    for k, (influence, pru) in _PAPER_RATIOS.items()
    for method, metric, figures in (
        (INFLUENCE, RATIO, influence),
        (Method.PRU_PUBLISHED, RATIO, pru),
        (TIMED, SECONDS, _PAPER_SECONDS[k]),
    )
    for d, figure in zip(_SIZES, figures, strict=True)
}

_LARGEST_K_AGAINST_INFLUENCE = 50


def cells(quick: bool) -> list[Cell]:
    """Return one cell for each d."""
    sizes = (60, 120) if quick else _SIZES
    k = [1, 5, 10] if quick else [1, 5, 10, 25, 50, 100]
    repeats = 5 if quick else 30
    return [
        Cell(f"{TABLE} d={d}", {"d": d, "k": k, "repeats": repeats}, 1.3e-8 * d**3) for d in sizes
    ]


def run_cell(cell: Cell, seed: int, progress: Progress) -> list[Record]:
    """Time all methods, in turns, at one d."""
    d, sizes = cell.plan["d"], cell.plan["k"]
    rng = generator(seed, TABLE, d)
    model = _fit(rng, ROWS_PER_COLUMN * d, d)
    common = {"table": TABLE, "d": d, "n": ROWS_PER_COLUMN * d, "ridge": LINEAR_RIDGE}
    records = list(_memory(common, model))
    for done, k in enumerate(sizes):
        progress(0.2 + 0.8 * done / len(sizes))
        seconds = _time(model, rng, k, cell.plan["repeats"])
        records += _records({**common, "k": k}, seconds, _errors(model, rng, k))
    return records


@dataclass(frozen=True, slots=True)
class _Model:
    """A fitted model with the precomputation of every method (the hat matrix apart)."""

    X: Array
    y: Array
    theta: Array
    gram: Array
    inverse: Array
    W: Array

    def draw(self, rng: np.random.Generator, k: int) -> tuple[Index, Array]:
        """Return rows to delete, and their rows of the hat matrix (k x n)."""
        deleted = rng.choice(len(self.y), k, replace=False)
        return deleted, self.W[deleted] @ self.X.T

    def time(self, name: str, deleted: Index, hat_rows: Array) -> tuple[float, Array]:
        """Return the seconds that a method takes, and its answer."""
        call, handed, _ = _METHODS[name]
        precomputation = hat_rows if handed == "H" else getattr(self, handed)
        begin = time.perf_counter()
        theta = call(self.X, self.y, self.theta, deleted, precomputation)
        return time.perf_counter() - begin, theta


def _fit(rng: np.random.Generator, n: int, d: int) -> _Model:
    X = gaussian_rows(rng, n, d)
    y = linear_targets(rng, X)
    gram = X.T @ X
    fitted = retrain(X, y, LINEAR_RIDGE, gram)
    A = gram.copy()
    A[np.diag_indices_from(A)] += LINEAR_RIDGE
    inverse: Array = np.linalg.inv(A).astype(np.float64, copy=False)
    # W = X A^-1 as the engine makes it, without its verified eigenvalue bound.
    L, W = lower_triangle(A), np.empty_like(X)
    for begin in range(0, n, BLOCK_ROWS):
        W[begin : begin + BLOCK_ROWS] = solve_with(L, X[begin : begin + BLOCK_ROWS].T).T
    return _Model(X, y, fitted.theta, gram, inverse, W)


def _time(model: _Model, rng: np.random.Generator, k: int, repeats: int) -> dict[str, list[float]]:
    """Time each method once a round, on rows drawn for the round; the fast ones in turning order.

    Before its timed call each fast method is called, untimed, on the rows of the round before:
    the program is warm then, and the rows are not.
    """
    samples: dict[str, list[float]] = {name: [] for name in _METHODS}
    before = model.draw(rng, k)
    gc.disable()
    try:
        for round_ in range(repeats):
            now = model.draw(rng, k)
            turn = round_ % len(_FAST)
            for name in _SLOW + _FAST[turn:] + _FAST[:turn]:
                if name in _FAST:
                    model.time(name, *before)
                samples[name].append(model.time(name, *now)[0])
            before = now
    finally:
        gc.enable()
    return samples


def _errors(model: _Model, rng: np.random.Generator, k: int) -> dict[str, float]:
    """Return the relative error to retraining of the methods that claim to be exact."""
    deleted, hat_rows = model.draw(rng, k)
    live = np.ones(len(model.y))
    live[deleted] = 0.0
    rows = model.X[deleted]
    # The Gram matrix only steers the refinement: the gradient is taken from the live rows.
    retrained = retrain(model.X, model.y, LINEAR_RIDGE, model.gram - rows.T @ rows, live).theta
    answers = {name: model.time(name, deleted, hat_rows)[1] for name in (*_SLOW, Method.EXACT)}
    return {name: relative_error(theta, retrained) for name, theta in answers.items()}


def _memory(common: Mapping[str, Any], model: _Model) -> Iterator[Record]:
    """Yield the bytes of each precomputation: the hat matrix computed, the rest measured."""
    for name, size in (
        ("hat matrix (computed)", 8 * len(model.y) ** 2),
        ("inverse Hessian", model.inverse.nbytes),
        ("dual rows", model.W.nbytes),
    ):
        yield Record(**common, k=0, method=name, metric=MEMORY, value=size, samples=1)


def _records(
    common: Mapping[str, Any], seconds: Mapping[str, Sequence[float]], errors: Mapping[str, float]
) -> Iterator[Record]:
    medians = {name: float(np.median(samples)) for name, samples in seconds.items()}
    for name, samples in seconds.items():
        for metric, value in (
            (SECONDS, medians[name]),
            (RATIO, medians[name] / medians[TIMED]),
            (RATIO_WOODBURY, medians[name] / medians[WOODBURY]),
        ):
            yield Record(
                **common,
                method=name,
                metric=metric,
                value=value,
                spread=quartiles(samples) if metric == SECONDS else None,
                paper=_PRINTED.get((common["d"], common["k"], name, metric)),
                samples=len(samples),
            )
    for name, error in errors.items():
        yield Record(**common, method=name, metric=Metric.ERROR, value=error, samples=1)


def tables(records: Sequence[Record]) -> dict[str, object]:
    """Return the shares of both baselines, the absolute times, the memory, and the exponents."""
    rows = [{"k": r.k, "d": r.d} for r in where(records, method=Method.EXACT, metric=SECONDS)]
    rows.sort(key=lambda row: (row["k"], row["d"]))
    headings = [(name, _METHODS[name].heading) for name in _FAST if name not in _ASIDE]
    ratios = [column(heading, name, RATIO, _share) for name, heading in headings]
    ratios.insert(1, column("paper PRU", Method.PRU_PUBLISHED, RATIO, of_paper(_share)))
    ratios.insert(0, column("paper inf", INFLUENCE, RATIO, of_paper(_share)))
    compared = [row for row in rows if row["k"] <= _LARGEST_K_AGAINST_INFLUENCE]
    memory = where(records, metric=MEMORY)
    sizes = [
        column("n", "dual rows", show=lambda record: str(record.n)),
        *(
            column(f"{name}, GB", name, show=lambda record: f"{record.value / 1e9:.3g}")
            for name in distinct(memory, "method")
        ),
    ]
    shares = _by_setting(records, Method.EXACT, RATIO_WOODBURY)
    printed = _printed_ratios(records)
    return {
        "shares": table("k, d", compared, records, ratios),
        "paper_slope": f"{slope(_SIZES, _PAPER_SECONDS[1]):.2f}",
        "timed_slope": _slope(records, TIMED),
        "woodbury_slope": _slope(records, WOODBURY),
        "under": sum(shares[setting] <= ratio for setting, ratio in printed.items()),
        "of": len(printed),
        "memory": table("d", [{"d": d} for d in sorted(distinct(memory, "d"))], memory, sizes),
    }


def _share(record: Record) -> str:
    return f"{record.value:.2g}" if record.value < 1e-4 else f"{record.value:.4f}"


def _by_setting(
    records: Sequence[Record], method: str, metric: str
) -> dict[tuple[int, int], float]:
    """Return the values of a method by k and d."""
    return {(r.k, r.d): r.value for r in where(records, method=method, metric=metric)}


def _printed_ratios(records: Sequence[Record]) -> dict[tuple[int, int], float]:
    """Return the ratios of the PRU that the paper prints, by k and d."""
    of = where(records, method=Method.PRU_PUBLISHED, metric=RATIO)
    return {(r.k, r.d): r.paper for r in of if r.paper is not None}


def _slope(records: Sequence[Record], method: str) -> str:
    of = where(records, method=method, metric=SECONDS, k=1)
    return f"{slope([r.d for r in of], [r.value for r in of]):.2f}" if len(of) > 1 else "-"


def checks(records: Sequence[Record]) -> list[Check]:
    """Check that ours is exact, and compare times in every cell; the worst cell is named."""
    own = _by_setting(records, Method.EXACT, SECONDS)
    influence, pru, published_pru = (
        _over(_by_setting(records, method, SECONDS), own)
        for method in (INFLUENCE, PRU, Method.PRU_PUBLISHED)
    )
    paper = _over(_printed_ratios(records), _by_setting(records, Method.EXACT, RATIO))
    most = _LARGEST_K_AGAINST_INFLUENCE
    some = [one for one in influence if one[1] <= most]
    return [
        exact_within(records, " in all {} cells"),
        _at_least(1.0, paper, "ours at or under the paper's printed PRU ratio"),
        _at_least(1.0, some, f"ours under influence as published (k <= {most})"),
        _at_least(2.0, pru, "ours 2 times faster than our vectorised PRU"),
        _at_least(8.0, published_pru, "ours 8 times faster than the PRU as published"),
    ]


def _over(
    theirs: Mapping[tuple[int, int], float], own: Mapping[tuple[int, int], float]
) -> list[tuple[float, int, int]]:
    """Return how many times ours theirs is, with k and d."""
    return [(value / own[k, d], k, d) for (k, d), value in theirs.items()]


def _at_least(limit: float, found: Sequence[tuple[float, int, int]], sentence: str) -> Check:
    if not found:
        return Check(True, f"{sentence}: no cell to compare", of_times=True)
    least, k, d = min(found)
    good = sum(ratio >= limit for ratio, _, _ in found)
    cells = f"{good} of {len(found)} cells (least: {least:.3g} times at k={k}, d={d})"
    return Check(good == len(found), f"{sentence} in {cells}", of_times=True)


def draw(records: Sequence[Record], images: Path) -> None:
    """Draw time against d, for the smallest k and for the largest that the paper prints."""
    shown = [k for k in sorted(distinct(records, "k")) if 0 < k <= 50]
    sizes = sorted(distinct(records, "d"))
    made, axes = figure(columns=2)
    for axis, k in zip(axes, (shown[0], shown[-1]), strict=True):
        for name, timed in _METHODS.items():
            seconds = _by_setting(records, name, SECONDS)
            bold = name == Method.EXACT
            axis.loglog(
                sizes,
                [seconds.get((k, d), np.nan) for d in sizes],
                "o-" if bold else "--" if "dual" in name or "gram" in name else "-",
                label=timed.heading,
                linewidth=2.5 if bold else 1.2,
            )
        axis.set_title(f"k = {k}")
        axis.set_xlabel("d (n = 10 d)")
        axis.set_xticks(sizes, [str(d) for d in sizes])
        axis.minorticks_off()
    axes[0].set_ylabel("seconds, median")
    axes[1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(made, images / "paper-runtimes")


EXPERIMENT = Experiment(
    name=TABLE,
    cells=cells,
    run_cell=run_cell,
    tables=tables,
    checks=checks,
    draw=draw,
)
