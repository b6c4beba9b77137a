"""The evidence of an erasure at every age and in every state, from the log and the store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.audit.auditor import ErasureAudit, audit_bundle
from lethe.consumers.audit.erasure import evidence_of
from lethe.consumers.audit.published.bundle import write_bundle
from lethe.consumers.audit.published.finding import Result
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.erasures import fan_out
from lethe.consumers.erasures.known import UnknownErasure
from lethe.consumers.log.base import Message
from lethe.consumers.suppression import marks
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.errors import InvalidRequest
from tests.integration.erasures.test_halted import HALTED, OTHER, halt, turns
from tests.support import erasures
from tests.support.erasures import erase
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform

pytestmark = pytest.mark.redis

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TRUSTED = TrustedKeys.of([SIGNER.public])


class Signed:
    """A platform whose workers sign, and the file of an erasure of it."""

    def __init__(self, platform: Platform, path: Path) -> None:
        self.platform = platform
        self.path = path
        self.log = platform.log
        platform.log = SignedLog(platform.log, lambda: SIGNER)
        platform.producer = platform.log.producer()

    def worker(self) -> ErasureWorker:
        return erasures.erasure_worker(self.platform)

    def finish(self) -> None:
        with closing(self.worker()) as worker:
            erasures.drain(self.platform, worker)

    def judged(self, erasure: str = "e-1", **options: object) -> ErasureAudit:
        platform = self.platform
        found = evidence_of(
            platform.store, platform.reader, erasure, trusted=TRUSTED, **options  # type: ignore[arg-type]
        )  # fmt: skip
        write_bundle(self.path, found.header, found.items)
        audit = audit_bundle(
            self.path, model_id=None, trusted=TRUSTED, remembered=lambda _: None, holding=None
        )
        assert isinstance(audit, ErasureAudit)
        return audit


@pytest.fixture
def signed(memory: Platform, tmp_path: Path) -> Signed:
    return Signed(memory, tmp_path / "evidence")


def results(audit: ErasureAudit) -> dict[str, Result]:
    """Return what is not as it should be in evidence that proves an erasure."""
    expected = {"subject": Result.NOT_CHECKED}
    return {
        one.check: one.result
        for one in audit.findings
        if one.result is not expected.get(one.check, Result.OK)
    }


def two_models(signed: Signed) -> None:
    for model, kind in (("churn", "linear"), ("fraud", "logistic")):
        erasures.register(signed.platform, model, kind=kind)


def test_of_models_of_both_kinds_it_has_what_each_answered_and_no_more(signed: Signed) -> None:
    two_models(signed)
    for number in (1, 2, 3):
        erase(signed.platform, f"subject-{number}", f"e-{number}")
        signed.finish()
    audit = signed.judged("e-2")

    assert results(audit) == {}
    models = audit.evidence.models
    assert [*models] == ["churn", "fraud"]
    for model in models.values():
        assert [*model.versions] == [2]
        assert len(model.receipts) == len(model.proofs) == 1


def test_one_that_waits_is_never_proved_and_says_whom_it_awaits(signed: Signed) -> None:
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    with closing(signed.worker()) as worker:
        for _ in range(3):
            erasures.turn(worker)  # asks the models; no deletion worker runs
    audit = signed.judged()

    assert results(audit) == {"erasure": Result.NOT_PROVED}
    detail = next(one.detail for one in audit.findings if one.check == "erasure")
    assert "PENDING" in detail
    assert "churn, fraud" in detail


def test_over_a_halted_model_it_has_the_answers_of_the_others(signed: Signed) -> None:
    erasures.register(signed.platform, HALTED)
    erasures.register(signed.platform, OTHER)
    signed.platform.drain()
    halt(signed.platform)
    erase(signed.platform, "subject-1", "e-1")
    with closing(signed.worker()) as worker:
        turns(signed.platform, worker)
    audit = signed.judged()

    assert results(audit) == {"erasure": Result.NOT_PROVED}
    assert HALTED in next(one.detail for one in audit.findings if one.check == "erasure")
    assert len(audit.evidence.models[OTHER].receipts) == 1


def test_one_that_no_model_knows_is_proved_by_its_combined_receipt_alone(signed: Signed) -> None:
    two_models(signed)
    erase(signed.platform, "stranger", "e-1")
    signed.finish()
    audit = signed.judged()

    assert results(audit) == {}
    assert audit.evidence.models == {}
    assert "no model knew the person" in audit.findings[1].detail


def test_rows_in_several_requests_are_all_there(
    signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "MAX_ROWS", 2)
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    signed.finish()
    audit = signed.judged()

    assert results(audit) == {}
    assert {len(model.finals) for model in audit.evidence.models.values()} == {2}


def test_receipts_that_the_log_has_removed_are_proved_by_the_receipt_log(signed: Signed) -> None:
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    signed.finish()
    log = signed.log
    assert isinstance(log, MemoryLog)
    for partition in signed.platform.reader.partitions(topics.RECEIPTS):
        log.trim(partition, log.bounds(partition).end)

    assert results(signed.judged()) == {}


@pytest.mark.parametrize("what", ["unregistered", "replaced", "registered anew"])
def test_what_became_of_a_model_later_takes_nothing_from_it(signed: Signed, what: str) -> None:
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    signed.finish()
    if what != "replaced":
        signed.platform.registrar().unregister("churn")
    if what != "unregistered":
        erasures.register(signed.platform, "churn", replace_model=what == "replaced")
    signed.finish()

    assert results(signed.judged()) == {}


def test_what_was_not_signed_yet_is_vouched_for_by_the_first_version_that_is(
    signed: Signed,
) -> None:
    signed.platform.log = signed.log
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    with (  # without a key
        closing(signed.platform.deletion_worker()) as worker,
        closing(erasures.erasure_worker(signed.platform)) as eraser,
    ):
        for _ in range(8):
            erasures.turn(eraser)
            signed.platform.turn(worker)
    signed.platform.log = SignedLog(signed.log, lambda: SIGNER)
    erase(signed.platform, "subject-1", "e-1")  # the combined receipt, signed this time
    erase(signed.platform, "subject-2", "e-2")
    signed.finish()
    audit = signed.judged()

    assert results(audit) == {}
    assert {tuple(model.versions) for model in audit.evidence.models.values()} == {(1, 2)}


def test_a_receipt_and_a_version_that_a_stranger_wrote_are_not_in_it(signed: Signed) -> None:
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    signed.finish()
    forged = [
        Message(record.partition.topic, record.key or b"", (record.value or b"") + b" ")
        for topic in (topics.RECEIPTS, topics.ERASURE_RECEIPTS)
        for record in signed.platform.records(topic)
    ]
    signed.log.producer().publish(forged)

    assert results(signed.judged()) == {}


def test_only_the_persons_own_copy_names_them(signed: Signed) -> None:
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    signed.finish()
    seals = signed.platform.seals

    assert signed.judged().evidence.opened is None
    assert b"subject-1" not in signed.path.read_bytes()
    audit = signed.judged(seals=seals, subject_id="subject-1")
    assert audit.evidence.opened == "subject-1"
    for keys, subject in (
        (seals, "subject-2"),
        (None, "subject-1"),
        (SealKeys([bytes(32)]), "subject-1"),
    ):
        with pytest.raises(InvalidRequest):
            signed.judged(seals=keys, subject_id=subject)


def test_a_commitment_of_an_older_release_is_recognised_but_not_opened(
    signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_models(signed)
    made = marks.subject_commitments
    with monkeypatch.context() as patched:
        patched.setattr(
            "lethe.consumers.erasures.admission.subject_commitments",
            lambda *asked: made(*asked)[::-1],
        )
        erase(signed.platform, "subject-1", "e-1")
        signed.finish()
    erase(signed.platform, "subject-1", "e-1")  # a repeat, and no conflict
    signed.finish()

    assert results(signed.judged()) == {}
    with pytest.raises(InvalidRequest, match="older release"):
        signed.judged(seals=signed.platform.seals, subject_id="subject-1")


def test_one_that_was_never_sent_or_has_no_receipt_yet_has_no_evidence(signed: Signed) -> None:
    two_models(signed)
    erase(signed.platform, "subject-1", "e-1")
    for erasure in ("e-1", "never"):
        with pytest.raises(UnknownErasure, match=repr(erasure)):
            signed.judged(erasure)
