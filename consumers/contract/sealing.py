"""The keys that commits are sealed with: AES-256-GCM, a key for each model, from one secret.

The secrets lie in a file (``LETHE_SEAL_KEY_FILE``), one a line, the newest first; without one, in
the store, where the first worker makes one. Whoever has the log and not the secret learns how many
commits a model made and when, and nothing that they say.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lethe.consumers.contract.signatures import read_secret_text, write_new_secret
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.store import keys
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.keys import ModelKeys

if TYPE_CHECKING:
    from lethe.engine.store.store import ModelStore

SECRET_BYTES = 32
_NONCE = 12
_LABEL = b"lethe.commit.v1\n"
_CURRENT = b"current"


class KeyUnknown(CorruptState):
    """A commit is sealed with a key that this worker does not have, or is not what was sealed."""

    code = "KEY_UNKNOWN"


class SealKeys:
    """Secrets by name; the first one seals, all of them open.

    Parameters
    ----------
    secrets
        32 bytes each, the newest first.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        if not secrets or any(len(secret) != SECRET_BYTES for secret in secrets):
            raise InvalidData(f"a secret that seals commits has {SECRET_BYTES} bytes")
        self._secrets = {name_of(secret): secret for secret in secrets}
        self.current = name_of(secrets[0])
        self._ciphers: dict[tuple[str, str], AESGCM] = {}

    def __repr__(self) -> str:
        return f"SealKeys(current={self.current!r}, {len(self._secrets)} in all)"

    def __iter__(self) -> Iterator[str]:
        """Yield the names, the newest first."""
        return iter(self._secrets)

    def __contains__(self, name: str) -> bool:
        return name in self._secrets

    def check(self, model_id: str, name: str) -> None:
        """Refuse to go on from a commit that cannot be opened here.

        Whoever appends with another key would halt everybody who has the right one.

        Raises
        ------
        KeyUnknown
            There is no key of this name.
        """
        if name not in self._secrets:
            raise KeyUnknown(
                f"model {model_id!r}: its newest commit is sealed with key {name}, which this "
                "process does not have; add it to LETHE_SEAL_KEY_FILE"
            )

    def __or__(self, other: SealKeys) -> SealKeys:
        """Return keys that open what either opens, and seal as these do."""
        return SealKeys([*(self._secrets | other._secrets).values()])

    def seal(self, model_id: str, plain: bytes, associated: bytes) -> bytes:
        """Return nonce, ciphertext and tag, under the current key."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher(self.current, model_id).encrypt(nonce, plain, associated)

    def open(self, name: str, model_id: str, sealed: bytes, associated: bytes) -> bytes:
        """Return what was sealed under the key of this name.

        Raises
        ------
        KeyUnknown
            There is no such key here, or it is not what was sealed.
        """
        if name not in self._secrets:
            raise KeyUnknown(
                f"model {model_id!r}: a commit is sealed with key {name}, which this worker does "
                "not have; add it to LETHE_SEAL_KEY_FILE, or see docs/operations.md if it is lost"
            )
        nonce, body = sealed[:_NONCE], sealed[_NONCE:]
        try:
            return self._cipher(name, model_id).decrypt(nonce, body, associated)
        except (InvalidTag, ValueError):
            raise KeyUnknown(
                f"model {model_id!r}: a commit does not open with key {name}, which it names: "
                "somebody else wrote it, or it was damaged"
            ) from None

    def _cipher(self, name: str, model_id: str) -> AESGCM:
        cipher = self._ciphers.get((name, model_id))
        if cipher is None:
            info = _LABEL + model_id.encode()
            derived = HKDF(hashes.SHA256(), SECRET_BYTES, salt=None, info=info)
            cipher = AESGCM(derived.derive(self._secrets[name]))
            self._ciphers[name, model_id] = cipher
        return cipher


def name_of(secret: bytes) -> str:
    """Return the name of a secret; it tells nothing of it."""
    return hashlib.sha256(b"lethe.seal.name.v1\n" + secret).hexdigest()[:16]


def read_seal_keys(path: Path) -> SealKeys:
    """Read a file of secrets: base64, one a line, the newest first; ``#`` begins a comment.

    Raises
    ------
    InvalidData
        It cannot be read, others can read it, or a line is no secret. The message never holds
        anything of the file.
    """
    found = []
    for number, line in enumerate(read_secret_text(path).splitlines(), start=1):
        word = line.partition("#")[0].strip()
        if not word:
            continue
        try:
            secret = base64.b64decode(word, validate=True)
        except ValueError:
            secret = b""
        if len(secret) != SECRET_BYTES:
            raise InvalidData(f"{path}, line {number}: no secret of {SECRET_BYTES} bytes in base64")
        found.append(secret)
    if not found:
        raise InvalidData(f"{path} holds no secret; `lethe key new --seal` makes one")
    return SealKeys(found)


def new_seal_file(path: Path) -> SealKeys:
    """Make a secret, and keep it in a new file that only its owner can read.

    Raises
    ------
    InvalidData
        The file is there already, or cannot be written.
    """
    secret = secrets.token_bytes(SECRET_BYTES)
    write_new_secret(path, _line_of(secret))
    return SealKeys([secret])


def rotate_seal_file(path: Path) -> SealKeys:
    """Put a new secret before the others of a file, in one step, and return all of them.

    Raises
    ------
    InvalidData
        The file cannot be used, or cannot be written.
    """
    read_seal_keys(path)
    secret = secrets.token_bytes(SECRET_BYTES)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    write_new_secret(beside, _line_of(secret) + read_secret_text(path).encode())
    try:
        beside.replace(path)
    except OSError as error:
        beside.unlink()
        raise InvalidData(f"{path} cannot be written: {error.strerror}") from None
    return read_seal_keys(path)


def _line_of(secret: bytes) -> bytes:
    return base64.b64encode(secret) + b"  # " + name_of(secret).encode() + b"\n"


def keys_of_heads(store: ModelStore) -> dict[str, str]:
    """Return the name of the key that sealed each model's newest commit. One round trip."""
    models = store.every_model()
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=False)
        for model in models:
            pipeline.hget(ModelKeys(model).head, "seal")
        # A head that is no hash is that model's trouble: who works on it finds out.
        found: list[Any] = pipeline.execute(raise_on_error=False)
    return {
        model: text(name)
        for model, name in zip(models, found, strict=True)
        if isinstance(name, bytes)
    }


def check_opens(store: ModelStore, seals: SealKeys) -> None:
    """Refuse keys that do not open what models are at: what they seal would halt others.

    Raises
    ------
    KeyUnknown
        A model's newest commit is sealed with another key.
    """
    lacking = {model: name for model, name in keys_of_heads(store).items() if name not in seals}
    if lacking:
        model = min(lacking)
        more = f" and {len(lacking) - 1} other models" if len(lacking) > 1 else ""
        raise KeyUnknown(
            f"the newest commit of model {model!r}{more} is sealed with key {lacking[model]}, "
            "which is not here: what this process seals, others could not open; name the file of "
            "all keys in LETHE_SEAL_KEY_FILE"
        )


def stored_seal_keys(store: ModelStore, *, make: bool) -> SealKeys | None:
    """Return the secrets in the store; ``make`` one where there is none, on disk before it is used.

    Raises
    ------
    CorruptState
        What is stored are no secrets.
    NotDurable
        The server did not sync the new one.
    """
    client = store.client
    found: Any
    with reachable(client):
        found = client.hgetall(keys.SEALS)
        if _CURRENT not in found:
            if not make:
                return None
            secret = secrets.token_bytes(SECRET_BYTES)
            client.hset(keys.SEALS, name_of(secret), secret)
            client.hsetnx(keys.SEALS, "current", name_of(secret))
            store.wait_durable()
            found = client.hgetall(keys.SEALS)
    kept: dict[bytes, bytes] = dict(found)
    current = kept.pop(_CURRENT)
    first = kept.pop(current, b"")
    others = list(kept.values())
    if any(len(secret) != SECRET_BYTES for secret in (first, *others)):
        raise CorruptState(
            f"{keys.SEALS}: what seals commits is damaged; restore that key from a backup, or name "
            "the secret in LETHE_SEAL_KEY_FILE"
        )
    return SealKeys([first, *others])
