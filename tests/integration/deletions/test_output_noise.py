"""Models with noise on their output, through the workers: each version within what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.contract import topics
from lethe.consumers.contract.version_chain import theta_of
from lethe.engine.error.terms import OutputNoise
from lethe.engine.errors import InvalidData
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.records import OutputCertificateRecord
from tests.support.families import Array
from tests.support.noise import LINEAR, LOGISTIC, check_noised, rows_of
from tests.support.platform import Platform


def published(platform: Platform) -> Array:
    """Return the newest published theta, as subscribers see it."""
    return theta_of(platform.parameters("m"))


@pytest.mark.parametrize(("kind", "terms"), [("linear", LINEAR), ("logistic", LOGISTIC)])
def test_every_version_has_fresh_noise_and_lies_within_alpha_without_it(
    memory: Platform, kind: str, terms: OutputNoise
) -> None:
    memory.register("m", rows_of(kind), method="exact", budget=0.5, certify=terms)
    noises = []
    for start in range(0, 40, 8):
        memory.delete("m", *map(int, memory.data["m"].deleted[start : start + 8]))
        check_noised(memory, terms)
        noises.append(published(memory) - memory.load().stream.theta_exact)
    assert len({noise.tobytes() for noise in noises}) == len(noises)
    assert {receipt.status for receipt in memory.finals().values()} == {"APPLIED"}
    newest = memory.newest_version().certificate
    assert isinstance(newest, OutputCertificateRecord)
    assert newest.noised == memory.load().meta.noised == 6
    assert 0 < newest.epsilon_spent < newest.epsilon == 1.0
    found = verify(memory.store, "m")
    assert found.holds
    assert found.certified


def test_a_step_that_no_bound_covers_waits_for_a_rebuild(memory: Platform) -> None:
    """The sentinels' estimate is no proof: a logistic step beyond alpha is deferred."""
    terms = OutputNoise(1.0, 1e-4, 1e-8, 100)
    memory.register("m", rows_of("logistic"), method="exact", budget=0.5, certify=terms)
    request = memory.delete("m", *range(30))
    codes = [r.code for r in memory.receipts() if r.request_id == request]
    assert codes == ["CERTIFICATE_SPENT", None]
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    check_noised(memory, terms)


def test_the_same_rows_are_published_with_the_same_noise(memory: Platform) -> None:
    """A refresh reveals nothing new, and takes none of the versions that the terms allow."""
    memory.register("m", rows_of("logistic"), method="exact", budget=0.5, certify=LOGISTIC)
    memory.delete("m", 1, 2, 3)
    before = published(memory)
    for size in (RefreshSize.POLISH, RefreshSize.COMPACT, RefreshSize.REBUILD):
        memory.refresh("m", size)
        assert memory.newest_version().refresh is not None
        assert np.array_equal(published(memory), before)
        assert memory.load().meta.noised == 2
        check_noised(memory, LOGISTIC)


def test_after_the_last_version_requests_wait_for_other_terms(memory: Platform) -> None:
    terms = OutputNoise(1.0, 1e-4, 1e-9, 2)
    data = rows_of("linear")
    memory.register("m", data, method="exact", budget=0.5, certify=terms)
    memory.delete("m", 1, 2)
    held, version = published(memory), memory.newest_version().version
    request = memory.delete("m", 3, 4)
    [waits] = [r for r in memory.receipts() if r.request_id == request]
    assert (waits.status, waits.code) == ("DEFERRED", "VERSIONS_SPENT")
    assert waits.detail is not None
    assert "lethe register --replace" in waits.detail
    memory.refresh("m", RefreshSize.REBUILD)
    assert np.array_equal(published(memory), held)
    assert memory.statuses(request) == ["DEFERRED"]
    assert memory.newest_version().version == version + 1  # the rebuild, without its rows
    memory.register("m", data, method="exact", budget=0.5, certify=LINEAR, replace_model=True)
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    check_noised(memory, LINEAR)


def test_no_message_says_how_far_theta_is_from_what_is_published(memory: Platform) -> None:
    """Nor how far theta_exact is from retraining: both depend on the rows."""
    memory.register("m", rows_of("linear"), method="exact", budget=0.5, certify=LINEAR)
    memory.delete("m", 1, 2, 3)
    state = memory.load()
    away = float(np.linalg.norm(state.stream.published - state.stream.theta_exact))
    said = b"".join(
        record.value or b""
        for topic in (topics.MODELS, topics.VERSIONS, topics.RECEIPTS, topics.REFRESH_JOBS)
        for record in memory.records(topic)
    )
    assert b"epsilon_spent" in said
    assert repr(away)[:10].encode() not in said
    errors = {version.error.value for version in memory.versions()}
    assert errors == {LINEAR.alpha + LINEAR.radius((6, 1))}


def test_an_empty_model_is_zero_without_noise(memory: Platform) -> None:
    memory.register("m", rows_of("linear", n=40), method="exact", budget=0.5, certify=LINEAR)
    memory.delete("m", *range(40))
    assert memory.newest_version().status == "EMPTY"
    assert not published(memory).any()


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (OutputNoise(1.0, 1e-4, 1e-18, 100), "raise alpha"),
        (OutputNoise(1.0, 1e-4, 10.0, 100), "the noise alone may move theta by"),
    ],
)
def test_terms_that_the_model_cannot_keep_are_refused(
    memory: Platform, terms: OutputNoise, message: str
) -> None:
    with pytest.raises(InvalidData, match=message):
        memory.register("m", rows_of("linear"), method="exact", budget=0.5, certify=terms)
    assert memory.versions() == []
