"""The checks of an audit on histories made by hand: what real runs seldom have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from consumers import chain, cloudevents, topics
from consumers.audit.checks import history_findings
from consumers.audit.finding import Result
from consumers.audit.history import History
from consumers.events import (
    DELETION_RECEIPT,
    MODEL_PARAMETERS,
    MODEL_VERSION,
    Receipt,
    RefreshInfo,
    Source,
    SourceRange,
    Version,
)
from consumers.log.base import Headers, Partition, Record
from consumers.signing import Signer, TrustedKeys
from engine.merkle import Frontier, leaf_hash
from engine.policy import Size
from engine.store.receipt_log import LogHead
from tests.published import Release, release

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

    def __init__(self, *, receipt_log_from: int = 0) -> None:
        self.log_from = receipt_log_from
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
        if number >= self.log_from:
            self.leaves += [leaf_hash(one.value()) for one in receipts if one.final]
        self.receipts += receipts
        root = Frontier().appended(self.leaves).root.hex()
        made = release(None, [1.0, 0.0]).version.model_copy(
            update={
                "version": number,
                "prev_digest": "" if before is None else before.digest,
                "created_at": BEGAN + timedelta(seconds=10 * number),
                "request_ids": tuple(one.request_id for one in applied),
                "rows_deleted": gone if before is None else before.rows_deleted + gone,
                "rows_live": 100 if before is None else before.rows_live - gone,
                "source": None
                if before is None
                else SourceRange(topic="t", partition=0, first_offset=1, last_offset=1),
                "receipt_log": LogHead(size=len(self.leaves), root=root)
                if number >= self.log_from
                else None,
                **changes,
            }
        )
        made = made.model_copy(update={"digest": chain.version_digest(made)})
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


def test_leaves_that_nobody_gave_are_found_behind_receipts_that_are_older_than_the_log() -> None:
    life = Life(receipt_log_from=2)
    life.version(life.receipt("a"))
    life.version(life.receipt("b"), life.receipt("c"))
    life.version(life.receipt("d"))

    found = judged(life.records())
    assert failed(found) == {}
    assert found["receipt log"] == (Result.OK, "3 receipts; every tree head from version 2 on")
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
    assert failed(stripped) == {"signatures": "version 2 is not signed, and version 1 before it is"}
    nothing = judged(life.records(), leaves=life.leaves, trusted=True)
    assert "no version is signed" in failed(nothing)["signatures"]


def test_what_was_said_before_the_model_existed_does_not_count() -> None:
    life = Life()
    early = life.receipt("a", "REJECTED", code="UNKNOWN_MODEL", completed_at=BEGAN)
    life.receipts.append(early)
    life.version(life.receipt("a"))

    assert failed(judged(life.records(), leaves=life.leaves)) == {}


@pytest.mark.parametrize("refreshed", [True, False])
def test_only_a_rebuild_may_find_that_others_deleted_the_rows(*, refreshed: bool) -> None:
    refresh = RefreshInfo(job_id="j", size=Size.REBUILD, reason="", seconds=1.0)
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
    assert found == {"rows deleted": "version 2 deleted -1 rows, its receipts say 0"}


def test_parameters_that_no_version_came_to_name_are_no_fault() -> None:
    life = Life()
    life.version(life.receipt("a"))
    lost = life.newest.parameters.model_copy(update={"digest": "0" * 64})
    records = [record(topics.MODELS, 0, lost.value()), *life.records()[:-1]]
    newest = record(topics.MODELS, 99, life.newest.parameters.value())

    assert failed(judged([*records, newest], leaves=life.leaves)) == {}
    assert failed(judged(records, leaves=life.leaves)).keys() == {"parameters"}


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


def test_an_answer_may_stand_behind_the_receipts_of_a_version_that_was_lost() -> None:
    """Version 2 was made again; meanwhile a request was answered that made none, in version 1."""
    life = Life()
    life.version(life.receipt("a"))
    behind = life.receipt("c", "ALREADY_APPLIED", version=1)
    life.version(life.receipt("b"), behind)
    assert failed(judged(life.records(), leaves=life.leaves)) == {}
    # But no deletion of an earlier version does
    life.version(life.receipt("d"))
    life.receipts[0], life.receipts[-1] = life.receipts[-1], life.receipts[0]
    wrong = failed(judged(life.records(), leaves=life.leaves))
    assert "stands behind one of version 3" in wrong["receipts"]
