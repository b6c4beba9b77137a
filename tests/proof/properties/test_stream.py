"""Promises about whole streams of deletions, on streams that Hypothesis draws.

Longer than those of the battery (test_battery.py), which runs every method, model and family.

Figures (worst cases, ratios) are logged: ``pytest tests/proof/properties --log-cli-level=info``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy.linalg import solve

from certificates.sentinels import ratios
from lethe.engine import LinearModel, LogisticModel, RefreshSize
from tests.support.families import Array, Data, families, make
from tests.support.oracles import Wide, distance, projection, relative, retrain_wide
from tests.support.states import start

LOG = logging.getLogger(__name__)

CASES = [(kind, name) for kind in ("linear", "logistic") for name in families(kind)]
STREAMED = ("benign", "badly_scaled", "duplicated", "sparse")


def drawn(examples: int) -> settings:
    """Return settings for streams that are the same in every run, and never too slow."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


# -- long streams with refreshes of all sizes -------------------------------------------------


def _long(name: str, seed: int) -> Data:
    """Return 480 rows of a family, so that 60 batches fit."""
    parts = [make(name, "linear", 10 * seed + part) for part in range(4)]
    rng = np.random.default_rng(seed)
    if name == "badly_scaled":  # mixtures of its rows have its spectrum
        X = rng.standard_normal((480, 120)) @ parts[0].X / np.sqrt(120)
    else:
        X = np.vstack([part.X for part in parts])
    if name == "duplicated":
        X = np.repeat(X[::8], 8, axis=0)
    y = X @ rng.standard_normal((X.shape[1], 1)) + 0.3 * rng.standard_normal((len(X), 1))
    order = rng.permutation(len(X))
    first = parts[0]
    return Data(name, "linear", X, y, np.ones(len(X)), first.ridge, first.intercept, order)


@dataclass
class Followed:
    """A library model, and what an observer who retrains says of it."""

    data: Data
    model: LinearModel | LogisticModel
    anchor: Wide
    gone: int = 0
    since: int = 0

    def retrained(self) -> Wide:
        live = self.data.live(self.gone)
        data = self.data
        return retrain_wide(
            data.kind, data.design[live], data.y[live], data.weight[live], data.penalty
        )

    def published(self) -> Array:
        theta = self.model.theta[:, None]
        return np.vstack([theta, [[self.model.intercept]]]) if self.data.intercept else theta

    def delete(self, k: int, method: str) -> None:
        batch = self.data.deleted[self.gone : self.gone + k]
        self.model.delete([str(i) for i in batch], method=method)
        self.gone += k

    def refresh(self, size: RefreshSize) -> None:
        self.model.refresh(size)
        self.anchor, self.since = self.retrained(), self.gone

    def expected_pru(self) -> Wide:
        """Return anchor + projection of (retrained - anchor) on the rows deleted since."""
        U = self.data.design[self.data.deleted[self.since : self.gone]]
        moved = self.retrained() - self.anchor
        return self.anchor + projection(U, moved.astype(np.float64))


def _follow(data: Data) -> Followed:
    """Follow a model. What is followed is the stream, so that no version is rounded instead."""
    model: LinearModel | LogisticModel
    if data.kind == "linear":
        model = LinearModel(ridge=data.ridge, fit_intercept=data.intercept, rounded_features=0)
    else:
        model = LogisticModel(ridge=data.ridge, fit_intercept=data.intercept)
    model.fit(data.X, data.y[:, 0], sample_weight=data.weight)
    followed = Followed(data, model, np.zeros((1, 1), dtype=np.longdouble))
    followed.anchor = followed.retrained()
    return followed


FORCED = {
    6: RefreshSize.REBUILD,
    12: RefreshSize.POLISH,
    24: RefreshSize.COMPACT,
    36: RefreshSize.COMPLETE,
}
batches = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([None] * 60 + list(RefreshSize))),
    min_size=50,
    max_size=60,
)


def _run(
    followed: Followed, drawn_batches: list[tuple[int, RefreshSize | None]], method: str
) -> None:
    """Run at least 50 batches; every size of refresh comes at least once, whatever was drawn.

    The sizes that measure the loss anew come early: what follows them has to stay accurate.
    """
    for i, (k, size) in enumerate(drawn_batches):
        followed.delete(k, method)
        if size is not None:
            followed.refresh(size)
        if i in FORCED:
            followed.refresh(FORCED[i])


@pytest.mark.parametrize("name", STREAMED)
def test_pru_is_the_projection_of_retraining_after_any_stream(name: str) -> None:
    worst = [0.0]

    @drawn(12)
    @given(drawn_batches=batches, tail=st.integers(1, 12), seed=st.integers(0, 5))
    def check(drawn_batches: list[tuple[int, RefreshSize | None]], tail: int, seed: int) -> None:
        followed = _follow(_long(name, seed))
        _run(followed, drawn_batches, "pru")
        for _ in range(tail):
            followed.delete(1, "pru")
            expected = followed.expected_pru()
            gap = distance(followed.published(), expected) / float(np.linalg.norm(expected))
            worst[0] = max(worst[0], gap)
            assert gap <= 1e-8

    check()
    LOG.info("pru against projected retraining, %s: worst %.1e", name, worst[0])


@pytest.mark.parametrize("name", STREAMED)
def test_exact_is_retraining_after_any_stream(name: str) -> None:
    worst = [0.0]

    @drawn(12)
    @given(drawn_batches=batches, seed=st.integers(0, 5))
    def check(drawn_batches: list[tuple[int, RefreshSize | None]], seed: int) -> None:
        followed = _follow(_long(name, seed))
        _run(followed, drawn_batches, "exact")
        followed.delete(2, "exact")
        truth = followed.retrained()
        gap = distance(followed.published(), truth) / float(np.linalg.norm(truth))
        worst[0] = max(worst[0], gap)
        assert gap <= 1e-8
        error = followed.model.error
        assert error.bound is not None
        assert distance(followed.published(), truth) <= error.bound

    check()
    LOG.info("exact against retraining, %s: worst %.1e", name, worst[0])


# -- the paper's formula, repeated ------------------------------------------------------------


def _naive(data: Data, theta: Array, W: Array) -> Iterator[tuple[int, Array]]:
    """Repeat the paper's one-batch formula: stale hat matrix, errors at the drifting theta."""
    X, y = data.design, data.y
    for done, row in enumerate(data.deleted, start=1):
        x, w = X[row : row + 1], W[row : row + 1]
        step = w.T @ (x @ theta - y[row : row + 1]) / (1 - float((x @ w.T)[0, 0]))
        theta = theta + projection(x, step)
        yield done, theta


def _streaming(mild: bool) -> Data:
    rng = np.random.default_rng(3)
    n, d = 500, 50
    spread = np.ones(d) if mild else np.logspace(0, -2.5, d)
    X = (rng.standard_normal((n, d)) * spread) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    y = X @ rng.standard_normal((d, 1)) / spread.mean() + rng.standard_normal((n, 1))
    return Data("s", "linear", X, y, np.ones(n), 1e-2, False, rng.permutation(n)[:400])


def test_repeating_the_papers_formula_diverges_where_the_stream_does_not() -> None:
    """On mild data it loses digits all the way; on anisotropic data it is worse than theta = 0."""
    for mild, at_least in ((True, 0.05), (False, 1.0)):
        data = _streaming(mild)
        state = start(data)
        naive = dict(_naive(data, state.made.theta, state.made.dual_rows))
        errors = []
        stream, first = state.stream, 0
        for done in (25, 100, 200, 400):
            truth = state.retrained(done)
            for row in data.deleted[first:done]:
                stream = state.delete(stream, np.array([row]), "pru")
            first = done
            errors.append(relative(naive[done], truth.astype(np.float64)))
            # Many more rows than d: their span is everything, and PRU is exact.
            if done >= 100:
                assert relative(stream.published, truth.astype(np.float64)) < 1e-9
        LOG.info("naive stream, %s data: %s", "mild" if mild else "anisotropic", errors)
        assert errors[-1] > at_least
        assert errors == sorted(errors)


# -- bounds and budgets -----------------------------------------------------------------------


@drawn(40)
@given(draw=st.data())
def test_a_bound_is_never_below_the_error_and_a_refresh_keeps_the_budget(
    draw: st.DataObject,
) -> None:
    kind, name = draw.draw(
        st.sampled_from([case for case in CASES if case[1] != "several_outputs"])
    )
    followed = _follow(make(name, kind, draw.draw(st.integers(0, 5))))
    model, left = followed.model, len(followed.data.deleted)
    method = draw.draw(st.sampled_from(["pru", "exact", "influence"]))
    while left > 0:
        k = draw.draw(st.integers(1, min(8, left)))
        followed.delete(k, method)
        left -= k
        _check_bound(followed)
        if draw.draw(st.booleans()):
            model.refresh(draw.draw(st.sampled_from(RefreshSize)))
            _check_bound(followed)
        if draw.draw(st.booleans()):
            model.refresh()
            true = _check_bound(followed)
            assert true <= model.error_budget * float(np.linalg.norm(followed.published()))


def _check_bound(followed: Followed) -> float:
    true = distance(followed.published(), followed.retrained())
    error = followed.model.error
    assert error.bound is None or true <= error.bound
    assert error.bound is not None or followed.data.kind == "logistic"
    return true


# -- the estimate between audits --------------------------------------------------------------


def _large(rng: np.random.Generator, n: int, d: int, strength: float, ridge: float) -> Data:
    X = rng.standard_normal((n, d))
    u = X @ rng.standard_normal(d) * strength / np.sqrt(d)
    y = (rng.random((n, 1)) < 1 / (1 + np.exp(-u[:, None]))).astype(np.float64)
    return Data("large", "logistic", X, y, np.ones(n), ridge, True, rng.permutation(n)[:200])


def test_the_sentinels_estimate_is_near_the_truth_and_mostly_on_the_safe_side() -> None:
    rng = np.random.default_rng(5)
    shapes = [
        (600, 10, 1.5, 1.0),
        (2000, 10, 3.0, 1.0),
        (2000, 50, 1.5, 0.1),
        (2000, 50, 15.0, 1e-2),
        (1500, 150, 3.0, 1.0),
    ]
    found: list[float] = []
    for n, d, strength, ridge in shapes:
        of = [ratio for *_, ratio in ratios(_large(rng, n, d, strength, ridge), samples=6)]
        LOG.info("n %d d %d strength %g: %s", n, d, strength, _spread(of))
        found += of
    assert len(found) > 300
    found_all = np.array(found)
    inside = float(np.mean((found_all >= 0.8) & (found_all <= 3.0)))
    LOG.info("estimate over truth, %d states: %s", len(found), _spread(found))
    LOG.info("%.1f %% within 0.8 to 3; %.1f %% above 1", 100 * inside, 100 * np.mean(found_all > 1))
    assert inside >= 0.95
    assert np.mean((found_all >= 0.5) & (found_all <= 4.0)) >= 0.99


def _spread(found: list[float]) -> str:
    marks = np.percentile(found, [0, 2.5, 50, 97.5, 100])
    return " ".join(f"{mark:.2f}" for mark in marks)


def test_the_naive_oracle_is_the_papers_single_step() -> None:
    """The counter-example is not a straw man: its first step is right."""
    data = _streaming(True)
    state = start(data)
    _, theta = next(_naive(data, state.made.theta, state.made.dual_rows))
    live = data.live(1)
    X, y = data.design[live], data.y[live]
    truth: Array = solve(X.T @ X + np.diag(data.penalty), X.T @ y)
    x = data.design[data.deleted[:1]]
    expected = state.made.theta + projection(x, truth - state.made.theta)
    np.testing.assert_allclose(theta, expected, rtol=1e-10, atol=1e-13)
