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
from collections.abc import Sequence
from urllib.parse import quote

from lethe.consumers.contract.signatures import Signer

MEDIA_TYPE = "application/x-tlog-proof"
"""Of a proof over HTTP; C2SP names none."""

_ED25519 = b"\x01"
"""Type of a key whose signature is of the note's text alone."""


def log_name(signer: Signer, model_id: str) -> str:
    """Return the name of a model's receipt log: of two logs with one key, each has its own.

    It begins with no text that another of our signatures begins with (``DSSEv1``).
    """
    return f"lethe/{signer.key_id}/{quote(model_id, safe='')}"


def verifier_key(signer: Signer, name: str) -> str:
    """Return the public key in the form that verifiers of signed notes take."""
    return f"{name}+{_key_hash(signer, name).hex()}+{_base64(_ED25519 + signer.public)}"


def checkpoint(signer: Signer, name: str, size: int, root: bytes) -> str:
    """Return a tree head of a log as a signed note."""
    text = f"{name}\n{size}\n{_base64(root)}\n"
    signature = _key_hash(signer, name) + signer.private.sign(text.encode())
    return f"{text}\n\u2014 {name} {_base64(signature)}\n"


def tlog_proof(entry: bytes, index: int, proof: Sequence[bytes], signed_head: str) -> str:
    """Return the proof that an entry is in the tree of a checkpoint."""
    lines = ["c2sp.org/tlog-proof@v1", f"extra {_base64(entry)}", f"index {index}"]
    return "\n".join([*lines, *map(_base64, proof), "", signed_head])


def _key_hash(signer: Signer, name: str) -> bytes:
    """Return the four bytes that tell keys of one name apart."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + signer.public).digest()[:4]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
