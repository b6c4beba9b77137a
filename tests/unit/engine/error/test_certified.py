from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm as gaussian

from lethe.engine.deletion.generation import Generation, Stream, begin
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.error import certified
from lethe.engine.error.certified import (
    Ledger,
    after_deletion,
    after_polish,
    begin_ledger,
    largest_eigenvalue,
    measure_polished,
    noise_share,
    spent,
    with_fresh_noise,
)
from lethe.engine.error.gaussian import draw_noise
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import Kind, Objective, Rows, norm
from lethe.engine.fit.precompute import Precomputation
from lethe.engine.refresh.blockwise import precompute_blocks
from lethe.engine.refresh.refreshes import adopt_polish, compact, disbelieve, polish_snapshot
from tests.support.families import Data, Index, families, make

KINDS = ("linear", "logistic")


class Certified:
    """A certified model of some data, and its ledger, as the workers keep them."""

    def __init__(self, data: Data, sigma: float, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.data = data
        self.rows = Rows(data.design, data.y, data.weight)
        noise = sigma * rng.standard_normal((data.design.shape[1], data.y.shape[1]))
        penalty = np.full(data.design.shape[1], data.ridge)
        self.live = np.ones(len(self.rows), dtype=np.bool_)
        self._begin(Objective(Kind(data.kind), penalty, noise))

    def _begin(self, objective: Objective) -> None:
        rows = self.rows.take(self.live)
        self.made: Precomputation = precompute_blocks(objective, rows)
        self.W = np.zeros((len(self.rows), self.made.dual_rows.shape[1]))
        self.W[self.live] = self.made.dual_rows
        self.generation: Generation
        self.stream: Stream
        self.generation, self.stream = begin(0, objective, self.made)
        self.factor = self.made.factor
        self.ledger: Ledger = begin_ledger(
            objective, rows, self.made.theta, self.made.dual_rows, self.factor
        )

    def delete(self, index: Index) -> Stream:
        rows = self.rows.take(index)
        before = self.stream
        done = delete(self.generation, before, rows, self.W[index], method_named("exact"))
        self.stream = done.stream
        self.ledger = after_deletion(self.ledger, self.generation, before, self.stream, rows)
        self.live[index] = False
        return before

    def polish(self, *, meanwhile: tuple[Index, ...] = ()) -> None:
        """Polish a snapshot, and delete these rows before its result is adopted."""
        stream, ledger = self.stream, self.ledger
        rows, W = self.rows.take(self.live), self.W[self.live]
        polished = polish_snapshot(self.generation, stream, self.factor, rows, W, target=1e-9)
        reference = measure_polished(ledger, self.generation, stream, polished.theta, rows)
        for index in meanwhile:
            self.delete(index)
        moved = self.stream.theta_exact - polished.theta_snapshot
        concurrent = sum(len(index) for index in meanwhile)
        self.ledger = after_polish(
            self.ledger, reference, moved, concurrent, self.generation.objective.kind
        )
        self.stream = adopt_polish(self.stream, polished, concurrent=concurrent)

    def compact(self) -> None:
        rows, W = self.rows.take(self.live), self.W[self.live]
        made = compact(self.generation, self.stream, self.factor, rows, W)
        self.generation, self.stream, self.factor = made.generation, made.stream, made.factor
        self.W[self.live] = made.dual_rows

    def rebuild(self) -> None:
        self._begin(with_fresh_noise(self.generation.objective, self.data.y.shape[1], 1.0))

    @property
    def spent(self) -> float:
        return spent(self.ledger, self.generation, self.stream)

    @property
    def residual(self) -> float:
        """|gradient| over the live rows, in extended precision, by code of its own."""
        rows, objective = self.rows.take(self.live), self.generation.objective
        X, theta = rows.X.astype(np.longdouble), self.stream.theta_exact.astype(np.longdouble)
        margin = X @ theta
        if objective.kind is Kind.LINEAR:
            error = margin - rows.y
        else:
            with np.errstate(over="ignore"):
                error = (1 - rows.y) / (1 + np.exp(-margin)) - rows.y / (1 + np.exp(margin))
        assert objective.linear is not None
        total = X.T @ (rows.weight[:, None] * error) + objective.penalty[:, None] * theta
        return norm((total + objective.linear).astype(np.float64))

    def check(self) -> float:
        """Check that nothing is left uncharged; return spent over residual."""
        true, charged = self.residual, self.spent
        assert true <= charged, f"{self.data.name}: {true:.3e} is left and {charged:.3e} charged"
        return charged / true


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_certified_once_the_correction_has_lost_its_digits(kind: str) -> None:
    """Whatever the ledger holds; a rebuild begins another."""
    model = Certified(make("benign", kind), sigma=1.0)
    model.delete(model.data.deleted[:3])
    assert model.check() >= 1.0
    model.stream = disbelieve(model.stream)
    assert math.isinf(model.spent)
    model.rebuild()
    assert model.check() >= 1.0


# -- terms --------------------------------------------------------------------------------------


def test_the_budget_is_sigma_epsilon_over_c() -> None:
    assert ObjectiveNoise(1.0, 1e-4, 10.0).budget == pytest.approx(2.280, abs=5e-4)
    assert ObjectiveNoise(0.5, 1e-4, 10.0).budget == pytest.approx(1.140, abs=5e-4)
    assert ObjectiveNoise(1.0, 1e-4, 20.0).budget == pytest.approx(4.561, abs=5e-4)


@pytest.mark.parametrize("delta", [0.49, 0.1, 1e-2, 1e-4, 1e-6, 1e-10])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
def test_accepted_terms_obey_the_exact_formula_of_the_gaussian_mechanism(
    epsilon: float, delta: float
) -> None:
    """A shift by the budget: delta(epsilon) of N(0, sigma^2), Balle and Wang 2018, theorem 8."""
    terms = ObjectiveNoise(epsilon, delta, 3.0)
    try:
        terms.check()
    except InvalidData:
        assert epsilon > 1.0
        return
    shift = terms.budget / terms.sigma
    low, high = -epsilon / shift - shift / 2, -epsilon / shift + shift / 2
    exact = gaussian.cdf(high) - math.exp(epsilon) * gaussian.cdf(low)
    assert exact <= delta


@pytest.mark.parametrize(
    "terms",
    [
        (0.0, 1e-4, 1.0),
        (math.inf, 1e-4, 1.0),
        (math.nan, 1e-4, 1.0),
        (1e-7, 1e-4, 1.0),
        (1.0, 1e-13, 1.0),
        (1.0, 0.0, 1.0),
        (1.0, 0.5, 1.0),
        (1.0, math.nan, 1.0),
        (1.0, 1e-4, 0.0),
        (1.0, 1e-4, math.inf),
        (40.0, 1e-4, 1.0),
    ],
)
def test_terms_that_the_theorem_does_not_cover_are_refused(
    terms: tuple[float, float, float],
) -> None:
    with pytest.raises(InvalidData, match="certify"):
        ObjectiveNoise(*terms).check()


def test_noise_is_gaussian_and_comes_from_the_source() -> None:
    source = np.random.default_rng(5).bytes
    noise = draw_noise((40_000, 1), 3.0, source)
    assert abs(noise.mean()) < 0.06
    assert noise.std() == pytest.approx(3.0, rel=0.02)
    assert np.mean(np.abs(noise) < 3.0) == pytest.approx(0.6827, abs=0.01)
    assert np.isfinite(draw_noise((4, 2), 1.0, lambda n: b"\xff" * n)).all()
    assert np.isfinite(draw_noise((4, 2), 1.0, lambda n: b"\0" * n)).all()
    assert not np.array_equal(draw_noise((3, 2), 1.0), draw_noise((3, 2), 1.0))


# -- the objective ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_minimises_the_perturbed_objective(kind: str) -> None:
    model = Certified(make("benign", kind), 2.0)
    objective, rows = model.generation.objective, model.rows
    assert objective.linear is not None
    plain = replace(objective, linear=None)
    theta = model.made.theta
    difference = objective.gradient(rows, theta) - plain.gradient(rows, theta)
    np.testing.assert_allclose(difference, objective.linear, atol=1e-12)
    tilt = float(np.sum(objective.linear * theta))
    assert objective.value(rows, theta) - plain.value(rows, theta) == pytest.approx(tilt)
    assert model.residual < 1e-10
    assert norm(fit(plain, rows).theta - theta) > 1e-3


@pytest.mark.parametrize("sigma", [0.3, 30.0, 3e4])
def test_of_a_linear_model_it_is_known_how_far_the_noise_moves_theta(sigma: float) -> None:
    model = Certified(make("benign", "linear"), sigma)
    plain = fit(replace(model.generation.objective, linear=None), model.rows).theta
    share = noise_share(model.generation.objective, model.factor, model.made.theta)
    assert share == pytest.approx(norm(model.made.theta - plain) / norm(plain), rel=1e-6)


# -- the ledger ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_is_never_below_the_residual(kind: str) -> None:
    """Every family, deletions one by one and in batches, noise that moves the model and not."""
    checked = 0
    for name in families(kind):
        for sigma, size in ((0.1, 1), (0.1, 9), (10.0, 3)):
            model = Certified(make(name, kind, seed=size), sigma, seed=size)
            model.check()
            for start in range(0, len(model.data.deleted), size):
                try:
                    model.delete(model.data.deleted[start : start + size])
                except IllConditioned:
                    break
                model.check()
                checked += 1
    assert checked > 500


@pytest.mark.parametrize("name", ["benign", "sparse", "weighted", "duplicated", "near_separable"])
def test_refreshes_keep_the_ledger_right(name: str) -> None:
    """Deletions, a polish with deletions meanwhile, more, a compact, a second polish, a rebuild."""
    for seed in range(3):
        model = Certified(make(name, "logistic", seed), 0.3, seed)
        batches = np.array_split(model.data.deleted, 12)
        model.delete(batches[0])
        model.polish(meanwhile=(batches[1], batches[2]))
        model.check()
        model.delete(batches[3])
        model.check()
        model.compact()
        model.check()
        model.delete(batches[4])
        model.check()
        model.polish()
        model.check()
        assert model.spent == pytest.approx(model.residual, rel=1e-3, abs=1e-9)
        model.delete(batches[5])
        model.check()
        model.polish(meanwhile=(batches[6],))
        model.delete(batches[7])
        model.check()
        noise = model.generation.objective.linear
        model.rebuild()
        assert model.spent < 1e-8
        fresh = model.generation.objective.linear
        assert noise is not None
        assert fresh is not None
        assert not np.array_equal(noise, fresh)
        model.delete(batches[8])
        model.check()


@pytest.mark.parametrize("name", ["classes", "several_outputs"])
def test_several_outputs_have_one_ledger(name: str) -> None:
    kind = "linear" if name == "several_outputs" else "logistic"
    model = Certified(make(name, kind), 0.3)
    for start in range(0, 12, 3):
        model.delete(model.data.deleted[start : start + 3])
        model.check()
    if kind == "logistic":
        model.polish(meanwhile=(model.data.deleted[12:14],))
        model.check()
    model.compact()
    model.delete(model.data.deleted[14:16])
    model.check()


@pytest.mark.parametrize("name", ["benign", "badly_scaled", "sparse"])
def test_the_energy_is_that_of_the_live_rows(name: str) -> None:
    model = Certified(make(name, "logistic"), 0.1)
    for start in range(0, 20, 4):
        model.delete(model.data.deleted[start : start + 4])
    objective, rows = model.generation.objective, model.rows.take(model.live)
    moved = model.stream.theta_exact - model.stream.theta_r
    s = objective.curvature(rows, model.generation.theta_b)[:, None]
    brute = float(np.sum(s * (rows.X @ moved) ** 2) + np.sum(objective.penalty[:, None] * moved**2))
    assert model.ledger.energy == pytest.approx(brute, rel=1e-6)
    V = model.stream.V.array
    W = model.W[model.live]
    reach = np.einsum("ij,ij->i", rows.X, W) + np.sum((rows.X @ V.T) ** 2, axis=1)
    assert float(reach.max()) <= model.ledger.reach


def test_the_bound_is_within_a_hundred_of_the_residual_where_it_is_used() -> None:
    """Rows of length at most 1, and what is spent below the budget: as the docs say."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1000, 10))
    X /= np.linalg.norm(X, axis=1).max()
    y = (rng.random((1000, 1)) < 1 / (1 + np.exp(-4 * X.sum(axis=1, keepdims=True)))).astype(float)
    data = Data("unit", "logistic", X, y, np.ones(1000), 1.0, True, rng.permutation(1000)[:150])
    terms = ObjectiveNoise(1.0, 1e-4, 10.0)
    model = Certified(data, terms.sigma)
    ratios = []
    for i in data.deleted:
        model.delete(np.array([i]))
        ratios.append(model.check())
        if model.spent > terms.budget:
            break
    assert len(ratios) > 30
    assert float(np.median(ratios)) < 100


def test_what_no_bound_covers_is_infinite() -> None:
    model = Certified(make("benign", "logistic"), 0.1)
    model.delete(model.data.deleted[:1])
    far = replace(model.ledger, longest=1e9, reach=1e9, energy=1e9)
    assert spent(far, model.generation, model.stream) == math.inf


@pytest.mark.parametrize("d", [1, 2, 7, 40])
def test_the_largest_eigenvalue_is_bounded_tightly(d: int) -> None:
    rng = np.random.default_rng(d)
    for spread in (1.0, 1e-3):
        X = rng.standard_normal((3 * d, d)) * np.geomspace(1, spread, d)
        A = X.T @ X
        true = float(np.linalg.eigvalsh(A)[-1])
        assert true <= largest_eigenvalue(A) <= 1.1 * true
    assert largest_eigenvalue(np.zeros((d, d))) == 0.0


def test_taylors_factor_is_not_below_the_remainder() -> None:
    """|sigma(u + z) - sigma(u) - sigma'(u) z| <= sigma'(u) z^2 times it, |z| <= zeta."""
    u, z = np.meshgrid(np.linspace(-12, 12, 241), np.linspace(-6, 6, 241))
    wide = u.astype(np.longdouble)
    sigma = 1 / (1 + np.exp(-wide))
    slope = sigma * (1 - sigma)
    rem = np.abs(1 / (1 + np.exp(-(wide + z))) - sigma - slope * z)
    factors = np.vectorize(certified._taylor)(np.abs(z))
    assert (rem <= slope * z**2 * factors + 1e-17).all()
    assert (rem <= z**2 * certified._SIGMA_SECOND / 2 + 1e-17).all()


def test_a_linear_polish_with_deletions_meanwhile_charges_the_point_that_stays() -> None:
    """theta_exact is kept then: what the polish measured is of another point."""
    model = Certified(make("benign", "linear"), sigma=1.0)
    off = model.stream.theta_exact + 1e-6
    model.stream = model.stream._replace(theta_exact=off, published=off, anchor=off)
    left = model.residual
    model.stream = model.stream._replace(residual=1.01 * left)
    model.ledger = replace(model.ledger, measured=1.01 * left, rounding=0.0)
    model.check()
    model.polish(meanwhile=(model.data.deleted[:1],))
    assert model.residual > 0.1 * left
    model.check()
