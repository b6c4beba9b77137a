"""The report on one request: where signing was switched on, and where a signature is unreadable."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.audit.auditor import audit_model
from lethe.consumers.audit.published.finding import Result
from lethe.consumers.audit.request.report import RequestReport, report_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.signatures import HEADER, Signer, TrustedKeys
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.log.base import Message
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.deletion_worker import DeletionWorker
from tests.integration.deletions.test_deferral import leveraged
from tests.support.platform import Platform

pytestmark = pytest.mark.redis

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TRUSTED = TrustedKeys.of([SIGNER.public])


def report(platform: Platform, request: str) -> RequestReport:
    return report_of(platform.store, platform.reader, request, None, TRUSTED)


def failed(platform: Platform) -> dict[str, str]:
    audit = audit_model(
        platform.store, platform.reader, "m", trusted=TRUSTED, seals=platform.seals, bound=False
    )
    return {one.check: one.detail for one in audit.findings if one.result is Result.FAILED}


class Switched:
    """A worker without a key that dies after it has published; started again, it has one."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.key: Signer | None = None
        platform.log = SignedLog(platform.log, lambda: self.key)
        self.worker = platform.deletion_worker(signer=lambda: self.key, at_step=self._die)

    def _die(self, step: str) -> None:
        if step == Step.ADVANCE and self.key is None:
            raise InterruptedError

    def restart(self) -> DeletionWorker:
        with pytest.raises(InterruptedError):
            self.platform.drain(self.worker)
        self.key = SIGNER
        self.worker.recover()
        self.platform.drain(self.worker)
        return self.worker


def signed(platform: Platform, topic: str) -> list[bool]:
    """Return whether each record of a topic is signed, in the order of the log."""
    return [any(name == HEADER for name, _ in one.headers) for one in platform.records(topic)]


def test_a_version_that_only_its_repeat_signs_is_signed(memory: Platform) -> None:
    memory.register("m")
    first = memory.send_index("m", 1)
    worker = Switched(memory).restart()
    assert signed(memory, topics.VERSIONS) == [False, False, True]

    assert report(memory, first).faults() == []  # no later version vouches for it
    assert failed(memory).keys() == {"commits: signatures"}  # which are not sealed again
    second = memory.send_index("m", 2)
    memory.drain(worker)
    assert report(memory, first).faults() == []
    assert report(memory, second).faults() == []
    assert failed(memory) == {}


def test_a_deferral_that_only_its_repeat_signs_is_signed(memory: Platform) -> None:
    memory.register("m", leveraged("linear"), method="exact", budget=10.0)
    memory.send_index("m", 10, 11)
    offender = memory.send_index("m", 0, 12)
    worker = Switched(memory).restart()
    assert signed(memory, topics.RECEIPTS) == [False, False, True, True]

    told = report(memory, offender)
    assert told.last.receipt.status == "DEFERRED"
    assert told.version is not None
    assert told.faults() == []
    memory.send_index("m", 14)
    memory.drain(worker)
    assert report(memory, offender).faults() == []
    assert failed(memory) == {}


def test_a_signature_header_that_cannot_be_read_is_a_wrong_signature(memory: Platform) -> None:
    """A signed version vouches for what is unsigned, which this does not claim to be."""
    memory.register("m")
    request = memory.send_index("m", 1)
    memory.drain()
    [receipt] = memory.records(topics.RECEIPTS)
    memory.log.trim(receipt.partition, receipt.offset + 1)  # type: ignore[attr-defined]
    odd = Message(topics.RECEIPTS, b"m", receipt.value, ((HEADER, b"x"),))
    memory.producer.publish([odd])
    memory.pair[0].close()
    memory.log = SignedLog(memory.log, lambda: SIGNER)
    later = memory.deletion_worker(signer=lambda: SIGNER)
    memory.send_index("m", 2)
    memory.drain(later)

    told = report(memory, request)
    assert told.history.signed is not None
    assert told.inclusion is not None
    assert told.inclusion.verified
    assert told.last.signature.key_id == "?"
    [fault] = told.faults()
    assert "does not hold an Ed25519 signature" in fault
