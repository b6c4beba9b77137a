"""Which refreshes are ordered: those that do something, and none that waits is forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lethe.consumers.registration.error_budget import fit_warnings
from lethe.engine.deletion.generation import smallest_eigenvalue
from lethe.engine.errors import InvalidData
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.meta import meta_json
from lethe.engine.store.membership import registered_models
from tests.support.families import Data, make
from tests.support.invariants import check_model
from tests.support.platform import Platform


def plain(X: object, y: object, *, ridge: float = 1.0, intercept: bool = True) -> Data:
    """Data of a linear model, named so that nobody takes it for a family."""
    features, target = np.asarray(X, dtype=float), np.asarray(y, dtype=float).reshape(-1, 1)
    return replace(
        make("benign", "linear"),
        X=features, y=target, weight=np.ones(len(target)), ridge=ridge, intercept=intercept,
    )  # fmt: skip


def opposed() -> Data:
    """Data whose first two rows alone have the answer theta = 0."""
    rng = np.random.default_rng(0)
    X = np.vstack([np.ones((2, 1)), rng.standard_normal((30, 1)) + 3])
    return plain(X, [1.0, -1.0, *(rng.standard_normal(30) + 3)], intercept=False)


def test_a_rebuild_whose_answer_is_zero_is_swapped_in(memory: Platform) -> None:
    limits = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)
    memory.register("m", opposed(), limits=limits)
    request = memory.delete("m", *range(2, 32))
    assert memory.final(request).status == "APPLIED"
    newest = memory.versions()[-1]
    assert newest.refresh is not None
    assert newest.error.kind != "unknown"
    assert memory.load().meta.pending_job is None


def test_a_polish_aims_at_what_the_policy_counts_also_where_the_answer_is_near_zero(
    memory: Platform,
) -> None:
    memory.register("m", "benign", "logistic", limits=LimitsRecord(far_under=1e-4))
    memory.delete("m", *range(5))
    head = memory.load().keys.head
    memory.raw().hset(head, "published", np.zeros(memory.load().meta.config.d).tobytes())
    result = memory.compute_refresh(memory.ordered("m", RefreshSize.POLISH))
    assert result.size is RefreshSize.POLISH, result.reason


def test_data_that_are_ill_conditioned_themselves_are_not_rebuilt_without_end(
    memory: Platform,
) -> None:
    rng = np.random.default_rng(0)
    columns = [rng.lognormal(11, 0.5, 300), 0.01 * rng.random(300), rng.standard_normal(300)]
    done = memory.register("m", plain(np.column_stack(columns), 1e-4 * columns[0] + columns[2]))
    generation = done.state.generation
    assert (
        generation.largest / generation.smallest > done.state.meta.config.limits.limits().condition
    )
    memory.drain()
    memory.delete("m", 5)
    assert [version.refresh for version in memory.versions()] == [None, None]
    check_model(memory, exact_to=1e-6)


def test_an_error_that_a_fresh_fit_leaves_is_not_refitted_without_end(memory: Platform) -> None:
    """A budget that a fit meets with little to spare, and one that no fit on these rows meets."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    data = plain(X, X @ np.arange(5.0) + rng.standard_normal(300))
    left = memory.register("probe", data).state.meta.error.relative
    assert left is not None
    memory.register("near", data, budget=2 * left)
    memory.drain()
    assert [version.refresh for version in memory.versions("near")] == [None]
    memory.register("m", data)
    state = memory.load("m")
    config = state.meta.config.model_copy(update={"error_budget": left / 2})
    error = state.meta.error.model_copy(update={"budget": left / 2})
    meta = state.meta.model_copy(update={"error": error})
    memory.raw().hset(state.keys.head, "config", config.model_dump_json())
    memory.raw().hset(state.keys.head, "meta", meta_json(meta))
    memory.send_index("m", 7)
    memory.drain()  # one rebuild for the deletion, and none for what the rebuild leaves
    sizes = [None if v.refresh is None else v.refresh.size for v in memory.versions()]
    assert sizes == [None, None, RefreshSize.REBUILD]


def test_a_budget_that_no_fit_can_meet_is_refused_with_what_to_do(memory: Platform) -> None:
    rng = np.random.default_rng(0)
    data = plain(rng.standard_normal((50, 3)), rng.standard_normal(50))
    with pytest.raises(InvalidData, match=r"scale, raise the ridge, or raise the error budget$"):
        memory.register("m", data, budget=1e-17)
    assert registered_models(memory.store.client) == []
    assert not list(memory.raw().scan_iter(match="lethe:{*}:m:*")), "something was stored"


def test_a_fit_that_is_near_its_limits_is_told_of(memory: Platform) -> None:
    rng = np.random.default_rng(0)
    data = plain(rng.standard_normal((300, 3)), rng.standard_normal(300))
    fine = memory.register("m", data).state
    assert fit_warnings(fine.meta.config, fine.generation, fine.stream) == []
    assert fine.meta.error.relative is not None
    near = memory.register("n", data, budget=2 * fine.meta.error.relative).state
    [line] = fit_warnings(near.meta.config, near.generation, near.stream)
    assert "the fit itself uses 50% of the error budget" in line
    steep = memory.register("s", plain(data.X * [1e7, 1, 1], data.y), budget=10.0).state
    [line] = fit_warnings(steep.meta.config, steep.generation, steep.stream)
    assert "condition number" in line


def test_rounding_that_is_feared_is_measured_before_anything_is_rebuilt(memory: Platform) -> None:
    memory.register("m", "benign", "linear")
    # Given an allowance for rounding past the budget, which the worker takes for the error
    size = float(np.linalg.norm(memory.load().stream.published))
    _fear(memory, 0.1 * size)
    memory.delete("m", 0, 1)
    # Then one pass shows that nothing is wrong, and no rebuild happens
    newest = memory.versions()[-1]
    assert newest.refresh is not None
    assert newest.refresh.size == "polish"
    assert "an audit of one pass was enough" in newest.refresh.reason
    assert memory.load().meta.generation == 0
    assert newest.error.bound is not None
    assert newest.error.bound < 1e-9
    check_model(memory)


def test_many_rows_with_an_estimated_error_are_audited_and_compacted(memory: Platform) -> None:
    limits = LimitsRecord(floor_rows=10, fraction_of_d=0.0, far_under=1e-3)
    memory.register("m", "benign", "logistic", budget=0.05, limits=limits)
    for first in range(0, 12, 3):
        memory.delete("m", *range(first, first + 3))
    sizes = [version.refresh.size for version in memory.versions() if version.refresh]
    assert sizes[-2:] == ["polish", "compact"]
    assert "rebuild" not in sizes
    assert memory.load().meta.generation == 1
    check_model(memory)


def _fear(platform: Platform, rounding: float) -> None:
    """Write another allowance for rounding into the stored model."""
    state = platform.load()
    residual = rounding * smallest_eigenvalue(state.generation, state.stream)
    meta = state.meta.model_copy(update={"residual": residual})
    head = platform.load().keys.head
    platform.raw().hset(head, "meta", meta.model_dump_json())
