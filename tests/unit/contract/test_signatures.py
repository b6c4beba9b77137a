"""A signature is taken from trusted keys only, for the bytes and the type that were signed."""

import base64
import hashlib
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.contract.signatures import (
    HEADER,
    MAX_KEY_FILE,
    Signer,
    TrustedKeys,
    key_id_of,
    new_key_file,
    pae,
    parse_trusted,
    read_signer,
    read_trusted,
)
from lethe.engine.errors import InvalidData, Unauthenticated

TYPE = "lethe.model.version.v1"
VALUE = b'{"model_id": "churn"}'

# RFC 8032, section 7.1: secret key, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701c"
        "f9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0"
        "f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f76098"
        "4dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


def signer_of(seed: int) -> Signer:
    return Signer(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


SIGNER, STRANGER = signer_of(1), signer_of(2)
TRUSTED = TrustedKeys.of([SIGNER.public])


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032)
def test_keys_and_signatures_are_those_of_rfc_8032(
    secret: str, public: str, message: str, signature: str
) -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    signer = Signer(private)

    assert signer.public.hex() == public
    assert private.sign(bytes.fromhex(message)).hex() == signature
    assert signer.key_id == hashlib.sha256(bytes.fromhex(public)).hexdigest()[:16]


def test_what_is_signed_is_the_encoding_of_dsse() -> None:
    # The example of DSSE's protocol page.
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_an_event_signed_by_a_trusted_key_is_taken_and_always_has_the_same_bytes() -> None:
    headers = SIGNER.signed(TYPE, VALUE, (("ce_type", TYPE.encode()),))

    assert TRUSTED.check(TYPE, VALUE, headers) == SIGNER.key_id
    assert headers == SIGNER.signed(TYPE, VALUE, headers)
    assert len([name for name, _ in headers if name == HEADER]) == 1


def test_an_unsigned_event_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="not signed"):
        TRUSTED.check(TYPE, VALUE, ())


def test_an_event_that_an_untrusted_key_signed_again_is_refused() -> None:
    headers = STRANGER.signed(TYPE, VALUE, SIGNER.signed(TYPE, VALUE, ()))

    with pytest.raises(Unauthenticated, match="not trusted"):
        TRUSTED.check(TYPE, VALUE, headers)


def test_a_strangers_signature_under_a_trusted_keys_id_is_refused() -> None:
    ((_, own),) = STRANGER.signed(TYPE, VALUE, ())
    named = own.replace(STRANGER.key_id.encode(), SIGNER.key_id.encode())

    with pytest.raises(Unauthenticated, match="does not match"):
        TRUSTED.check(TYPE, VALUE, ((HEADER, named),))


def test_a_signature_of_an_event_of_another_type_is_refused() -> None:
    headers = SIGNER.signed("lethe.deletion.receipt.v1", VALUE, ())

    with pytest.raises(Unauthenticated, match="does not match"):
        TRUSTED.check(TYPE, VALUE, headers)


@pytest.mark.parametrize("bit", range(8 * len(VALUE)))
def test_any_flipped_bit_of_the_value_is_refused(bit: int) -> None:
    flipped = bytearray(VALUE)
    flipped[bit // 8] ^= 1 << bit % 8

    with pytest.raises(Unauthenticated):
        TRUSTED.check(TYPE, bytes(flipped), SIGNER.signed(TYPE, VALUE, ()))


def test_any_altered_byte_of_the_header_is_refused() -> None:
    ((_, whole),) = SIGNER.signed(TYPE, VALUE, ())
    for at in range(len(whole)):
        for other in set(b"AQRghwx0=:\n") - {whole[at]}:
            altered = whole[:at] + bytes([other]) + whole[at + 1 :]
            with pytest.raises(Unauthenticated):
                TRUSTED.check(TYPE, VALUE, ((HEADER, altered),))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"ed25519",
        b"ed25519::",
        b"rsa:" + SIGNER.key_id.encode() + b":" + base64.b64encode(bytes(64)),
        b"ed25519:" + SIGNER.key_id.encode() + b":" + base64.b64encode(bytes(63)),
        b"ed25519:" + SIGNER.key_id.encode() + b":" + base64.b64encode(bytes(64)) + b"\n",
    ],
)
def test_a_header_of_another_form_is_refused(content: bytes) -> None:
    with pytest.raises(Unauthenticated, match="does not hold"):
        TRUSTED.check(TYPE, VALUE, ((HEADER, content),))


def test_two_signatures_are_refused() -> None:
    ((name, content),) = SIGNER.signed(TYPE, VALUE, ())

    with pytest.raises(Unauthenticated, match="more than one"):
        TRUSTED.check(TYPE, VALUE, ((name, content), (name, content)))


# -- key files ------------------------------------------------------------------------------------


def test_a_new_key_file_is_its_owners_alone_and_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"

    made = new_key_file(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert read_signer(path).public == made.public
    assert [file.name for file in tmp_path.iterdir()] == ["key.pem"]


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    first = new_key_file(path)

    with pytest.raises(InvalidData, match="never overwritten"):
        new_key_file(path)

    assert read_signer(path).public == first.public
    assert [file.name for file in tmp_path.iterdir()] == ["key.pem"]


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o644, 0o666])
def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    new_key_file(path)
    path.chmod(mode)

    with pytest.raises(InvalidData, match="chmod 600"):
        read_signer(path)


def test_what_is_no_private_key_is_refused_and_never_repeated(tmp_path: Path) -> None:
    other = generate_private_key(SECP256R1())
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    encrypted = serialization.BestAvailableEncryption(b"canary")
    ed25519 = Ed25519PrivateKey.generate()
    contents = {
        "no private key": b"canary",
        "encrypted": ed25519.private_bytes(*pem, encrypted),
        "another kind": other.private_bytes(*pem, serialization.NoEncryption()),
        "longer than": b"canary" * MAX_KEY_FILE,
    }
    for reason, content in contents.items():
        path = tmp_path / reason.replace(" ", "-")
        path.touch(mode=0o600)
        path.write_bytes(content)
        with pytest.raises(InvalidData, match=reason) as raised:
            read_signer(path)
        assert "canary" not in str(raised.value)
    with pytest.raises(InvalidData, match="cannot be read"):
        read_signer(tmp_path / "absent")
    with pytest.raises(InvalidData, match="cannot be read"):
        read_signer(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InvalidData, match="is not a file"):
        read_signer(tmp_path / "pipe")


def test_a_signer_does_not_show_its_key() -> None:
    assert repr(SIGNER) == f"Signer(key_id='{SIGNER.key_id}')"


def test_trusted_keys_are_read_from_base64_and_from_pem(tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    path = tmp_path / "trusted"
    path.write_text(
        f"# our keys\n\n{SIGNER.public_text}  # the old one\n{pem.decode()}{STRANGER.public_text}\n"
    )

    trusted = read_trusted(path)

    assert set(trusted.keys) == {SIGNER.key_id, STRANGER.key_id, Signer(private).key_id}
    assert trusted.keys[SIGNER.key_id] == SIGNER.public


def test_a_line_that_is_no_key_is_named(tmp_path: Path) -> None:
    for text, reason in (
        (f"{SIGNER.public_text}\nnonsense\n", "line 2"),
        (base64.b64encode(bytes(31)).decode(), "line 1"),
        ("# nothing but words\n", "names no key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "PEM block"),
    ):
        with pytest.raises(InvalidData, match=reason):
            parse_trusted(text, "trusted")
    new_key_file(tmp_path / "key.pem")
    with pytest.raises(InvalidData, match="private key"):
        read_trusted(tmp_path / "key.pem")


def test_a_second_key_can_be_trusted_while_the_first_one_goes_out_of_use() -> None:
    both = TRUSTED | TrustedKeys.of([STRANGER.public])

    assert len(both) == 2
    for signer in (SIGNER, STRANGER):
        assert both.check(TYPE, VALUE, signer.signed(TYPE, VALUE, ())) == signer.key_id


def test_the_id_of_a_key_is_short_and_follows_from_it() -> None:
    assert key_id_of(SIGNER.public) == SIGNER.key_id
    assert len(SIGNER.key_id) == 16
