"""Poisson and softmax models in the service: their versions are the library's, and a refit's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe import PoissonModel, SoftmaxModel
from lethe.consumers.audit.verify import verify
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import InvalidData
from lethe.engine.refresh.size import RefreshSize
from tests.support.families import Data, make
from tests.support.invariants import check_model
from tests.support.platform import Platform, class_names
from tests.support.tables import Table

MODELS: dict[str, Any] = {"poisson": PoissonModel, "softmax": SoftmaxModel}
FAMILIES = [
    *(("poisson", family) for family in (
        "benign", "no_intercept", "badly_scaled", "duplicated", "high_leverage", "sparse")),
    ("softmax", "classes"),
    ("softmax", "classes_badly_scaled"),
]  # fmt: skip
REFRESHED = ("high_leverage", "sparse", "classes_badly_scaled")
"""Where an error is unknown after some deletion, and a refresh follows at once."""

certified = {"certify": ObjectiveNoise(1.0, 1e-5, 1.0), "method": "exact"}
disclosed = {"disclosure": True, "method": "exact"}


def fitted(data: Data) -> Any:
    """Return the library's model of the rows."""
    model = MODELS[data.kind](ridge=data.ridge, fit_intercept=data.intercept, error_budget=10.0)
    return model.fit(data.X, targets(data), ids=[f"row-{i}" for i in range(len(data.X))])


def targets(data: Data) -> Any:
    """Return counts, or the class of each row by name."""
    if data.kind == "poisson":
        return data.y[:, 0]
    return [class_names(data)[c] for c in data.y.argmax(axis=1)]


@pytest.mark.parametrize("method", ["pru", "exact", "influence"])
@pytest.mark.parametrize(("kind", "family"), FAMILIES)
def test_versions_are_those_of_the_library(
    memory: Platform, kind: str, family: str, method: str
) -> None:
    data = make(family, kind)
    memory.register("m", data, method=method, budget=10.0)
    model = fitted(data)
    for rows in ((1, 2), (7,), (0, 9, 11)):
        memory.delete("m", *rows)
        model.delete([f"row-{i}" for i in rows], method=method)
        state = memory.load("m")
        if state.meta.generation:
            break
        np.testing.assert_allclose(state.published, model.published, rtol=1e-8, atol=1e-10)
    assert state.meta.generation == 0 or family in REFRESHED
    for number, size in enumerate(RefreshSize):
        memory.refresh("m", size)
        memory.delete("m", 20 + number)
        assert verify(memory.store, "m").holds
        check_model(memory)


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("poisson", "benign"),
        ("poisson", "no_intercept"),
        ("softmax", "classes"),
        ("softmax", "classes_badly_scaled"),
    ],
)
def test_requests_of_all_kinds_over_rebuilds_are_as_if_refitted(
    memory: Platform, kind: str, family: str
) -> None:
    memory.register("m", family, kind, budget=10.0)
    table = Table(memory, seed=3)
    draw = np.random.default_rng(5)
    for turn in range(5):
        names = list(table.rows)
        picked = [names[i] for i in draw.permutation(len(names))[:4]]
        table.delete(*picked[:2])
        table.change("insert", table.row(f"new-{turn}"), table.row(f"more-{turn}", weight=2.5))
        table.change("correct", table.row(picked[2]), table.row(picked[3]))
        memory.drain()
        memory.refresh("m", RefreshSize.REBUILD)
        table.check()


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("poisson", certified, "certified removal is for linear and logistic models"),
        ("poisson", disclosed, "--disclosure is for linear models"),
        ("poisson", {"exact_sums": True}, "--exact-sums is for linear models"),
        (
            "softmax", certified,
            "certified removal is for linear and logistic models; register a softmax model without",
        ),
        ("softmax", disclosed, "--disclosure is for linear models"),
        ("softmax", {"exact_sums": True}, "--exact-sums is for linear models"),
        (
            "softmax", {"rows_url": "file:///nowhere"},
            "rows in files are not there yet for softmax models",
        ),
    ],
)  # fmt: skip
def test_what_a_kind_has_not_is_refused_in_a_line(
    memory: Platform, kind: str, change: dict[str, Any], message: str
) -> None:
    family = "benign" if kind == "poisson" else "classes"
    with pytest.raises(InvalidData, match=message) as refused:
        memory.register("m", family, kind, **change)
    assert "\n" not in str(refused.value)
