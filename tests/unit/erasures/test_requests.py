"""What an erasure is, what it becomes, and what stands for a subject."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.contract.commitment import subject_commitment
from lethe.consumers.contract.erasure_events import SUBJECT_ERASURE_REQUESTED
from lethe.consumers.contract.requests import request_message
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.deletions.validate import Invalid, Valid, validate
from lethe.consumers.erasures import fan_out
from lethe.consumers.erasures.fan_out import request_id_of, requests_to
from lethe.consumers.erasures.models import Registered
from lethe.consumers.erasures.request import ErasureRequest, validate_erasure
from lethe.consumers.log.base import Headers, Partition, Record
from lethe.consumers.suppression.marks import (
    marks_of,
    opening_salt,
    secret_of,
    subject_commitments,
    subject_salts,
)

MODEL = Registered("churn", "first", "", {})
OLD, NEW = bytes(range(32)), bytes(range(1, 33))


def record(value: bytes | None, headers: Headers = ()) -> Record:
    place = Partition("lethe.erasures", "id", 0)
    return Record(place, 7, b"h7", value, headers, timestamp_ms=1_000_000)


def signer_of(seed: int) -> Signer:
    return Signer(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def request(**members: Any) -> Record:
    return record(json.dumps({"erasure_id": "e-1", "subject_id": "h7", **members}).encode())


def test_an_erasure_takes_its_id_from_the_event_where_it_names_none() -> None:
    read = validate_erasure(
        record(
            b'{"subject_id": 7}',
            (("ce_id", b"e-9"), ("ce_type", b"lethe.subject.erasure.requested.v1")),
        ),
        None,
    )
    assert isinstance(read, ErasureRequest)
    assert (read.erasure_id, read.event.subject_id, read.namespace) == ("e-9", "7", "")


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"nothing", b"[]", b'"x"', b"{}", b"[" * 5000,
        b'{"erasure_id": "e"}', b'{"subject_id": "s"}',
        b'{"erasure_id": "e", "subject_id": true}',
        b'{"erasure_id": "e", "subject_id": ""}',
        b'{"erasure_id": "e", "subject_id": "s", "namespace": ""}',
        b'{"erasure_id": "e", "subject_id": "s", "lift": 1}',
        b'{"erasure_id": "e", "erasure_id": "f", "subject_id": "s"}',
        json.dumps({"erasure_id": "e" * 129, "subject_id": "s"}).encode(),
        json.dumps({"erasure_id": "e", "subject_id": "s", "reason": "x" * (1 << 20)}).encode(),
    ],
    ids=range(16),
)  # fmt: skip
def test_what_is_no_erasure_is_refused(value: bytes | None) -> None:
    read = validate_erasure(record(value), None)
    assert isinstance(read, Invalid)
    assert (read.code, len(read.detail) <= 300) == ("INVALID_REQUEST", True)


def test_an_event_of_another_type_is_refused() -> None:
    read = validate_erasure(record(request().value, (("ce_type", b"lethe.rows.changed.v1"),)), None)
    assert isinstance(read, Invalid)


def test_where_requests_are_signed_an_erasure_needs_a_key_for_every_model() -> None:
    anybody, some, stranger = signer_of(1), signer_of(2), signer_of(3)
    keys = RequestKeys(
        TrustedKeys.of([anybody.public, some.public]), {some.key_id: ("churn", "risk-*")}
    )
    value = request().value or b""

    def signed_by(signer: Signer) -> ErasureRequest | Invalid:
        headers = signer.signed(SUBJECT_ERASURE_REQUESTED, value, ())
        return validate_erasure(record(value, headers), keys)

    assert isinstance(signed_by(anybody), ErasureRequest)
    for signer in (some, stranger):
        refused = signed_by(signer)
        assert isinstance(refused, Invalid)
        assert refused.code == "UNAUTHENTICATED"
    assert isinstance(validate_erasure(request(), keys), Invalid)


def test_a_signature_does_not_cover_an_id_from_the_headers() -> None:
    signer = signer_of(1)
    value = b'{"subject_id": "h7"}'
    headers = signer.signed(SUBJECT_ERASURE_REQUESTED, value, (("ce_id", b"e-9"),))
    keys = RequestKeys(TrustedKeys.of([signer.public]), {})
    assert isinstance(validate_erasure(record(value, headers), keys), Invalid)


def test_a_model_is_asked_by_subject_and_the_request_is_a_valid_one() -> None:
    read = validate_erasure(request(), None)
    assert isinstance(read, ErasureRequest)
    [asked] = requests_to(MODEL, "e-1", "h7", ["u1", "u2"])
    time = read.record.logged_at
    first, again = (request_message(asked.request, None, time) for _ in range(2))
    assert first == again
    sent = validate(
        Record(Partition(first.topic, "id", 0), 0, first.key, first.value, first.headers)
    )
    assert isinstance(sent, Valid)
    assert (sent.request, sent.body) == (asked.request, asked.body)


def test_parts_name_each_row_once_and_fit_in_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "MAX_ROWS", 10)
    monkeypatch.setattr(fan_out, "PART_BYTES", 500)
    rows = [f"row-{i}-{'é' * (i % 9)}" for i in range(95)]
    parts = requests_to(MODEL, "e-1", "h7", rows)
    assert [row for part in parts for row in part.request.row_ids or ()] == rows
    assert all(1 <= len(part.request.row_ids or ()) <= 10 for part in parts)
    assert all(len(part.request.value()) < 500 + 300 for part in parts)
    # A row that comes later changes no part but the last
    more = requests_to(MODEL, "e-1", "h7", [*rows, "row-new"])
    assert [one.request_id for one in more[:-2]] == [one.request_id for one in parts[:-2]]


def test_a_request_id_follows_from_erasure_model_and_registration() -> None:
    ids = {
        request_id_of(erasure, Registered(model, name, "", {}))
        for erasure in ("e-1", "e-2")
        for model in ("churn", "risk")
        for name in ("first", "second")
    }
    assert len(ids) == 8
    assert request_id_of("e-1", MODEL) == request_id_of("e-1", MODEL)
    assert all(len(name) <= 128 for name in ids)


def test_a_mark_tells_nobody_whose_it_is_and_is_found_under_every_secret() -> None:
    before, after = SealKeys([OLD]), SealKeys([NEW, OLD])
    [old] = marks_of(before, "crm", "h7")
    assert marks_of(after, "crm", "h7")[1] == old
    assert secret_of(old) == before.current
    assert "h7" not in old
    others = [("crm", "h8"), ("", "crmh7"), ("cr", "mh7"), ("crm\0", "h7"), ("h7", "crm")]
    assert old not in {marks_of(before, *other)[0] for other in others}


def test_commitments_of_two_erasures_of_a_subject_have_nothing_in_common() -> None:
    seals = SealKeys([OLD])
    found = {
        subject_commitments(seals, erasure, namespace, subject, op)[0]
        for erasure in ("e-1", "e-2")
        for namespace in ("", "crm")
        for subject in ("h7", "h8")
        for op in ("erase", "lift")
    }
    assert len(found) == 16


def test_a_commitment_opens_with_its_own_salt_and_only_to_its_subject() -> None:
    before, after = SealKeys([OLD]), SealKeys([NEW, OLD])
    made = subject_commitments(before, "e-1", "crm", "h7", "erase")[0]
    salt = opening_salt(after, "e-1", "erase", made, ("crm", "h7"))
    assert salt is not None
    assert subject_commitment(salt, "crm", "h7") == made
    for erasure, subject in (("e-1", ("", "h7")), ("e-1", ("crm", "h8")), ("e-2", ("crm", "h7"))):
        assert opening_salt(after, erasure, "erase", made, subject) is None
    assert opening_salt(SealKeys([NEW]), "e-1", "erase", made, ("crm", "h7")) is None
    assert salt not in subject_salts(after, "e-2", "erase")


def test_what_an_older_release_has_bound_to_a_subject_is_still_recognised() -> None:
    made = "e34dfc48039585d8ea5144f53fdb72c000bb076eca53b0a6a95862093f209e74"
    assert made in subject_commitments(SealKeys([NEW, OLD]), "e-1", "crm", "h7", "erase")
