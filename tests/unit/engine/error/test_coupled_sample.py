"""The estimate of a softmax model's error: identity, stiffness, and distance to the truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import eigh

from lethe.engine.deletion.coupled import parts_of, step
from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.deletion.methods import method_named
from lethe.engine.error.coupled_sample import possible_parts, remainder, sampled_step
from lethe.engine.error.estimate import UNKNOWN, published_error, remainder_estimate
from lethe.engine.error.sentinels import SENTINELS, sample_sentinels
from lethe.engine.fit.fit import fit
from lethe.engine.fit.multinomial import SoftmaxObjective
from lethe.engine.fit.objective import Rows, norm
from lethe.engine.refresh.coupled import begin

D = 5


def rows_of(classes: int, n: int = 700, seed: int = 0, strength: float = 1.0) -> Rows:
    rng = np.random.default_rng([seed, classes])
    X = np.hstack([rng.standard_normal((n, D - 1)), np.ones((n, 1))])
    margin = strength * X @ rng.standard_normal((D, classes))
    y = np.eye(classes)[np.argmax(margin + rng.gumbel(size=margin.shape), axis=1)]
    return Rows(X, y, rng.uniform(0.5, 2.0, n))


def begun(rows: Rows) -> tuple[Generation, Stream]:
    penalty = np.append(np.ones(D - 1), 0.0)
    new = begin(0, SoftmaxObjective.of(penalty, rows), rows)
    return new.generation, new.stream


def without(
    generation: Generation, stream: Stream, rows: Rows, places: NDArray[np.intp]
) -> tuple[Stream, Rows]:
    """Return the stream without rows, and the rows that are left."""
    stream = step(generation, stream, rows.take(places), method_named("exact"))
    left = np.ones(len(rows), dtype=np.bool_)
    left[places] = False
    return stream, rows.take(left)


def test_the_remainders_of_all_live_rows_are_the_gradient() -> None:
    rows = rows_of(4)
    generation, stream = begun(rows)
    stream, live = without(generation, stream, rows, np.arange(60))
    gradient = generation.objective.gradient(live, stream.theta_exact)
    summed = live.X.T @ remainder(generation, stream, live)
    assert norm(gradient) > 1e-3
    assert norm(summed - gradient) < 1e-9 * norm(gradient) + 1e-10


def test_of_all_live_rows_the_step_is_the_newton_step_of_the_stale_hessian() -> None:
    rows = rows_of(3)
    generation, stream = begun(rows)
    stream, live = without(generation, stream, rows, np.arange(40))
    objective, _ = parts_of(generation)
    gradient = objective.gradient(live, stream.theta_exact)
    stale = objective.hessian(live, generation.theta_b)
    newton = np.linalg.solve(stale, gradient.T.ravel()).astype(np.float64)
    whole = sampled_step(generation, stream, live, np.ones((len(live), 1)), 0.5)
    assert whole.length == pytest.approx(norm(newton), rel=1e-8)
    assert whole.spread == 0.0
    along, fresh = newton / norm(newton), objective.hessian(live, stream.theta_exact)
    ratio = 1.0 + whole.length * whole.change / whole.stale
    assert ratio == pytest.approx((along @ fresh @ along) / (along @ stale @ along), rel=1e-7)


def test_the_least_stiffness_is_that_of_the_hessians_or_below() -> None:
    rows = rows_of(4, strength=2.0)
    generation, stream = begun(rows)
    objective, _ = parts_of(generation)
    everyone = np.ones((len(rows), 1))
    assert sampled_step(generation, stream, rows, everyone, 0.5).fallen() == 1.0
    away = stream._replace(theta_exact=3.0 * stream.theta_exact)
    stale = objective.hessian(rows, generation.theta_b)
    fresh = objective.hessian(rows, away.theta_exact)
    truth = eigh(fresh, stale, eigvals_only=True)[0]
    least = 0.9 * truth  # it ends as soon as it is there
    found = sampled_step(generation, away, rows, everyone, least).fallen()
    assert truth < 0.5
    assert found < 1.1 * truth


def test_a_state_that_has_left_its_curvatures_is_unknown() -> None:
    rows = rows_of(4, strength=2.0)
    generation, stream = begun(rows)
    sentinels = sample_sentinels(
        generation, [str(i) for i in range(len(rows))], rows, np.empty((len(rows), 0)), 0
    )
    away = stream._replace(theta_exact=3.0 * stream.theta_exact)
    assert published_error(generation, away, sentinels, len(rows)) == UNKNOWN
    near = stream._replace(theta_exact=1.01 * stream.theta_exact)
    assert published_error(generation, near, sentinels, len(rows)).value is not None


def test_rows_that_can_add_more_are_drawn_more_often() -> None:
    rows = rows_of(3)
    rows.weight[:20] *= 100.0
    generation, _ = begun(rows)
    parts = possible_parts(generation, rows)
    assert np.median(parts[:20]) > 10 * np.median(parts[20:])


@pytest.mark.parametrize("classes", [3, 4, 5])
def test_the_estimate_is_near_the_truth(classes: int) -> None:
    ratios = []
    for seed in range(5):
        rows = rows_of(classes, seed=seed)
        generation, stream = begun(rows)
        sentinels = sample_sentinels(
            generation, [str(i) for i in range(len(rows))], rows, np.empty((len(rows), 0)), seed
        )
        assert len(sentinels.ids) == SENTINELS
        live = rows
        for start in (0, 30, 60, 90):
            gone = frozenset(str(i) for i in range(start, start + 30))
            stream, live = without(generation, stream, live, np.arange(30))
            sentinels = sentinels.without(gone)
            truth = fit(generation.objective, live, stream.theta_exact).theta
            away = norm(truth - stream.theta_exact)
            ratios.append(remainder_estimate(generation, stream, sentinels, len(live)) / away)
    assert min(ratios) > 0.8, ratios
    assert max(ratios) < 3.0, ratios
