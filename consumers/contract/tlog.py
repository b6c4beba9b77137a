"""Receipts and tree heads in the forms of C2SP, which verifiers of transparency logs read.

- A checkpoint (c2sp.org/tlog-checkpoint) is a signed note (c2sp.org/signed-note): the name of the
  log, the size and the root of its tree, and an Ed25519 signature of these lines.
- A proof (c2sp.org/tlog-proof) is an index, an inclusion proof and a checkpoint. Its line ``extra``
  holds the entry: the receipt, byte for byte.

The hashes are those of the receipt log already (RFC 9162). docs/evidence.md has an example.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from lethe.consumers.contract.signatures import Signer, read_public_text
from lethe.engine.errors import InvalidData, Unauthenticated

MEDIA_TYPE = "application/x-tlog-proof"
"""Media type of a proof over HTTP; C2SP defines none."""

_ED25519 = b"\x01"
"""Type of a key whose signature is of the note's text alone."""


def log_name(signer: Signer, model_id: str) -> str:
    """Return the name of a model's receipt log: of two logs with one key, each has its own.

    It begins with no text that another of our signatures begins with (``DSSEv1``).
    """
    return f"lethe/{signer.key_id}/{quote(model_id, safe='')}"


def verifier_key(signer: Signer, name: str) -> str:
    """Return the public key in the form that verifiers of signed notes take."""
    key_id = NoteKey.of(signer, name).key_id.hex()
    return f"{name}+{key_id}+{_base64(_ED25519 + signer.public)}"


def checkpoint(signer: Signer, name: str, size: int, root: bytes) -> str:
    """Return a tree head of a log as a signed note."""
    text = f"{name}\n{size}\n{_base64(root)}\n"
    signature = NoteKey.of(signer, name).key_id + signer.private.sign(text.encode())
    return f"{text}\n\u2014 {name} {_base64(signature)}\n"


def tlog_proof(entry: bytes, index: int, proof: Sequence[bytes], signed_head: str) -> str:
    """Return the proof that an entry is in the tree of a checkpoint."""
    lines = ["c2sp.org/tlog-proof@v1", f"extra {_base64(entry)}", f"index {index}"]
    return "\n".join([*lines, *map(_base64, proof), "", signed_head])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- reading --------------------------------------------------------------------------------------

MAX_NOTE = 64 * 1024
"""Bytes of a signed note: a hundred signatures and more."""

_COSIGNATURE = b"\x04"
"""Type of a key whose signature is of a time and the note's text (c2sp.org/tlog-cosignature)."""

_SIGNATURE = re.compile("\u2014 ([^ +]+) ([A-Za-z0-9+/]+={0,2})")
_SIZE = re.compile(r"0|[1-9][0-9]{0,15}")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
_MOST_SECONDS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A checkpoint, whose signatures are not checked yet.

    Attributes
    ----------
    note
        The whole of it, as it was read.
    text
        What is signed.
    origin, size, root
        The log's name, and the head of its tree.
    signatures
        The names of keys, each with its id and the signature.
    """

    note: str
    text: str
    origin: str
    size: int
    root: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @property
    def model_id(self) -> str:
        """The model whose receipt log it is of; empty if it is of no log of ours."""
        ours, _, name = self.origin.partition("/")
        return unquote(name.partition("/")[2]) if ours == "lethe" else ""


def read_head(note: str) -> SignedHead:
    """Return a checkpoint.

    Raises
    ------
    InvalidData
        It is none.
    """
    text, _, signed = note.rpartition("\n\n")
    lines = text.split("\n")
    found = [_SIGNATURE.fullmatch(line) for line in signed.removesuffix("\n").split("\n")]
    try:
        origin, size, root = lines[0], lines[1], base64.b64decode(lines[2], validate=True)
        signatures = tuple(
            (one[1], base64.b64decode(one[2], validate=True)) for one in found if one
        )
    except (IndexError, ValueError):
        raise InvalidData("a checkpoint is not one of c2sp.org/tlog-checkpoint") from None
    whole = len(note.encode(errors="replace")) <= MAX_NOTE and not _CONTROL.search(note)
    formed = origin and _SIZE.fullmatch(size) and len(root) == 32 and note.endswith("\n")
    if not (whole and formed and all(found)):
        raise InvalidData("a checkpoint is not one of c2sp.org/tlog-checkpoint")
    return SignedHead(note, f"{text}\n", origin, int(size), root, signatures)


def read_notes(paths: Iterable[Path]) -> list[str]:
    """Return the checkpoints in files, each of which holds one.

    Raises
    ------
    InvalidData
        A file cannot be read, or holds none.
    """
    notes = []
    for path in paths:
        note = read_public_text(path)
        try:
            notes.append(read_head(note).note)
        except InvalidData as error:
            raise InvalidData(f"{path}: {error}") from None
    return notes


def of_log(notes: Iterable[str], model_id: str) -> list[str]:
    """Return the checkpoints of a model's receipt log, out of some."""
    return [note for note in notes if read_head(note).model_id == model_id]


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A public key of signed notes: a log's, or that of a witness."""

    name: str
    kind: bytes
    public: bytes

    @classmethod
    def of(cls, signer: Signer, name: str) -> NoteKey:
        """Return the key of one of our own logs."""
        return cls(name, _ED25519, signer.public)

    @classmethod
    def parsed(cls, text: str) -> NoteKey:
        """Return a key from the form that verifiers of signed notes take.

        Raises
        ------
        InvalidData
            It is not in that form, or neither an Ed25519 key nor one of cosignatures.
        """
        name, _, rest = text.partition("+")
        key_id, _, encoded = rest.partition("+")
        try:
            data = base64.b64decode(encoded, validate=True)
        except ValueError:
            data = b""
        key = cls(name, data[:1], data[1:])
        known = key.kind in (_ED25519, _COSIGNATURE) and len(key.public) == 32
        if not name or not known or key.key_id.hex() != key_id:
            raise InvalidData(f"{text[:80]!r} is no verifier key of c2sp.org/signed-note")
        return key

    @property
    def key_id(self) -> bytes:
        """The four bytes that tell keys of one name apart."""
        data = self.name.encode() + b"\n" + self.kind + self.public
        return hashlib.sha256(data).digest()[:4]

    @property
    def cosigns(self) -> bool:
        """Whether its signatures are those of a witness."""
        return self.kind == _COSIGNATURE

    def has_signed(self, head: SignedHead) -> bool:
        """Return whether it has signed a checkpoint.

        Raises
        ------
        Unauthenticated
            A signature that names it is not its own.
        """
        named = [
            data[4:]
            for name, data in head.signatures
            if (name, data[:4]) == (self.name, self.key_id)
        ]
        for signature in named:
            try:
                self._check(signature, head.text.encode())
            except InvalidSignature:
                raise Unauthenticated(f"a signature of {self.name} does not match") from None
        return bool(named)

    def _check(self, signature: bytes, text: bytes) -> None:
        if self.cosigns:
            seconds, signature = int.from_bytes(signature[:8]), signature[8:]
            if seconds > _MOST_SECONDS:
                raise InvalidSignature
            text = b"cosignature/v1\ntime %d\n%s" % (seconds, text)
        Ed25519PublicKey.from_public_bytes(self.public).verify(signature, text)
