"""Certified models through the workers: nothing is published that the noise does not hide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.contract import topics
from lethe.consumers.refresh import new_generation
from lethe.engine.error import gaussian
from lethe.engine.error.certified import REFRESH_AT
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import InvalidData
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.records import CertificateRecord
from lethe.engine.store.offline import staging
from lethe.engine.store.offline.jobs import read_result, write_result
from tests.support.noise import TERMS, check_certified, noise_of, rows_of
from tests.support.platform import Platform


@pytest.fixture(autouse=True)
def seeded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is another at each draw and the same in each run."""
    rng = np.random.default_rng(11)
    monkeypatch.setattr(
        gaussian, "draw_noise", lambda shape, sigma: sigma * rng.standard_normal(shape)
    )


def test_a_stream_is_refreshed_before_its_budget_and_every_version_is_certified(
    memory: Platform,
) -> None:
    """A polish makes room first, keeping the noise; a rebuild next, with fresh noise."""
    memory.register("m", rows_of("logistic"), method="exact", budget=1.0, certify=TERMS)
    first = noise_of(memory)
    seen: list[tuple[RefreshSize, float, float]] = []
    for start in range(0, 140, 4):
        memory.send_index("m", *map(int, memory.data["m"].deleted[start : start + 4]))
        before = memory.newest_version()
        memory.drain()
        newest = check_certified(memory)
        if newest.refresh is not None:
            at = memory.versions()[-2].certificate
            assert isinstance(at, CertificateRecord)
            assert at.spent > REFRESH_AT * TERMS.budget
            assert isinstance(newest.certificate, CertificateRecord)
            assert newest.certificate.spent < 0.01 * TERMS.budget
            same = np.array_equal(noise_of(memory), first)
            assert same == (newest.refresh.size is RefreshSize.POLISH and not seen)
            seen.append((newest.refresh.size, at.spent, newest.certificate.spent))
            assert "certificate's budget" in newest.refresh.reason
            if len({size for size, *_ in seen}) == 2:
                break
        else:
            assert newest.version == before.version + 1
    assert [size for size, *_ in seen] == [RefreshSize.POLISH, RefreshSize.REBUILD]
    statuses = {receipt.status for receipt in memory.finals().values()}
    assert statuses == {"APPLIED"}
    assert all(receipt.certificate is not None for receipt in memory.finals().values())
    found = verify(memory.store, "m")
    assert found.holds
    assert found.certified


def test_a_request_that_would_pass_the_budget_waits_for_a_rebuild(memory: Platform) -> None:
    memory.register("m", rows_of("logistic"), method="exact", budget=10.0, certify=TERMS)
    X = memory.data["m"].X
    pulling = [int(i) for i in np.argsort(-X.sum(axis=1))[:90]]
    large = memory.send_index("m", *pulling)
    small = memory.send_index("m", *(i for i in range(6) if i not in pulling))
    memory.drain()
    deferred = next(r for r in memory.receipts() if r.request_id == large)
    assert (deferred.status, deferred.code) == ("DEFERRED", "CERTIFICATE_SPENT")
    assert memory.statuses(large) == ["DEFERRED", "APPLIED"]
    assert memory.statuses(small) == ["APPLIED"]
    assert memory.load().meta.generation == 1
    check_certified(memory)


def test_a_linear_model_spends_rounding_only(memory: Platform) -> None:
    memory.register("m", rows_of("linear"), method="exact", certify=TERMS)
    for start in range(0, 120, 8):
        memory.send_index("m", *map(int, memory.data["m"].deleted[start : start + 8]))
    memory.drain()
    newest = check_certified(memory)
    assert newest.generation == 0
    assert isinstance(newest.certificate, CertificateRecord)
    assert 0 < newest.certificate.spent < 1e-9 * newest.certificate.budget
    found = verify(memory.store, "m")
    assert found.holds
    assert found.certified


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("linear", RefreshSize.COMPACT),
        ("linear", RefreshSize.REBUILD),
        ("logistic", RefreshSize.POLISH),
        ("logistic", RefreshSize.COMPACT),
        ("logistic", RefreshSize.REBUILD),
    ],
)
def test_deletions_during_a_refresh_are_charged(
    memory: Platform, kind: str, size: RefreshSize
) -> None:
    memory.register("m", rows_of(kind), method="exact", budget=1.0, certify=TERMS)
    deleted = [int(i) for i in memory.data["m"].deleted]
    memory.delete("m", *deleted[:10])
    before = noise_of(memory)
    order = memory.ordered("m", size)
    memory.compute_refresh(order)
    for start in (10, 13):
        memory.delete("m", *deleted[start : start + 3])
    memory.tell_refreshed(order)
    memory.drain()
    newest = check_certified(memory)
    assert newest.refresh is not None
    assert newest.refresh.size is size
    assert (size is RefreshSize.REBUILD) == (not np.array_equal(before, noise_of(memory)))
    memory.delete("m", *deleted[16:20])
    check_certified(memory)


def test_a_rebuild_learns_of_many_deletions_and_charges_them(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", 2)
    memory.register("m", rows_of("logistic"), method="exact", budget=1.0, certify=TERMS)
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
    newest = check_certified(memory)
    assert newest.generation == 1
    assert newest.rows_deleted == 11


def test_a_refresh_that_would_be_uncertified_is_dropped(memory: Platform) -> None:
    """Deletions during a polish are charged by what they can have left at most; here, a lot."""
    memory.register("m", rows_of("logistic"), method="exact", budget=10.0, certify=TERMS)
    deleted = [int(i) for i in memory.data["m"].deleted]
    memory.delete("m", *deleted[:20])
    order = memory.ordered("m", RefreshSize.POLISH)
    result = memory.compute_refresh(order)
    assert result.reference is not None
    far = replace(result.reference, missed=0.6 * TERMS.budget)
    state = memory.load()
    found = read_result(memory.store.client, state.keys, order.job_id)
    assert isinstance(found, tuple)
    shape = state.stream.theta_exact.shape
    arrays = {n: codec.unpack(found[1][n.encode()], shape, n) for n in ("theta", "theta_snapshot")}
    changed = result.model_copy(update={"reference": far})
    write_result(memory.store.client, changed, arrays)
    memory.delete("m", *deleted[20:22])
    memory.tell_refreshed(order)
    memory.drain()
    newest = check_certified(memory)
    assert newest.refresh is None
    assert newest.rows_deleted == 22
    write_result(memory.store.client, result, arrays)  # as it was, it fits
    memory.tell_refreshed(order)
    memory.drain()
    check_certified(memory)
    refreshes = [version.refresh for version in memory.versions() if version.refresh]
    assert refreshes[0].job_id == order.job_id


def test_a_replacement_begins_a_certificate_of_its_own(memory: Platform) -> None:
    data = rows_of("logistic")
    memory.register("m", data, method="exact", certify=TERMS)
    first = noise_of(memory)
    memory.delete("m", 1, 2, 3)
    other = ObjectiveNoise(0.5, 1e-5, 4.0)
    memory.register("m", data, method="exact", certify=other, replace_model=True)
    memory.drain()
    newest = check_certified(memory)
    assert isinstance(newest.certificate, CertificateRecord)
    assert newest.certificate.budget == pytest.approx(other.budget)
    assert not np.array_equal(noise_of(memory), first)
    memory.register("m", data, method="pru", replace_model=True)
    assert memory.newest_version().certificate is None
    assert memory.load().meta.ledger is None


def test_an_empty_model_has_spent_nothing(memory: Platform) -> None:
    memory.register("m", rows_of("logistic", n=40), method="exact", budget=10.0, certify=TERMS)
    memory.delete("m", *range(40))
    newest = memory.newest_version()
    assert newest.status == "EMPTY"
    assert isinstance(newest.certificate, CertificateRecord)
    assert newest.certificate.spent == 0.0
    assert memory.load().generation.objective.linear is None


def test_the_noise_is_in_no_message(memory: Platform) -> None:
    memory.register("m", rows_of("logistic"), method="exact", budget=1.0, certify=TERMS)
    secrets = [noise_of(memory)]
    memory.delete("m", 1, 2, 3)
    memory.refresh("m", RefreshSize.POLISH)
    memory.refresh("m", RefreshSize.REBUILD)
    secrets.append(noise_of(memory))
    said = b"".join(
        record.value or b""
        for topic in (topics.MODELS, topics.VERSIONS, topics.RECEIPTS, topics.REFRESH_JOBS)
        for record in memory.records(topic)
    )
    assert b"certificate" in said
    for noise in secrets:
        for value in noise.ravel():
            assert repr(float(value))[:12].encode() not in said


@pytest.mark.parametrize("method", ["pru", "influence"])
def test_refused_with_another_method(memory: Platform, method: str) -> None:
    with pytest.raises(InvalidData, match="certified removal needs --method exact, not"):
        memory.register("m", rows_of("linear"), method=method, certify=TERMS)
    assert memory.versions() == []


def test_refused_when_the_fit_alone_takes_the_room(memory: Platform) -> None:
    with pytest.raises(InvalidData, match="the fit alone leaves a gradient residual"):
        memory.register(
            "m", rows_of("linear"), method="exact", certify=ObjectiveNoise(1.0, 1e-4, 1e-14)
        )
    assert memory.versions() == []


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_refused_when_the_noise_leaves_nothing_of_the_data(memory: Platform, kind: str) -> None:
    with pytest.raises(InvalidData, match=r"moves theta by .* times its length"):
        memory.register("m", rows_of(kind), method="exact", certify=ObjectiveNoise(1e-6, 1e-4, 1e9))
    assert memory.versions() == []


def test_a_model_without_a_certificate_does_not_know_the_word(memory: Platform) -> None:
    memory.register("m", rows_of("linear"), method="exact")
    memory.delete("m", 1)
    for topic in (topics.MODELS, topics.VERSIONS, topics.RECEIPTS):
        assert all(b'"certificate":' not in (r.value or b"") for r in memory.records(topic))
    memory.register("n", rows_of("linear"), method="exact", certify=TERMS)
    assert any(b'"certificate":' in (r.value or b"") for r in memory.records(topics.VERSIONS))
