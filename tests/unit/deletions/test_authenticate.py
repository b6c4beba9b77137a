"""Whose requests count: signed by a key on the list, for its models, with nothing slipped in."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.contract.events import DELETION_REQUESTED, MODEL_VERSION, REFRESH_COMPLETED
from lethe.consumers.contract.requests import erasure_request_id
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import (
    RequestKeys,
    parse_request_keys,
    read_request_keys,
)
from lethe.consumers.deletions.validate import Invalid, Refreshed, Valid, Validated, validate
from lethe.consumers.log.base import Headers, Partition, Record
from lethe.engine.errors import InvalidData

HERE = Partition("lethe.deletions", "id", 0)
OURS = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHERS = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEYS = parse_request_keys(OURS.public_text, "keys")


def value(**fields: Any) -> bytes:
    return json.dumps({"request_id": "r", "model_id": "m", "row_ids": ["a"], **fields}).encode()


def signed(content: bytes, signer: Signer = OURS, headers: Headers = ()) -> Headers:
    return signer.signed(DELETION_REQUESTED, content, headers)


def check(
    content: bytes, headers: Headers, key: bytes | None = b"m", keys: RequestKeys = KEYS
) -> Validated:
    return keys.checked(validate(Record(HERE, 7, key, content, headers)))


def refused(item: Validated) -> str:
    """Return why an item is nobody's request; it must leave no receipt and a dead letter."""
    assert isinstance(item, Invalid)
    assert (item.code, item.model_id, item.request_id) == ("UNAUTHENTICATED", None, None)
    assert item.dead_letter
    return item.detail


@pytest.mark.parametrize("fields", [{}, {"row_ids": None, "subject_id": "person"}])
def test_a_signed_request_counts(fields: dict[str, Any]) -> None:
    content = value(**fields)
    item = check(content, signed(content))
    assert isinstance(item, Valid)


def test_the_id_of_an_erasures_request_needs_a_key_for_every_model() -> None:
    """What a request of that id names is taken for a person's, of whom nothing is kept."""
    only = parse_request_keys(f"{OURS.public_text} m\n{OTHERS.public_text}", "keys")
    content = value(request_id=erasure_request_id("0123456789abcdef" * 3))
    why = refused(check(content, signed(content), keys=only))
    assert "for every model" in why
    assert isinstance(check(content, signed(content, OTHERS), keys=only), Valid)
    near = value(request_id=f"erasure-{'g' * 48}")
    assert isinstance(check(near, signed(near), keys=only), Valid)


def test_a_signed_structured_event_counts() -> None:
    data = {"model_id": "m", "row_ids": ["a"]}
    content = json.dumps(
        {"specversion": "1.0", "id": "r", "source": "/x", "type": DELETION_REQUESTED, "data": data}
    ).encode()
    for headers in ((), (("content-type", b"application/cloudevents+json"),)):
        item = check(content, signed(content, headers=headers))
        assert isinstance(item, Valid)
        assert item.request.request_id == "r"


def test_a_signed_request_that_asks_for_nonsense_is_answered() -> None:
    content = value(row_ids=[])
    item = check(content, signed(content))
    assert isinstance(item, Invalid)
    assert (item.code, item.request_id) == ("INVALID_REQUEST", "r")


def test_an_unsigned_request_is_nobodys() -> None:
    assert refused(check(value(), ())) == "it is not signed"
    assert "not signed" in refused(check(value(row_ids=[]), ())), "nor is an unsigned refusal"


def test_another_key_is_nobodys() -> None:
    assert "not trusted" in refused(check(value(), signed(value(), OTHERS)))


def test_an_altered_request_is_nobodys() -> None:
    assert "does not match" in refused(check(value(row_ids=["b"]), signed(value())))


def test_a_signature_of_another_event_is_none_of_a_request() -> None:
    headers = OURS.signed(MODEL_VERSION, value(), ())
    assert "does not match" in refused(check(value(), headers))


def test_a_replay_towards_another_model_is_refused() -> None:
    """The key of a record is not signed: with another one it would be refused, with a receipt."""
    assert "alone is a different request" in refused(check(value(), signed(value()), key=b"other"))


@pytest.mark.parametrize(
    "headers",
    [
        (("ce_type", b"lethe.something.else"),),
        (("content-type", b"application/cloudevents+json"),),
    ],
)
def test_a_replay_with_other_headers_uses_nobodys_request_id_up(headers: Headers) -> None:
    item = check(value(data={}), signed(value(data={}), headers=headers))
    assert isinstance(item, Invalid)
    assert (item.model_id, item.request_id) == (None, None), "no receipt would be stored"


def test_the_request_id_has_to_be_signed_too() -> None:
    content = json.dumps({"model_id": "m", "row_ids": ["a"]}).encode()
    item = check(content, signed(content, headers=(("ce_id", b"made up"),)))
    assert "request_id must be in the value" in refused(item)


def test_two_signatures_are_none() -> None:
    both = (*signed(value()), *signed(value(), OTHERS))
    assert "more than one" in refused(check(value(), both))


def test_a_refresh_event_only_names_a_job() -> None:
    content = b'{"job_id": "j", "model_id": "m"}'
    item = check(content, (("ce_type", REFRESH_COMPLETED.encode()),))
    assert isinstance(item, Refreshed)


def test_what_cannot_be_read_stays_unreadable() -> None:
    item = check(b"no request", ())
    assert isinstance(item, Invalid)
    assert item.code == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("patterns", "model", "allowed"),
    [
        ("", "m", True),
        ("  # of the billing system", "m", True),
        ("churn eu-*", "churn", True),
        ("churn eu-*", "eu-7", True),
        ("churn eu-*", "us-7", False),
        ("churn eu-*", "Churn", False),
    ],
)
def test_a_key_is_for_its_models(patterns: str, model: str, allowed: bool) -> None:
    keys = parse_request_keys(f"{OTHERS.public_text} *\n{OURS.public_text} {patterns}\n", "keys")
    content = value(model_id=model)
    item = check(content, signed(content), model.encode(), keys)
    assert isinstance(item, Valid) if allowed else "is not for model" in refused(item)


def test_a_line_that_is_written_oddly_gives_no_right_more() -> None:
    """The last character of 32 bytes in base64 has two bits to spare."""
    text = OURS.public_text
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    odd = text[:-2] + alphabet[alphabet.index(text[-2]) + 1] + "="
    assert base64.b64decode(odd) == OURS.public
    keys = parse_request_keys(f"{odd} churn", "keys")
    assert "is not for model" in refused(check(value(), signed(value()), b"m", keys))


def test_several_lines_of_a_key_add_up() -> None:
    keys = parse_request_keys(f"{OURS.public_text} a\n{OURS.public_text} m", "keys")
    assert isinstance(check(value(), signed(value()), b"m", keys), Valid)


@pytest.mark.parametrize("text", ["", "# nobody", "not a key m", "AAAA m"])
def test_a_list_that_names_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidData):
        parse_request_keys(text, "keys")


def test_a_list_is_read_from_its_file(tmp_path: Any) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# requests\n{OURS.public_text} m\n")
    assert len(read_request_keys(path)) == 1
    with pytest.raises(InvalidData, match="cannot be read"):
        read_request_keys(tmp_path / "nowhere")


def test_keys_of_the_workers_count_for_every_model_whatever_the_list_says() -> None:
    listed = parse_request_keys(f"{OURS.public_text}  n-*\n{OTHERS.public_text} n-*", "keys")
    assert "not for model" in refused(check(value(), signed(value()), keys=listed))
    keys = listed.with_unrestricted(TrustedKeys.of([OURS.public]))
    assert isinstance(check(value(), signed(value()), keys=keys), Valid)
    by_others = signed(value(), OTHERS)
    assert "not for model" in refused(check(value(), by_others, keys=keys))
