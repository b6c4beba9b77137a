from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lethe.engine.deletion.crossover import folding_seconds, step_seconds
from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    current_dual_rows,
    distance_to_exact,
    rounding,
)
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.error.estimate import remainder
from lethe.engine.fit.objective import Array, Kind, Rows, norm
from lethe.engine.refresh.policy import Limits, RefreshFacts, choose, facts_of
from lethe.engine.refresh.refreshes import (
    Polished,
    adopt_polish,
    compact,
    complete,
    concurrent_remainder,
    polish_snapshot,
    rebuild,
)
from lethe.engine.refresh.size import RefreshSize
from tests.support.families import families
from tests.support.oracles import distance
from tests.support.states import Started, started

KINDS = ("linear", "logistic")

LIMITS = Limits()
LINEAR = RefreshFacts(
    kind=Kind.LINEAR,
    d=2000,
    rows_live=20_000,
    deleted_in_generation=10,
    completions=0,
    condition=1e6,
    v_age_seconds=0.0,
    v_seconds=0.0,
    remaining=0.0,
    budget=0.01,
)
LOGISTIC = replace(LINEAR, kind=Kind.LOGISTIC)
MANY = LIMITS.rows(2000) + 1


@pytest.mark.parametrize(
    ("facts", "ordered", "size", "reason"),
    [
        # The smallest size that brings the error far under the budget.
        (LINEAR, None, RefreshSize.COMPLETE, "far under"),
        (LOGISTIC, None, RefreshSize.COMPLETE, "far under"),
        (replace(LOGISTIC, remaining=0.0025), None, RefreshSize.COMPLETE, "far under"),
        (replace(LOGISTIC, remaining=0.0026), None, RefreshSize.POLISH, "quadratic model"),
        (replace(LINEAR, remaining=0.0026), None, RefreshSize.POLISH, "rounding"),
        (replace(LINEAR, remaining=0.0026, audited=True), None, RefreshSize.REBUILD, "rounding"),
        # What is unknown counts as over every budget. The cheaper of polish and rebuild.
        (replace(LOGISTIC, remaining=None), None, RefreshSize.POLISH, "the error is unknown"),
        (
            replace(LOGISTIC, remaining=None, stale=True),
            None,
            RefreshSize.REBUILD,
            "again after a polish",
        ),
        (replace(LOGISTIC, remaining=0.1, stale=True), None, RefreshSize.POLISH, "quadratic model"),
        (replace(LOGISTIC, remaining=np.nan), None, RefreshSize.POLISH, "quadratic model"),
        (
            replace(LOGISTIC, remaining=None, d=20, rows_live=2000),
            None,
            RefreshSize.REBUILD,
            "the error is unknown, and a rebuild costs less",
        ),
        (
            replace(LOGISTIC, remaining=0.1, d=20, rows_live=2000),
            None,
            RefreshSize.POLISH,
            "quadratic",
        ),
        (
            replace(LOGISTIC, remaining=None, d=100, rows_live=10_000),
            None,
            RefreshSize.REBUILD,
            "costs less",
        ),
        (
            replace(LOGISTIC, remaining=None, d=100, rows_live=10_000, stored=True),
            None,
            RefreshSize.POLISH,
            "the error is unknown",
        ),
        (
            replace(LOGISTIC, remaining=None, deleted_in_generation=MANY),
            None,
            RefreshSize.POLISH,
            "2049 rows",
        ),
        # A generation that is used up.
        (replace(LINEAR, deleted_in_generation=MANY - 1), None, RefreshSize.COMPLETE, "far under"),
        (
            replace(LINEAR, deleted_in_generation=MANY),
            None,
            RefreshSize.COMPACT,
            "2049 rows deleted",
        ),
        (
            replace(LOGISTIC, deleted_in_generation=MANY),
            None,
            RefreshSize.COMPACT,
            "2049 rows deleted",
        ),
        (
            replace(LOGISTIC, deleted_in_generation=MANY, remaining=0.01),
            None,
            RefreshSize.POLISH,
            "2049 rows",
        ),
        (
            replace(LOGISTIC, deleted_in_generation=MANY, remaining=0.01, audited=True),
            None,
            RefreshSize.REBUILD,
            "2049 rows",
        ),
        (
            replace(LOGISTIC, deleted_in_generation=MANY, remaining=0.01),
            RefreshSize.COMPACT,
            RefreshSize.COMPACT,
            "ordered",
        ),
        (replace(LINEAR, completions=64), None, RefreshSize.REBUILD, "64 completions"),
        (replace(LINEAR, completions=63), None, RefreshSize.COMPLETE, "far under"),
        (replace(LINEAR, condition=1.1e12), None, RefreshSize.REBUILD, "condition 1e+12"),
        # What the data themselves are like, no rebuild betters.
        (
            replace(LINEAR, condition=9e12, fresh_condition=5e12),
            None,
            RefreshSize.COMPLETE,
            "far under",
        ),
        (
            replace(LINEAR, condition=1.1e13, fresh_condition=5e12),
            None,
            RefreshSize.REBUILD,
            "condition",
        ),
        (replace(LINEAR, v_age_seconds=31 * 86400.0), None, RefreshSize.REBUILD, "age limit"),
        (replace(LINEAR, deferred=2), None, RefreshSize.REBUILD, "2 deferred"),
        # An order is done at the least.
        (LINEAR, RefreshSize.COMPACT, RefreshSize.COMPACT, "ordered"),
        (LOGISTIC, RefreshSize.POLISH, RefreshSize.POLISH, "ordered"),
        (LINEAR, RefreshSize.REBUILD, RefreshSize.REBUILD, "ordered"),
        (
            replace(LINEAR, deleted_in_generation=MANY),
            RefreshSize.COMPLETE,
            RefreshSize.COMPACT,
            "2049",
        ),
        (replace(LINEAR, completions=64), RefreshSize.COMPLETE, RefreshSize.REBUILD, "completions"),
        (replace(LINEAR, completions=64), RefreshSize.REBUILD, RefreshSize.REBUILD, "ordered"),
        (replace(LINEAR, deferred=1), RefreshSize.COMPLETE, RefreshSize.REBUILD, "deferred"),
    ],
)
def test_the_policy_chooses_the_smallest_size_that_does(
    facts: RefreshFacts, ordered: RefreshSize | None, size: RefreshSize, reason: str
) -> None:
    choice = choose(facts, LIMITS, ordered)
    assert choice.size is size
    assert reason in choice.reason


def test_limits_on_rows_follow_d_with_a_floor() -> None:
    assert (LIMITS.rows(10), LIMITS.rows(6000)) == (2048, 3000)
    assert (LIMITS.hard_rows(4000), LIMITS.hard_rows(8000)) == (16_384, 16_384)
    few = Limits(fraction_of_d=0.0, floor_rows=3)
    assert (few.rows(100), few.hard_rows(100)) == (3, 24)


def test_v_is_folded_away_once_it_has_cost_as_much_as_that_would() -> None:
    price = folding_seconds(LINEAR.rows_live, LINEAR.d, LINEAR.deleted_in_generation)
    waits = choose(replace(LINEAR, v_seconds=0.999 * price), LIMITS)
    folds = choose(replace(LINEAR, v_seconds=price), LIMITS)
    assert waits.size is RefreshSize.COMPLETE
    assert folds.size is RefreshSize.COMPACT
    assert (
        folds.reason == "10 rows deleted in this generation have cost as much as folding them away"
    )
    # The more rows live, the dearer a compact.
    assert (
        choose(replace(LINEAR, v_seconds=price, rows_live=40_000), LIMITS).size
        is RefreshSize.COMPLETE
    )


@pytest.mark.parametrize(("kind", "many"), [(Kind.LINEAR, 1600), (Kind.LOGISTIC, 2048)])
def test_where_a_rebuild_costs_less_than_a_compact_it_is_a_rebuild(kind: Kind, many: int) -> None:
    facts = replace(LINEAR, kind=kind, d=250, v_seconds=1e9)
    few = choose(replace(facts, deleted_in_generation=many // 8), LIMITS)
    lots = choose(replace(facts, deleted_in_generation=many), LIMITS)
    assert few.size is RefreshSize.COMPACT
    assert lots.size is RefreshSize.REBUILD
    assert lots.reason.endswith("and a rebuild costs less than a compact")


@pytest.mark.parametrize("kind", KINDS)
def test_what_v_costs_is_counted_and_begins_anew_with_a_generation(kind: str) -> None:
    state = started("benign", kind)
    d = state.objective.d
    stream = state.delete_in([4, 3, 2], "pru")
    estimated = kind == "logistic"
    cost = step_seconds(d, 4, 3, estimated=estimated) + step_seconds(d, 7, 2, estimated=estimated)
    assert stream.v_seconds == pytest.approx(cost)
    assert cost > 0
    facts = facts_of(state.generation, stream, rows_live=111, estimate=0.0, budget_relative=0.01)
    assert (facts.v_seconds, facts.rows_live) == (stream.v_seconds, 111)
    rows, W = state.live_rows(9)
    assert complete(stream).v_seconds == stream.v_seconds
    compacted = compact(state.generation, stream, state.made.factor, rows, W)
    assert compacted.stream.v_seconds == 0.0
    assert rebuild(state.generation, rows, stream.theta_exact).stream.v_seconds == 0.0


def test_the_facts_budget_is_relative_to_what_the_published_error_is_relative_to() -> None:
    state = started("benign", "linear")
    gone = state.stream._replace(published=np.zeros_like(state.stream.published))
    facts = facts_of(state.generation, gone, rows_live=120, estimate=0.0, budget_relative=0.01)
    assert facts.budget == pytest.approx(0.01 * 1e-3 * np.linalg.norm(state.generation.theta_b))


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_a_fit_has_just_left_is_fresh(kind: str) -> None:
    state = started("benign", kind)
    stream = state.delete_in([8], "pru")
    rows, W = state.live_rows(8)
    rebuilt = rebuild(state.generation, rows, stream.theta_exact)
    compacted = compact(state.generation, stream, state.made.factor, rows, W)

    def fresh(generation: Generation, stream: Stream) -> bool:
        facts = facts_of(generation, stream, rows_live=112, estimate=0.0, budget_relative=0.01)
        return facts.fresh

    assert fresh(state.generation, state.stream)
    assert fresh(rebuilt.generation, rebuilt.stream)
    assert not fresh(state.generation, stream)
    assert not fresh(state.generation, complete(state.stream))
    assert not fresh(compacted.generation, compacted.stream)


@pytest.mark.parametrize("kind", KINDS)
def test_completing_publishes_the_exact_answer_and_is_not_thrown_away(kind: str) -> None:
    state = started("benign", kind)
    stream = state.delete_in([8], "pru")
    assert distance_to_exact(stream) > 1e-4
    done = complete(stream)
    assert distance_to_exact(done) == 0.0
    assert (len(done.Q), done.completions) == (0, 1)
    # The next deletion projects from the completed point: it stays near to exact.
    after = state.delete(done, state.data.deleted[8:9], "pru")
    late = state.delete(stream, state.data.deleted[8:9], "pru")
    assert distance_to_exact(after) < 0.5 * distance_to_exact(late)


@pytest.mark.parametrize("kind", KINDS)
def test_compacting_changes_no_answer_and_deletions_go_on(kind: str) -> None:
    for name in families(kind):
        state = started(name, kind)
        gone = len(state.data.deleted) // 2
        stream = state.delete_in([gone], "exact")
        rows, W = state.live_rows(gone)
        made = compact(state.generation, stream, state.made.factor, rows, W)
        np.testing.assert_array_equal(made.stream.published, stream.theta_exact)
        assert (made.generation.number, len(made.stream.V), len(made.stream.Q)) == (1, 0, 0)
        rest = state.data.deleted[gone:]
        straight = state.delete(stream, rest, "exact")
        live = np.flatnonzero(state.data.live(gone))
        places = np.searchsorted(live, rest)
        exact = method_named("exact")
        folded = delete(
            made.generation, made.stream, rows.take(places), made.dual_rows[places], exact
        )
        # Injected with a tiny ridge: 1 - h = 3e-7, so a different order of operations shows.
        size = 1e-6 if name == "injected_tiny_ridge" else 1e-9
        gap = np.linalg.norm(folded.stream.theta_exact - straight.theta_exact)
        assert gap <= size * np.linalg.norm(state.made.theta), name


def test_a_compact_measures_the_error_of_a_linear_model() -> None:
    """Given many compacts, the bound neither compounds nor falls below the truth."""
    for name in families("linear"):
        state = started(name, "linear")
        exact = method_named("exact")
        generation, stream, factor = state.generation, state.stream, state.made.factor
        W, gone, total = state.made.dual_rows, 0, len(state.data.deleted)
        places = np.arange(len(state.rows))
        while gone < total:
            batch = state.data.deleted[gone : gone + total // 6]
            at = np.searchsorted(places, batch)
            stream = delete(generation, stream, state.rows.take(batch), W[at], exact).stream
            gone += len(batch)
            keep = ~np.isin(places, batch)
            places = places[keep]
            made = compact(generation, stream, factor, state.rows.take(places), W[keep])
            assert made.stream.residual <= stream.residual, name
            generation, stream, factor = made.generation, made.stream, made.factor
            W = made.dual_rows
            true = distance(stream.theta_exact, state.retrained(gone))
            assert true <= rounding(generation, stream) + stream.carried, name
        # Beyond the truth, it holds what a fresh fit of the same rows has as well.
        live = state.live_rows(total)[0]
        fresh = rebuild(state.generation, live).stream
        gradient = norm(_wide_gradient(live, state.objective.penalty, stream.theta_exact))
        assert stream.residual <= 2 * gradient + 20 * fresh.residual, name


def _wide_gradient(rows: Rows, penalty: Array, theta: Array) -> Array:
    """Return the gradient of the square loss in extended precision."""
    X, wide = rows.X.astype(np.longdouble), theta.astype(np.longdouble)
    error = rows.weight[:, None] * (X @ wide - rows.y)
    return np.asarray(X.T @ error + penalty[:, None] * wide, dtype=np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rebuild_is_retraining(kind: str) -> None:
    for name in families(kind):
        state = started(name, kind)
        gone = len(state.data.deleted)
        stream = state.delete_in([gone], "pru")
        made = rebuild(state.generation, state.live_rows(gone)[0], stream.theta_exact)
        true = distance(made.stream.published, state.retrained(gone))
        assert made.certified is not None
        assert true <= made.certified <= 1e-6 * np.linalg.norm(made.stream.published), name
        assert (made.generation.number, len(made.stream.V)) == (1, 0)


def test_a_polish_becomes_reference_and_anchor_and_the_stream_goes_on_from_it() -> None:
    state = started("benign", "logistic")
    stream = state.delete_in([20], "pru")
    rows, W = state.live_rows(20)
    polished = polish_snapshot(state.generation, stream, state.made.factor, rows, W, target=1e-10)
    adopted = adopt_polish(stream, polished)
    assert distance(adopted.published, state.retrained(20)) <= 1e-10
    assert adopted.theta_r is polished.theta
    assert adopted.carried == polished.left == polished.certified
    assert len(adopted.V) == 20
    after = state.delete(adopted, state.data.deleted[20:24], "pru")
    without = state.delete(stream, state.data.deleted[20:24], "pru")
    truth = state.retrained(24)
    assert distance(after.theta_exact, truth) < distance(without.theta_exact, truth)


def test_deletions_during_a_polish_are_kept_and_what_that_leaves_is_counted() -> None:
    ratios = []
    for seed in range(20):
        state = started("benign", "logistic", seed)
        snapshot = state.delete_in([20], "pru")
        rows, W = state.live_rows(20)
        polished = polish_snapshot(
            state.generation, snapshot, state.made.factor, rows, W, target=1e-10
        )
        now = state.delete(snapshot, state.data.deleted[20:26], "pru")
        sample, sample_W = state.live_rows(26)
        counted = concurrent_remainder(state.generation, now, polished, sample, sample_W, 6)
        adopted = adopt_polish(now, polished, concurrent=6, concurrent_error=counted)
        # What the adopted point would be, had the six rows been deleted after the polish.
        after = state.delete(adopt_polish(snapshot, polished), state.data.deleted[20:26], "pru")
        missed = float(np.linalg.norm(adopted.theta_exact - after.theta_exact))
        ratios.append(counted / missed)
        assert adopted.carried == polished.left + counted
        np.testing.assert_array_equal(adopted.published, adopted.theta_exact)
        np.testing.assert_array_equal(adopted.anchor, adopted.theta_exact)
    assert 1 < np.median(ratios) < 5
    assert np.percentile(ratios, 5) > 0.3
    assert concurrent_remainder(state.generation, now, polished, sample, sample_W, 0) == 0.0


def test_rows_that_were_likelier_to_be_sampled_count_less() -> None:
    state = started("benign", "logistic")
    snapshot = state.delete_in([20], "pru")
    rows, W = state.live_rows(20)
    polished = polish_snapshot(state.generation, snapshot, state.made.factor, rows, W, target=1e-10)
    plain = concurrent_remainder(state.generation, snapshot, polished, rows, W, 6)
    alike = np.full(len(rows), 0.2)
    counted = concurrent_remainder(state.generation, snapshot, polished, rows, W, 6, alike)
    assert counted == pytest.approx(plain, rel=1e-12)
    # A row that is there twice, with twice the chance, counts as often as it is in the population.
    again = np.repeat(np.arange(len(rows)), np.arange(len(rows)) % 3 + 1)
    pi = (again % 3 + 1) / 10.0
    repeated = concurrent_remainder(
        state.generation, snapshot, polished, rows.take(again), W[again], 6, pi
    )
    assert repeated == pytest.approx(plain, rel=1e-12)


def test_compacted_dual_rows_equal_the_streams_own() -> None:
    state = started("sparse", "logistic")
    stream = state.delete_in([10, 10], "pru")
    rows, W = state.live_rows(20)
    made = compact(state.generation, stream, state.made.factor, rows, W)
    np.testing.assert_allclose(
        made.dual_rows, current_dual_rows(stream, rows.X, W), rtol=1e-12, atol=1e-15
    )


def test_after_a_polish_the_state_is_still_a_function_of_the_set() -> None:
    for name in ("benign", "near_separable", "high_leverage"):
        state = started(name, "logistic")
        stream = state.delete_in([15], "pru")
        rows, W = state.live_rows(15)
        size = norm(stream.theta_exact)
        polished = polish_snapshot(
            state.generation, stream, state.made.factor, rows, W, target=1e-12 * size
        )
        adopted = adopt_polish(stream, polished)
        rest = state.data.deleted[15:25]
        whole = state.delete(adopted, rest, "pru")
        single = adopted
        for row in rest[::-1]:
            single = state.delete(single, np.array([row]), "pru")
        assert norm(whole.theta_exact - single.theta_exact) <= 1e-9 * size
        assert norm(whole.published - single.published) <= 1e-9 * size
        # And the live gradient is the sum of the remainders, but for what the polish left.
        live, _ = state.live_rows(25)
        measured = state.objective.gradient(live, whole.theta_exact)
        summed = live.X.T @ remainder(state.generation, whole, live)
        left = norm(state.objective.gradient(rows, polished.theta))
        slack = 1e-12 * state.objective.gradient_scale(live, whole.theta_exact)
        assert norm(measured - summed) <= left + slack, name


def _audited(state: Started, snapshot: Stream, gone: int) -> Polished:
    rows, W = state.live_rows(gone)
    polished = polish_snapshot(state.generation, snapshot, state.made.factor, rows, W, target=1e-6)
    assert polished.passes == 1
    return polished


def test_an_audit_of_a_linear_model_takes_back_rounding_that_was_only_feared() -> None:
    state = started("benign", "linear")
    feared = state.delete_in([10], "exact")._replace(residual=1e-3)
    adopted = adopt_polish(feared, _audited(state, feared, 10))
    assert (
        distance(adopted.theta_exact, state.retrained(10))
        <= rounding(state.generation, adopted)
        < 1e-9
    )
    np.testing.assert_array_equal(adopted.published, feared.theta_exact)


def test_deletions_during_a_linear_audit_keep_their_own_rounding() -> None:
    state = started("benign", "linear")
    feared = state.delete_in([10], "exact")._replace(residual=1e-3)
    polished = _audited(state, feared, 10)
    now = state.delete(feared, state.data.deleted[10:20], "pru")
    adopted = adopt_polish(now, polished, concurrent=10)
    # What the audit refuted goes; what the deletions since have added stays.
    assert now.residual - 1e-3 <= adopted.residual < now.residual
    assert distance(adopted.theta_exact, state.retrained(20)) <= rounding(state.generation, adopted)
    np.testing.assert_array_equal(adopted.theta_exact, now.theta_exact)


def test_a_deletion_during_a_linear_audit_whose_step_is_nothing_is_no_less_a_deletion() -> None:
    """The polished point still has the row that has gone: it must not be adopted as it is."""
    state = started("benign", "linear")
    snapshot = state.delete_in([10], "exact")
    polished = replace(_audited(state, snapshot, 10), theta=snapshot.theta_exact + 1.0)
    adopted = adopt_polish(snapshot, polished, concurrent=1)
    np.testing.assert_array_equal(adopted.theta_exact, snapshot.theta_exact)


@pytest.mark.parametrize("ordered", [None, RefreshSize.COMPLETE, RefreshSize.POLISH])
def test_a_stream_that_has_lost_its_digits_is_rebuilt(ordered: RefreshSize | None) -> None:
    choice = choose(replace(LINEAR, lost=True), Limits(), ordered)
    assert choice.size is RefreshSize.REBUILD
    assert "lost its digits" in choice.reason
