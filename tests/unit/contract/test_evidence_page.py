"""docs/evidence.md is enough to check evidence: its values come out by hand and by the program."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lethe.consumers.contract.commitment import commitment_of, salt_of
from lethe.consumers.contract.events import DELETION_RECEIPT
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import HEADER, Signer, TrustedKeys, pae, parse_trusted
from lethe.consumers.contract.tlog import checkpoint, log_name, tlog_proof, verifier_key
from lethe.consumers.suppression.marks import opening_salt, subject_commitments
from lethe.engine.merkle import (
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)

DOC = Path(__file__).parents[3] / "docs" / "evidence.md"


def documented(name: str) -> str:
    """Return the code block of this name in the document."""
    [block] = re.findall(
        rf"<!-- {re.escape(name)} -->\n```\w+\n(.*?)\n```", DOC.read_text("utf-8"), re.S
    )
    return str(block)


def hashes(name: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in documented(name).splitlines()]


RECEIPTS = [documented(f"receipt-{n}").encode() for n in range(3)]


def test_the_documented_signature_is_made_and_checked_by_the_program() -> None:
    signer = Signer(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(documented("secret-key"))))
    assert signer.public_text == documented("public-key")
    assert pae(DELETION_RECEIPT, RECEIPTS[0]) == documented("signed-0").encode()
    assert signer.sign(DELETION_RECEIPT, RECEIPTS[0]).decode() == documented("header-0")
    trusted = parse_trusted(documented("public-key"), "page")
    header = ((HEADER, documented("header-0").encode()),)
    assert trusted == TrustedKeys.of([signer.public])
    assert trusted.check(DELETION_RECEIPT, RECEIPTS[0], header) == signer.key_id


def test_the_documented_signature_can_be_checked_by_hand() -> None:
    kind, key_id, signature = documented("header-0").split(":")
    public = base64.b64decode(documented("public-key"))
    assert kind == "ed25519"
    assert key_id == hashlib.sha256(public).hexdigest()[:16]
    signed = documented("signed-0").encode()
    Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature), signed)
    name, value = b"lethe.deletion.receipt.v1", RECEIPTS[0]
    lengths = str(len(name)).encode(), str(len(value)).encode()
    assert signed == b" ".join((b"DSSEv1", lengths[0], name, lengths[1], value))


def test_the_documented_log_has_its_roots_and_proofs() -> None:
    leaves, roots = hashes("leaves"), hashes("roots")
    assert [leaf_hash(receipt) for receipt in RECEIPTS] == leaves
    assert [root_of(leaves[:size]) for size in range(4)] == roots
    included, consistent = hashes("inclusion-1-of-3"), hashes("consistency-2-to-3")
    assert list(inclusion_proof(leaves, 1)) == included
    assert verify_inclusion(leaves[1], 1, 3, included, roots[3])
    assert list(consistency_proof(leaves, 2)) == consistent
    assert verify_consistency(2, 3, roots[2], roots[3], consistent)


def test_the_documented_log_can_be_computed_by_hand() -> None:
    def node(left: bytes, right: bytes) -> bytes:
        return hashlib.sha256(b"\x01" + left + right).digest()

    leaves = [hashlib.sha256(b"\x00" + receipt).digest() for receipt in RECEIPTS]
    both = node(leaves[0], leaves[1])
    by_hand = [hashlib.sha256().digest(), leaves[0], both, node(both, leaves[2])]
    assert leaves == hashes("leaves")
    assert by_hand == hashes("roots")


def test_the_documented_commitment_is_made_by_hand_and_by_the_program() -> None:
    [secret], [salt], entries = (
        hashes("secret"),
        hashes("salt-of-r-2026-118"),
        hashes("entries-of-u17-u42"),
    )
    assert hmac.digest(secret, b"lethe.rows.v1\nr-2026-118", "sha256") == salt
    made = sorted(hmac.digest(salt, row, "sha256") for row in (b"u42", b"u17"))
    assert made == entries
    leaves = [hashlib.sha256(b"\x00" + entry).digest() for entry in made]
    root = hashlib.sha256(b"\x01" + leaves[0] + leaves[1]).hexdigest()
    assert root == documented("commitment")
    assert salt_of(secret, "r-2026-118") == salt
    assert commitment_of(salt, ["u42", "u17", "u42"]) == documented("commitment")


def test_the_documented_commitment_to_a_person_is_made_by_hand_and_by_the_program() -> None:
    seal, [salt] = bytes(range(32)), hashes("salt-of-ticket-2041")
    expanded = hmac.digest(bytes(32), seal, "sha256")  # HKDF: extract, then expand
    key = hmac.digest(expanded, b"lethe.erasure.salt.v2\x01", "sha256")
    parts = b"\0\0\0\x05erase" + b"\0\0\0\x0bticket-2041"
    assert hmac.digest(key, parts, "sha256") == salt
    made = hmac.digest(salt, b"\0\0\0\0" + b"\0\0\0\x02h7", "sha256").hex()
    assert made == documented("subject-commitment")
    assert made == subject_commitments(SealKeys([seal]), "ticket-2041", "", "h7", "erase")[0]
    assert opening_salt(SealKeys([seal]), "ticket-2041", "erase", made, ("", "h7")) == salt


def test_the_documented_proof_of_c2sp_is_made_by_hand_and_by_the_program() -> None:
    signer = Signer(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(documented("secret-key"))))
    name, leaves = log_name(signer, "churn"), hashes("leaves")
    head = checkpoint(signer, name, 3, root_of(leaves))
    made = tlog_proof(RECEIPTS[1], 1, inclusion_proof(leaves, 1), head)
    assert made == documented("tlog-proof") + "\n"
    assert verifier_key(signer, name) == documented("verifier-key")

    text, _, signature = documented("tlog-proof").partition("\n\n")[2].partition("\n\n")
    origin, size, root = text.split("\n")
    dash, signed_by, data = signature.split(" ")
    assert (origin, size, dash, signed_by) == (name, "3", "\u2014", name)
    assert base64.b64decode(root) == hashes("roots")[3]
    public = base64.b64decode(documented("public-key"))
    key_hash = hashlib.sha256(name.encode() + b"\n\x01" + public).digest()[:4]
    assert base64.b64decode(data)[:4] == key_hash
    signed = base64.b64decode(data)[4:]
    Ed25519PublicKey.from_public_bytes(public).verify(signed, f"{text}\n".encode())


def test_no_model_id_makes_a_log_name_that_verifiers_refuse() -> None:
    signer = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    for model in ("a b", "a+b", "a\u2003b", "a\nb", "a/b", "ä", "%"):
        name = log_name(signer, model)
        assert not re.search(r"[\s+]", name)
        assert name.isascii()
    assert log_name(signer, "a/b") != log_name(signer, "a%2Fb")
