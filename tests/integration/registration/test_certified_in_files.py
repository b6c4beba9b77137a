"""Certified models whose rows are in files: their noise, and the ledger of what it has to hide."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.refresh import new_generation
from lethe.consumers.versions.certificates import certificate_of
from lethe.engine.error import gaussian
from lethe.engine.error.terms import ObjectiveNoise, OutputNoise
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.rowstore import passes, writer
from lethe.engine.store.layout.records import CertificateRecord
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline import staging
from tests.support.families import Data, make
from tests.support.invariants import check_row_files
from tests.support.noise import (
    LINEAR,
    LOGISTIC,
    TERMS,
    check_certified,
    check_noised,
    noise_of,
    rows_of,
)
from tests.support.platform import Platform

AMPLE = ObjectiveNoise(1.0, 1e-4, 20.0)
"""A budget that some deletions do not spend, so that no refresh is ordered."""


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BUCKET_BYTES", 2048)
    monkeypatch.setattr(passes, "BLOCK_BYTES", 4096)


@pytest.fixture(autouse=True)
def noise_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that two models are given in turn: another at each turn, and the same in each run."""
    count = itertools.count()

    def draw(shape: tuple[int, ...], sigma: float) -> np.ndarray:
        return sigma * np.random.default_rng(11 + next(count) // 2).standard_normal(shape)

    monkeypatch.setattr(gaussian, "draw_noise", draw)


def data_of(kind: str) -> Data:
    if kind != "classes":
        return rows_of(kind)
    data = make("classes", "logistic")
    return replace(data, X=data.X / np.linalg.norm(data.X, axis=1).max(), ridge=10.0)


def both(
    platform: Platform, kind: str, terms: ObjectiveNoise | OutputNoise, **options: Any
) -> None:
    """Register ``m``, whose rows are in files, and ``other``."""
    data = data_of(kind)
    given = {"method": "exact", "budget": 10.0, "certify": terms, **options}
    platform.register("m", data, data.kind, rows_url=platform.folder(), **given)
    platform.register("other", data, data.kind, **given)


def noise_in(state: ModelState) -> list[list[float]] | None:
    noise = state.generation.objective.linear
    return None if noise is None else noise.tolist()


def near(platform: Platform) -> None:
    """Check that the two models have one noise and one ledger, up to what their fits differ by."""
    ours, theirs = (platform.load(model) for model in ("m", "other"))
    exact = theirs.stream.theta_exact
    size = float(np.linalg.norm(exact))
    assert float(np.linalg.norm(ours.stream.theta_exact - exact)) <= 1e-9 * size
    assert ours.meta.rows_live == theirs.meta.rows_live
    assert (
        ours.generation.objective.penalty.tolist() == theirs.generation.objective.penalty.tolist()
    )
    assert noise_in(ours) == noise_in(theirs)
    one, other = ours.meta.ledger, theirs.meta.ledger
    assert one is not None
    assert other is not None
    assert 0.0 < one.measured < 1e-9
    for name in ("energy", "reach", "longest", "curved", "spread"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6, abs=1e-12), name
    check_row_files(platform)


@pytest.mark.parametrize("kind", ["linear", "logistic", "classes"])
def test_it_spends_what_a_model_spends_whose_rows_are_in_the_store(
    memory: Platform, kind: str
) -> None:
    both(memory, kind, AMPLE)
    near(memory)
    for rows in ((1, 2), (7,), (0, 9, 11)):
        for model in ("m", "other"):
            memory.send_index(model, *rows)
        memory.drain()
        near(memory)
    at = [certificate_of(memory.load(model)) for model in ("m", "other")]
    spent = [one.spent for one in at if isinstance(one, CertificateRecord)]
    assert kind == "linear" or spent[0] == pytest.approx(spent[1], rel=1e-3)  # else it is rounding
    first = noise_in(memory.load())
    for model in ("m", "other"):
        memory.refresh(model, RefreshSize.REBUILD)
    near(memory)
    assert noise_in(memory.load()) != first
    found = verify(memory.store, "m")  # which sums the gradient up in extended precision
    assert found.measured is not None
    assert found.measured > 0
    assert found.certified
    assert found.distance <= found.bound + found.residual
    memory.delete("m", 20, 21)
    memory.delete("other", 20, 21)
    near(memory)


@pytest.mark.parametrize(("kind", "terms"), [("linear", LINEAR), ("logistic", LOGISTIC)])
def test_what_is_published_has_noise_and_the_exact_answer_has_none(
    memory: Platform, kind: str, terms: OutputNoise
) -> None:
    both(memory, kind, terms)
    for rows in ((1, 2), (7,)):
        memory.delete("m", *rows)
        memory.delete("other", *rows)
        near(memory)
    for model in ("m", "other"):
        memory.refresh(model, RefreshSize.REBUILD)
    near(memory)
    check_noised(memory, terms)
    assert memory.load().meta.noised == memory.load("other").meta.noised
    assert verify(memory.store, "m").certified


def test_its_files_are_written_anew_before_its_budget_is_spent(memory: Platform) -> None:
    """Where rows are in the store, a polish would come first."""
    both(memory, "logistic", TERMS, budget=1.0)
    noise = noise_of(memory)
    for start in range(0, 140, 4):
        memory.delete("m", *map(int, memory.data["m"].deleted[start : start + 4]))
        newest = check_certified(memory)
        if newest.refresh is not None:
            break
    assert newest.refresh is not None
    assert newest.refresh.size is RefreshSize.REBUILD
    assert "certificate's budget" in newest.refresh.reason
    assert not np.array_equal(noise_of(memory), noise)
    assert {receipt.status for receipt in memory.finals().values()} == {"APPLIED"}
    check_row_files(memory)


def test_a_request_that_would_pass_the_budget_waits_for_a_rebuild(memory: Platform) -> None:
    both(memory, "logistic", TERMS)
    X = memory.data["m"].X
    pulling = [int(i) for i in np.argsort(-X.sum(axis=1))[:90]]
    large = memory.send_index("m", *pulling)
    memory.drain()
    assert memory.statuses(large) == ["DEFERRED", "APPLIED"]
    assert memory.load().meta.generation == 1
    check_certified(memory)
    check_row_files(memory)


def test_deletions_while_files_are_written_are_charged(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", 2)
    both(memory, "logistic", TERMS, budget=1.0)
    deleted = [int(i) for i in memory.data["m"].deleted]
    staged = staging.stage_generation

    def while_staging(*given: Any, **named: Any) -> None:
        staged(*given, **named)
        memory.send_index("m", *deleted[:9])
        memory.turn_until_decided(1)

    monkeypatch.setattr(staging, "stage_generation", while_staging)
    order = memory.ordered("m", RefreshSize.REBUILD)
    result = memory.compute_refresh(order)
    monkeypatch.setattr(staging, "stage_generation", staged)
    assert result.ledger is not None
    assert result.ledger.energy > 0  # the nine rows were charged by the job itself
    memory.delete("m", *deleted[9:11])
    memory.tell_refreshed(order)
    memory.drain()
    assert check_certified(memory).rows_deleted == 11
    check_row_files(memory)


def test_rows_of_a_certified_model_are_not_inserted(memory: Platform) -> None:
    both(memory, "logistic", TERMS)
    row = {"id": "new", "values": [0.1] * 5, "target": 1}
    request = memory.send_change("m", "insert", row)
    memory.drain()
    assert memory.final(request).code == "UNSUPPORTED"


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (ObjectiveNoise(1.0, 1e-4, 1e-14), "the fit alone leaves a gradient residual"),
        (ObjectiveNoise(1e-6, 1e-4, 1e9), r"moves theta by .* times its length"),
    ],
)
def test_terms_that_no_fit_can_keep_are_refused_and_leave_no_file(
    memory: Platform, kind: Kind, terms: ObjectiveNoise, message: str
) -> None:
    url = memory.folder()
    with pytest.raises(InvalidData, match=message):
        memory.register("m", rows_of(kind), method="exact", certify=terms, rows_url=url)
    assert not [path for path in Path(url).rglob("*") if path.is_file()]
    assert memory.versions() == []
