"""One battery that every method must pass, for every model, family of data and route.

A new method, model or family is one line of the tables below (and a family's maker in
tests/support/families.py). What must come out is computed by an observer (tests/support/battery.py)
with two oracles that share no code with the engine nor with each other: QR in extended precision,
and SciPy with scikit-learn. A check is a function of a `Case`; each runs for every case.

Worst figures are logged: ``pytest tests/proof/properties/test_battery.py --log-cli-level=info``.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from lethe.engine import RefreshSize
from lethe.engine.deletion.generation import distance_to_exact
from lethe.engine.deletion.methods import METHODS as ENGINE_METHODS
from tests.support.battery import ORACLES, QR, ROUTES, Model, Observer, Oracle, Route
from tests.support.families import Array, Data, Index, extremes, families
from tests.support.oracles import distance

LOG = logging.getLogger(__name__)

METHODS: dict[str, Callable[[Observer, Oracle], Array]] = {
    "exact": Observer.exact,
    "pru": Observer.pru,
    "influence": Observer.influence,
}
MODELS = (
    Model("linear", "linear"),
    Model("linear-weighted", "linear", weighted=True, other_intercept=True),
    Model("linear-3-targets", "linear", m=3),
    Model("logistic", "logistic"),
    Model("logistic-weighted", "logistic", weighted=True, other_intercept=True),
    Model("logistic-3-classes", "logistic", m=3),
    Model("poisson", "poisson"),
    Model("poisson-weighted", "poisson", weighted=True, other_intercept=True),
)
FAMILIES = {kind: families(kind) + extremes(kind) for kind in ("linear", "logistic", "poisson")}

TOLERANCE = 1e-12
"""Of |theta|, where the data are conditioned well. Measured: 1e-13 at worst."""

OF_COUNTS = 1e-11
"""The same of Poisson models, whose curvatures span e^-4 to e^4. Measured: 1.05e-12 at worst."""

ILL_CONDITIONED = {
    "badly_scaled": 1e-10,  # condition 1e6; measured 2e-11
    "high_leverage": 1e-9,  # rows of length 1 and of 100; measured 3e-10 (1e-12 by solves)
    "injected_tiny_ridge": 1e-8,  # 1 - leverage = 3e-7 costs seven digits; measured 5e-10
}
POLISHED = {"near_separable": 1e-5}
"""Of |theta|, what a polish may leave; elsewhere it reaches what it aims at, 1e-10."""

UNDERESTIMATED, OVERESTIMATED = 0.5, 10.0
"""Estimate over true error with every row a sentinel: sampling left out. Measured: .54 to 8.8."""

OVERESTIMATED_BY_MORE = {"near_separable", "injected_tiny_ridge", "high_leverage"}
"""Up to 640 times: the quadratic model itself no longer holds, and a refresh is ordered."""


@dataclass(frozen=True)
class Case:
    """A method, a model and a family."""

    method: str
    model: Model
    family: str

    @functools.cached_property
    def data(self) -> Data:
        return self.model.started(self.family).data

    @property
    def deleted(self) -> int:
        return len(self.data.deleted)

    @property
    def tolerance(self) -> float:
        well = OF_COUNTS if self.model.kind == "poisson" else TOLERANCE
        return ILL_CONDITIONED.get(self.family, well)

    def run(self, batches: Iterable[int], route: str = "stream", rows: Index | None = None) -> Run:
        """Return a fresh run that has deleted batches of these sizes."""
        run = Run(self, route, self.data.deleted if rows is None else rows)
        for k in batches:
            run.delete(k)
        return run


class Run:
    """One way through a case: the engine on its route, the observer beside it."""

    def __init__(self, case: Case, route: str, rows: Index) -> None:
        self.case = case
        self.route: Route = ROUTES[route](case.model.started(case.family))
        self.observer = Observer(case.model, case.family, self.route)
        self.size = float(np.linalg.norm(self.route.published()))
        self._rest = rows

    def delete(self, k: int) -> None:
        batch, self._rest = self._rest[:k], self._rest[k:]
        self.route.delete(batch, self.case.method)
        self.observer.deleted(batch)

    def gap(self, expected: Array) -> float:
        """Return |published - expected| over |theta|."""
        scale = max(self.size, float(np.linalg.norm(expected)))
        gap = float(np.linalg.norm(self.route.published() - expected)) / scale
        WORST[self.case.family] = max(WORST.get(self.case.family, 0.0), gap)
        return gap

    def true_error(self) -> float:
        return distance(self.route.published(), self.observer.optimum().astype(np.longdouble))

    def assert_published_as_the_paper_says(self) -> None:
        for name, oracle in ORACLES.items():
            expected = METHODS[self.case.method](self.observer, oracle)
            assert self.gap(expected) <= self.case.tolerance, name

    def assert_bound_holds(self) -> None:
        error = self.route.error()
        assert error.bound is not None or self.case.data.kind != "linear"
        assert error.bound is None or self.true_error() <= error.bound

    def refresh(self, size: RefreshSize) -> None:
        """Refresh: a small one publishes the exact answer, a large one the optimum itself."""
        exact, tolerance = self.observer.exact(QR), self.case.tolerance
        if size in (RefreshSize.POLISH, RefreshSize.REBUILD):
            exact = self.observer.optimum().astype(np.float64)
        if size is RefreshSize.POLISH:
            tolerance = max(tolerance, POLISHED.get(self.case.family, 1e-10))
        self.route.refresh(size)
        self.observer.refreshed(size, self.route)
        assert self.gap(exact) <= tolerance
        assert distance_to_exact(self.route.stream) == 0.0
        self.assert_bound_holds()


WORST: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def worst() -> Iterator[None]:
    yield
    LOG.info("worst gaps: %s", ", ".join(f"{name} {gap:.0e}" for name, gap in WORST.items()))


def sizes_of_batches(k: int) -> list[list[int]]:
    return [[k], [1] * k, [1, k - 3, 2], [k // 2, 0, k - k // 2]]


def squares(route: Route) -> Array:
    """Return V^T V of each block, h x d x d."""
    V, d = route.stream.V.array, len(route.stream.anchor)
    blocks = [V[:, start : start + d] for start in range(0, V.shape[1], d)]
    return np.array([one.T @ one for one in blocks])


def keeps_every_class(model: Model, family: str) -> bool:
    """Return whether rows of each class are left at the end; without, there is no minimiser."""
    if model.kind == "linear" or model.m == 1:
        return True
    data = model.started(family).data
    return bool(data.y[data.live(len(data.deleted))].any(axis=0).all())


# -- the checks --------------------------------------------------------------------------------


def check_one_batch_of_any_size(case: Case) -> None:
    """k = 0, 1, 2, half and all of the rows (more than d, where there are so many)."""
    for k in (0, 1, 2, case.deleted // 2, case.deleted):
        case.run([k]).assert_published_as_the_paper_says()
    case.run([case.deleted], "library").assert_published_as_the_paper_says()


def check_order_and_batches_do_not_matter(case: Case) -> None:
    one, rng = case.run([case.deleted]).route, np.random.default_rng(5)
    others = [case.run(sizes) for sizes in sizes_of_batches(case.deleted)[1:]]
    cuts = rng.multinomial(case.deleted, np.ones(7) / 7)
    others.append(case.run([int(k) for k in cuts], rows=rng.permutation(case.data.deleted)))
    others.append(case.run([1] * case.deleted, rows=case.data.deleted[::-1]))
    whole = squares(one)
    for other in others:
        stream = other.route.stream
        assert other.gap(one.published()) <= case.tolerance
        moved = float(np.linalg.norm(stream.theta_exact - one.stream.theta_exact))
        assert moved <= case.tolerance * other.size
        assert np.linalg.norm(squares(other.route) - whole) <= case.tolerance * float(
            np.linalg.norm(whole)
        )
        assert len(stream.Q) == len(one.stream.Q)


def check_v_gives_the_inverse_and_q_the_span(case: Case) -> None:
    """A_t^-1 = A_b^-1 + V^T V; Q is orthonormal, and spans what was deleted since the anchor."""
    run = case.run([1, case.deleted // 2])
    stream = run.route.stream
    for c, A in enumerate(run.observer.hessians()):
        one = np.eye(len(A))
        inverse = run.route.factor.block(c).solve(one) + squares(run.route)[c]
        residual = np.linalg.norm((A @ inverse - one).astype(np.float64))
        assert residual <= case.tolerance * np.linalg.norm(A.astype(np.float64))
    Q, U = stream.Q.array, case.data.design[~run.observer.live]
    if case.method != "pru":
        assert len(Q) == 0
        return
    np.testing.assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=1e-12)
    lengths = np.linalg.norm(U, axis=1, keepdims=True) + 1e-300
    assert len(Q) == np.linalg.matrix_rank(U / lengths)
    np.testing.assert_allclose((U - (U @ Q.T) @ Q) / lengths, 0.0, atol=1e-11)


def check_the_distance_to_exact_is_as_stated(case: Case) -> None:
    run = case.run([2, case.deleted // 2])
    stated = distance_to_exact(run.route.stream)
    assert stated == 0.0 or case.method != "exact"
    for oracle in ORACLES.values():
        true = float(np.linalg.norm(run.route.published() - run.observer.exact(oracle)))
        assert abs(stated - true) <= case.tolerance * run.size


def check_injected_weight_comes_out(case: Case) -> None:
    """The feature injection test: 0.00, but for what influence and the projection leave."""
    column = case.data.injected
    if column is None:
        return
    for sizes in sizes_of_batches(case.deleted):
        run = case.run(sizes)
        before, stream = np.abs(run.observer.anchor[column]).max(), run.route.stream
        assert np.abs(stream.theta_exact[column]).max() <= 1e-6 * before
        spans_everything = len(stream.Q) == len(stream.anchor)
        if case.method == "exact" or (case.method == "pru" and spans_everything):
            assert np.abs(run.route.published()[column]).max() <= 1e-6 * before


def check_bounds_and_estimates(case: Case) -> None:
    """A bound is never below the error; an estimate is within its factors of it."""
    run = case.run([])
    for _ in range(6):
        run.delete(case.deleted // 6)
        run.assert_bound_holds()
        true, error = run.true_error(), run.route.error()
        # Below that, there is only rounding; of an unknown error nothing is said.
        if error.bound is None and error.value is not None and true > 1e-8 * run.size:
            assert error.value >= UNDERESTIMATED * true
            loose = case.family in OVERESTIMATED_BY_MORE
            assert loose or error.value <= OVERESTIMATED * true


def check_refresh_of_each_size(case: Case) -> None:
    for size in RefreshSize:
        run = case.run([case.deleted // 3])
        run.refresh(size)
        run.delete(case.deleted // 3)
        run.assert_published_as_the_paper_says()
        run.delete(case.deleted)
        run.assert_published_as_the_paper_says()
        run.assert_bound_holds()


def check_any_stream_by_the_library(case: Case) -> None:
    """Batches of 1 to 6 rows, with refreshes of any size in between."""
    run = case.run([], "library")
    rng = np.random.default_rng([*case.family.encode(), *case.model.name.encode()])
    while run.observer.live[case.data.deleted].any():
        run.delete(int(rng.integers(1, 7)))
        if rng.random() < 0.4:
            run.assert_published_as_the_paper_says()
            run.refresh(RefreshSize(rng.choice(list(RefreshSize))))
    run.assert_published_as_the_paper_says()
    run.assert_bound_holds()


def check_nothing_that_went_before_is_written_to(case: Case) -> None:
    run = case.run([case.deleted // 2])
    before, data = run.route.stream, case.data
    arrays = (before.theta_exact, before.published, before.anchor, before.V.array, before.Q.array)
    kept = [array.copy() for array in (*arrays, data.X, data.y)]
    run.delete(0)
    assert run.route.stream is before
    run.delete(case.deleted)
    for array, copy in zip((*arrays, data.X, data.y), kept, strict=True):
        np.testing.assert_array_equal(array, copy)
    after = run.route.stream
    for array in (after.published, after.theta_exact, after.V.array, after.Q.array):
        assert np.isfinite(array).all()
    assert np.isfinite([after.residual, after.v_trace, after.carried, after.v_seconds]).all()


CHECKS: list[Callable[[Case], None]] = [
    check
    for name, check in inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    if name.startswith("check_")
]
CASES = [
    pytest.param(Case(method, model, family), id=f"{method}-{model.name}-{family}")
    for model in MODELS
    for family in FAMILIES[model.kind]
    if keeps_every_class(model, family)
    for method in METHODS
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("case", CASES)
def test_battery(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


def test_every_method_of_the_engine_is_in_the_battery() -> None:
    assert METHODS.keys() == ENGINE_METHODS.keys()


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_two_oracles_agree(kind: str) -> None:
    """Neither could vouch for the engine if they did not; agreement to 1e-13 x condition."""
    for family in FAMILIES[kind]:
        observer = Observer(
            model := Model(kind, kind), family, ROUTES["stream"](model.started(family))
        )
        observer.deleted(observer.data.deleted)
        one, other = (observer.optimum(oracle).astype(np.float64) for oracle in ORACLES.values())
        assert np.linalg.norm(one - other) <= 1e-12 * np.linalg.norm(one), family
