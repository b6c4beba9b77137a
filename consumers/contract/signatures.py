"""Ed25519 signatures on events: they prove who published them, however they arrived.

The signature covers the pre-authentication encoding of DSSE over the event's ``ce_type`` and the
record's value, byte for byte:

    "DSSEv1" SP length(type) SP type SP length(value) SP value

The signature travels in the record's header ``lethe-signature`` as
``ed25519:<key id>:<base64 of the signature>``. A key id is the first 16 hexadecimal digits of the
SHA-256 of the public key's 32 bytes: it selects the key, and proves nothing by itself.
docs/evidence.md has worked examples, and says what a signature does not cover.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lethe.consumers.log.base import Headers
from lethe.engine.errors import InvalidData, Unauthenticated

HEADER = "lethe-signature"
_FORM = re.compile(rb"ed25519:([0-9a-f]{16}):([A-Za-z0-9+/]{85}[AQgw]==)")
"""64 bytes of signature are 86 characters of base64 (the last holds two bits), and padding."""

MAX_KEY_FILE = 64 * 1024
"""Largest key file in bytes: about 500 public keys; rejects data files named by mistake."""

_RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
_PEM_BLOCK = re.compile(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)


def pae(event_type: str, value: bytes) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding."""
    encoded = event_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(encoded), encoded, len(value), value)


def split_signature(header: str | None) -> tuple[str, str] | None:
    """Return key id and base64 of the signature in a header; None if it holds none. Not checked."""
    match = None if header is None else _FORM.fullmatch(header.encode("latin-1"))
    return None if match is None else (match[1].decode(), match[2].decode())


def key_id_of(public: bytes) -> str:
    """Return the id of a public key, given as its 32 bytes."""
    return hashlib.sha256(public).hexdigest()[:16]


class Signer:
    """Signs events with one private key; the same event always gets the same signature.

    Parameters
    ----------
    private
        The key. Use `read_signer` to read it from a file.
    """

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self.private = private
        self.public = private.public_key().public_bytes(*_RAW)
        self.key_id = key_id_of(self.public)

    def __repr__(self) -> str:
        return f"Signer(key_id={self.key_id!r})"

    @property
    def public_text(self) -> str:
        """The public key as written in files of trusted keys: base64 of its 32 bytes."""
        return base64.b64encode(self.public).decode()

    def sign(self, event_type: str, value: bytes) -> bytes:
        """Return the value of the header ``lethe-signature`` for an event."""
        signature = self.private.sign(pae(event_type, value))
        return b"ed25519:%s:%s" % (self.key_id.encode(), base64.b64encode(signature))

    def signed(self, event_type: str, value: bytes, headers: Headers) -> Headers:
        """Return an event's headers with its signature in place of any other signature."""
        others = tuple((name, content) for name, content in headers if name != HEADER)
        return (*others, (HEADER, self.sign(event_type, value)))


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The public keys whose signatures count; by key id, each as its 32 bytes."""

    keys: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Iterable[bytes]) -> TrustedKeys:
        """Return the set of these public keys, each given as its 32 bytes.

        Raises
        ------
        InvalidData
            One of them is not an Ed25519 public key, or two have the same id.
        """
        by_id: dict[str, bytes] = {}
        for public in keys:
            _public_key(public)
            if by_id.setdefault(key_id_of(public), public) != public:
                raise InvalidData("two trusted keys have the same id; replace one of them")
        return cls(by_id)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def texts(self) -> tuple[str, ...]:
        """The keys as written in files of trusted keys: base64 of their 32 bytes."""
        return tuple(base64.b64encode(key).decode() for key in self.keys.values())

    def __or__(self, other: TrustedKeys) -> TrustedKeys:
        return TrustedKeys.of([*self.keys.values(), *other.keys.values()])

    def check(self, event_type: str, value: bytes, headers: Headers) -> str:
        """Check an event's signature; return the id of the key that signed it.

        Parameters
        ----------
        event_type
            The type that the event must have; its own headers are not consulted.
        value, headers
            The record as it was read.

        Raises
        ------
        Unauthenticated
            It is unsigned, or not signed by one of these keys.
        """
        key_id, trusted = self._checked(event_type, value, headers)
        if key_id is None:
            raise Unauthenticated("it is not signed")
        if not trusted:
            raise Unauthenticated(f"it is signed by key {key_id}, which is not trusted")
        return key_id

    def vouches(self, event_type: str, value: bytes, headers: Headers) -> bool:
        """Return whether one of these keys signed an event; False if it is unsigned or by others.

        Raises
        ------
        Unauthenticated
            Its signature by one of these keys does not match, or its signature cannot be read.
        """
        return self._checked(event_type, value, headers)[1]

    def _checked(self, event_type: str, value: bytes, headers: Headers) -> tuple[str | None, bool]:
        """Return the id of the key that an event names, if any, and whether it is one of these."""
        signatures = [content for name, content in headers if name.lower() == HEADER]
        if not signatures:
            return None, False
        if len(signatures) > 1:
            raise Unauthenticated("it has more than one signature")
        match = _FORM.fullmatch(signatures[0])
        if match is None:
            raise Unauthenticated(f"its header {HEADER} does not hold an Ed25519 signature")
        key_id = match[1].decode()
        public = self.keys.get(key_id)
        if public is None:
            return key_id, False
        try:
            _public_key(public).verify(base64.b64decode(match[2]), pae(event_type, value))
        except InvalidSignature:
            raise Unauthenticated(f"it does not match its signature by key {key_id}") from None
        return key_id, True


# -- key files ------------------------------------------------------------------------------------


def new_key_file(path: Path) -> Signer:
    """Create a key in a new file that only its owner can read (PEM, PKCS #8).

    Raises
    ------
    InvalidData
        The file exists already, or cannot be written.
    """
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_new_secret(path, pem)
    return Signer(private)


def write_new_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, synced to disk.

    Raises
    ------
    InvalidData
        The file exists already, or cannot be written.
    """
    # Written under another name first: a reader never finds a partial key, and of two processes
    # that create the file at once, one wins.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        finally:
            draft.unlink()
    except FileExistsError:
        raise InvalidData(
            f"{path} exists already; a key is never overwritten, so name another file"
        ) from None
    except OSError as error:
        raise InvalidData(f"{path} cannot be written: {error.strerror}") from None


def read_signer(path: Path) -> Signer:
    """Read a private key (PEM, not encrypted).

    Raises
    ------
    InvalidData
        The file cannot be read, others can read it, or it holds no such key. The message never
        quotes the file.
    """
    content = _read(path, secret=True)
    try:
        private = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise InvalidData(f"{path}: its key is encrypted; store it without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidData(f"{path} holds no private key in PEM form") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise InvalidData(f"{path} holds a key of another kind; `lethe key new` makes Ed25519 keys")
    return Signer(private)


def read_secret_text(path: Path) -> str:
    """Return the text of a file that holds secrets.

    Raises
    ------
    InvalidData
        It cannot be read, others can read it, or it is not text.
    """
    try:
        return _read(path, secret=True).decode()
    except UnicodeDecodeError:
        raise InvalidData(f"{path} is no text file of secrets") from None


def read_trusted(path: Path) -> TrustedKeys:
    """Read a file of public keys: one a line in base64, or PEM blocks; ``#`` begins a comment.

    Raises
    ------
    InvalidData
        The file cannot be read, or a line is no Ed25519 public key.
    """
    return parse_trusted(read_public_text(path), str(path))


def read_public_text(path: Path) -> str:
    """Return the text of a file of public keys.

    Raises
    ------
    InvalidData
        It cannot be read, is not text, or holds a private key.
    """
    try:
        text = _read(path, secret=False).decode()
    except UnicodeDecodeError:
        raise InvalidData(f"{path} is not a text file of public keys") from None
    if "PRIVATE KEY" in text:
        raise InvalidData(f"{path} holds a private key; name the file of public keys here")
    return text


def parse_trusted(text: str, what: str) -> TrustedKeys:
    """Return the public keys in a text; ``what`` names it in errors."""
    keys = []
    for block in _PEM_BLOCK.findall(text):
        try:
            public = serialization.load_pem_public_key(block.encode())
        except (ValueError, UnsupportedAlgorithm):
            raise InvalidData(f"{what}: a PEM block holds no public key") from None
        if not isinstance(public, Ed25519PublicKey):
            raise InvalidData(f"{what}: a PEM block holds a key of another kind than Ed25519")
        keys.append(public.public_bytes(*_RAW))
    for number, line in enumerate(_PEM_BLOCK.sub(_blank_lines, text).splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            raw = base64.b64decode(words[0], validate=True)
            _public_key(raw)
        except (ValueError, InvalidData):  # ValueError: not base64, or not ASCII
            raise InvalidData(f"{what}, line {number}: no Ed25519 public key") from None
        keys.append(raw)
    if not keys:
        raise InvalidData(f"{what} names no key")
    return TrustedKeys.of(keys)


def _blank_lines(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


def _public_key(raw: bytes) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        raise InvalidData("a public key of Ed25519 has 32 bytes") from None


def _read(path: Path, *, secret: bool) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidData(f"{path} is not a file")
            if secret:
                _check_private(path, status)
            content = file.read(MAX_KEY_FILE + 1)
    except OSError as error:
        raise InvalidData(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_KEY_FILE:
        raise InvalidData(f"{path} is longer than any key file ({MAX_KEY_FILE} bytes)")
    return content


def _check_private(path: Path, status: os.stat_result) -> None:
    """Reject a private key that others can read.

    If root owns the file, its group may read it: orchestrators mount secrets that way.
    """
    allowed = 0o640 if status.st_uid == 0 and os.getuid() != 0 else 0o600
    if status.st_mode & 0o777 & ~allowed & 0o077:
        raise InvalidData(
            f"{path}: others can read this private key; `chmod 600 {path}`, and make a new key if "
            "somebody may have read it"
        )
