"""A witness as c2sp.org/tlog-cosignature defines it, written apart from what checks it."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECONDS = 1_700_000_000


@dataclass(frozen=True)
class Witness:
    """Somebody who cosigns whatever it is shown."""

    name: str
    seed: int

    @property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes([self.seed]) * 32)

    @property
    def _public(self) -> bytes:
        return self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def _key_id(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n\x04" + self._public).digest()[:4]

    @property
    def vkey(self) -> str:
        encoded = base64.b64encode(b"\x04" + self._public).decode()
        return f"{self.name}+{self._key_id.hex()}+{encoded}"

    def cosign(self, note: str, seconds: int = SECONDS) -> str:
        """Return a checkpoint with one more signature."""
        text = note.rpartition("\n\n")[0] + "\n"
        message = f"cosignature/v1\ntime {seconds}\n{text}".encode()
        data = self._key_id + seconds.to_bytes(8) + self._private.sign(message)
        return f"{note}\u2014 {self.name} {base64.b64encode(data).decode()}\n"


WITNESSES = tuple(Witness(f"witness.example/w{i}", i) for i in (1, 2, 3))


def policy(least: int | str = 2) -> str:
    """Return a policy in which so many of the three are a quorum."""
    lines = [f"witness w{one.seed} {one.vkey}" for one in WITNESSES]
    group = f"group three {least} w1 w2 w3"
    return "\n".join(["# a quorum of three", *lines, group, "quorum three", ""])


def cosigned(note: str, *witnesses: int) -> str:
    """Return a checkpoint that these of the three have cosigned."""
    for one in WITNESSES:
        note = one.cosign(note) if one.seed in witnesses else note
    return note
