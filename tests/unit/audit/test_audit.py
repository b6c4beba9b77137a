"""The checks of an audit on histories made by hand: what real runs seldom have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.audit.published.checks import history_findings
from lethe.consumers.audit.published.finding import Result
from lethe.consumers.audit.published.history import History
from lethe.consumers.contract import cloudevents, topics, version_chain
from lethe.consumers.contract.events import (
    DELETION_RECEIPT,
    MODEL_PARAMETERS,
    MODEL_VERSION,
    RefreshInfo,
    Source,
    SourceRange,
    Version,
)
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.log.base import Headers, Partition, Record
from lethe.engine.merkle import Frontier, leaf_hash
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.records import LogHead
from tests.support.published import Release, release

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEYS = TrustedKeys.of([SIGNER.public])
TYPES = {
    topics.VERSIONS: MODEL_VERSION,
    topics.RECEIPTS: DELETION_RECEIPT,
    topics.MODELS: MODEL_PARAMETERS,
}
BEGAN = release(None, [1.0, 0.0]).version.created_at


class Life:
    """A model's history as it would lie in the log, one version a request."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.receipts: list[Receipt] = []
        self.leaves: list[bytes] = []
        self.newest = release(None, [1.0, 0.0])
        self.version()

    def version(self, *receipts: Receipt, **changes: Any) -> Version:
        """Publish some receipts, and the version that they are in."""
        number = len(self.versions)
        before = self.versions[-1] if self.versions else None
        applied = [one for one in receipts if one.version == number]
        gone = sum(one.rows_deleted for one in applied)
        self.leaves += [leaf_hash(one.value()) for one in receipts if one.final]
        self.receipts += receipts
        root = Frontier().appended(self.leaves).root.hex()
        made = release(None, [1.0, 0.0]).version.model_copy(
            update={
                "version": number,
                "commit": number,
                "commit_prev": "" if before is None else f"{number - 1:064x}",
                "prev_digest": "" if before is None else before.digest,
                "created_at": BEGAN + timedelta(seconds=10 * number),
                "request_ids": tuple(one.request_id for one in applied),
                "rows_deleted": gone if before is None else before.rows_deleted + gone,
                "rows_live": 100 if before is None else before.rows_live - gone,
                "source": None
                if before is None
                else SourceRange(topic="t", partition=0, first_offset=1, last_offset=1),
                "receipt_log": LogHead(size=len(self.leaves), root=root),
                **changes,
            }
        )
        made = made.model_copy(update={"digest": version_chain.version_digest(made)})
        self.versions.append(made)
        parameters = self.newest.parameters.model_copy(
            update={"version": number, "digest": made.digest, "prev_digest": made.prev_digest}
        )
        self.newest = Release(made, parameters)
        return made

    def receipt(self, request: str, status: str = "APPLIED", **changes: Any) -> Receipt:
        """Return a receipt for the next version."""
        values: dict[str, Any] = {
            "request_id": request,
            "model_id": "churn",
            "status": status,
            "rows_deleted": int(status == "APPLIED"),
            "version": None if status == "REJECTED" else len(self.versions),
            "generation": None if status == "REJECTED" else 0,
            "source": Source(topic="t", partition=0, offset=1),
            "completed_at": BEGAN + timedelta(seconds=10 * len(self.versions)),
            **changes,
        }
        return Receipt(**values)

    def records(self, signed: Sequence[int] = ()) -> list[Record]:
        """Return it all, signed from some versions on."""
        values = [(topics.VERSIONS, one.version, one.value()) for one in self.versions]
        values += [(topics.RECEIPTS, one.version or 0, one.value()) for one in self.receipts]
        parameters = self.newest.parameters
        values.append((topics.MODELS, parameters.version, parameters.value()))
        return [
            record(topic, offset, value, signed=number in signed)
            for offset, (topic, number, value) in enumerate(values)
        ]


def record(topic: str, offset: int, value: bytes, *, signed: bool = False) -> Record:
    headers: Headers = cloudevents.headers(TYPES[topic], str(offset), BEGAN, "churn")
    if signed:
        headers = SIGNER.signed(TYPES[topic], value, headers)
    return Record(Partition(topic, "", 0), offset, b"churn", value, headers)


def judged(
    records: Sequence[Record], *, leaves: Sequence[bytes] = (), trusted: bool = False
) -> dict[str, tuple[Result, str]]:
    history = History("churn", KEYS if trusted else None)
    history.read([*records, b"".join(leaves)])
    found = history_findings(history, trusted=trusted)
    return {one.check: (one.result, one.detail) for one in found}


def failed(found: dict[str, tuple[Result, str]]) -> dict[str, str]:
    return {name: detail for name, (result, detail) in found.items() if result is Result.FAILED}


def test_a_history_made_by_hand_is_sound_and_repeats_change_nothing() -> None:
    life = Life()
    life.version(life.receipt("a"), life.receipt("b", "REJECTED", code="UNKNOWN_ROWS"))
    life.version(life.receipt("c"))
    records = life.records()
    again = [record(r.partition.topic, r.offset + 100, r.value or b"") for r in records]

    for found in (judged(records, leaves=life.leaves), judged([*records, *again])):
        assert failed(found) == {}
        assert found["receipt log"][0] is Result.OK
        assert found["receipts"][1].startswith("3 requests")


def test_leaves_that_nobody_gave_follow_from_the_receipts() -> None:
    life = Life()
    life.version(life.receipt("a"))
    life.version(life.receipt("b"), life.receipt("c"))

    found = judged(life.records())
    assert failed(found) == {}
    assert found["receipt log"] == (Result.OK, "3 receipts; the tree head of every version matches")
    del life.receipts[2]
    assert "receipt log" in failed(judged(life.records()))


def test_what_is_older_than_signatures_is_vouched_for_and_what_is_newer_must_be_signed() -> None:
    life = Life()
    for request in "abc":
        life.version(life.receipt(request))

    rotated = judged(life.records(signed=(2, 3)), leaves=life.leaves, trusted=True)
    assert failed(rotated) == {}
    assert rotated["signatures"][0] is Result.OK
    stripped = judged(life.records(signed=(1, 3)), leaves=life.leaves, trusted=True)
    assert failed(stripped) == {"signatures": "version 2 is not signed, but version 1 before it is"}
    nothing = judged(life.records(), leaves=life.leaves, trusted=True)
    assert "no version is signed" in failed(nothing)["signatures"]


def test_what_was_said_before_the_model_existed_does_not_count() -> None:
    life = Life()
    early = life.receipt("a", "REJECTED", code="UNKNOWN_MODEL", completed_at=BEGAN)
    life.receipts.append(early)
    life.version(life.receipt("b"))
    life.version(life.receipt("a"))

    assert failed(judged(life.records(), leaves=life.leaves)) == {}
    assert failed(judged(life.records())) == {}  # its place in the log is that of its answer
    forged = life.receipt("a", "REJECTED", code="UNKNOWN_ROWS", version=None)
    life.receipts.append(forged)
    wrong = failed(judged(life.records(), leaves=life.leaves))
    detail = "request 'a' has two different final receipts: APPLIED and REJECTED"
    assert wrong == {"receipts": detail}


@pytest.mark.parametrize("refreshed", [True, False])
def test_only_a_rebuild_may_find_that_others_deleted_the_rows(*, refreshed: bool) -> None:
    refresh = RefreshInfo(job_id="j", size=RefreshSize.REBUILD, reason="", seconds=1.0)
    life = Life()
    life.receipts.append(life.receipt("a", "DEFERRED", code="GENERATION_FULL", version=0))
    life.version(life.receipt("a", "ALREADY_APPLIED"), refresh=refresh if refreshed else None)

    found = failed(judged(life.records(), leaves=life.leaves))
    assert found.keys() == (set() if refreshed else {"receipts"})


def test_a_store_that_forgot_deletions_is_seen_where_it_was_registered_anew() -> None:
    life = Life()
    life.version(life.receipt("a"))
    life.version(rows_deleted=0, source=None)

    found = failed(judged(life.records(), leaves=life.leaves))
    assert found == {"rows deleted": "version 2 deleted -1 rows, but its receipts say 0"}


@pytest.mark.parametrize("first", [True, False])
def test_other_parameters_of_the_newest_version_are_a_fault(*, first: bool) -> None:
    life = Life()
    life.version(life.receipt("a"))
    forged = life.newest.parameters.model_copy(update={"digest": "0" * 64})
    records = life.records()
    made_up = record(topics.MODELS, 0 if first else 99, forged.value())
    records = [made_up, *records] if first else [*records, made_up]
    records = [r if r is made_up else replace(r, offset=r.offset + 1) for r in records]

    found = failed(judged(records, leaves=life.leaves))
    assert found == {"parameters": "there are others for version 1, which no version names"}


def test_parameters_of_a_version_that_is_not_there_are_a_fault() -> None:
    life = Life()
    life.version(life.receipt("a"))
    records = [one for one in life.records() if b'"version":1' not in (one.value or b"")]
    parameters = record(topics.MODELS, 99, life.newest.parameters.value())

    assert "it was truncated" in failed(judged([*records, parameters]))["parameters"]


def test_a_log_of_receipts_that_shrinks_or_ends_is_refused() -> None:
    life = Life()
    life.version(life.receipt("a"))
    empty = LogHead(size=0, root=Frontier().root.hex())
    life.version(receipt_log=empty)
    assert "has shrunk to 0" in failed(judged(life.records(), leaves=life.leaves))["receipt log"]

    life = Life()
    life.version(life.receipt("a"))
    life.version(receipt_log=None)
    assert "has no tree head" in failed(judged(life.records(), leaves=life.leaves))["receipt log"]


@pytest.mark.parametrize("status", ["APPLIED", "ALREADY_APPLIED"])
def test_no_receipt_stands_behind_one_of_a_later_version(status: str) -> None:
    life = Life()
    life.version(life.receipt("a"))
    life.version(life.receipt("b"))
    life.receipts.append(life.receipt("c", status, version=1))

    wrong = failed(judged(life.records(), leaves=life.leaves))
    assert "comes after one of version 2" in wrong["receipts"]


def test_a_version_of_an_earlier_commit_breaks_the_chain() -> None:
    life = Life()
    life.version(life.receipt("a"))
    life.version(commit=1)
    found = failed(judged(life.records(), leaves=life.leaves))
    assert "commit 1 does not follow commit 1 of the version before" in found["chain"]
