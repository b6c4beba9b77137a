"""The keys that commits are sealed with: AES-256-GCM, a key for each model, from one secret.

The secrets are in a file (``LETHE_SEAL_KEY_FILE``), one per line, the newest first; without a file,
in the store, where the first worker creates one. With a file, its newest secret seals, and the
store's secrets still open what they sealed. Whoever has the log but not the secret learns how
many commits a model has and when they were made, but nothing of their content.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
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
from lethe.engine.store.layout import keys
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.membership import every_model
from lethe.engine.store.server.connection import reachable, text

if TYPE_CHECKING:
    from lethe.engine.store.store import ModelStore

SECRET_BYTES = 32
_NONCE = 12
_LABEL = b"lethe.commit.v1\n"
_CURRENT = b"current"


class KeyUnknown(CorruptState):
    """A commit is sealed with a key that this worker does not have, or it was altered."""

    code = "KEY_UNKNOWN"


class SealKeys:
    """Secrets by name; the first one seals, and all of them open.

    Parameters
    ----------
    secrets
        Secrets of 32 bytes each, the newest first.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        if not secrets or any(len(secret) != SECRET_BYTES for secret in secrets):
            raise InvalidData(f"a secret that seals commits has {SECRET_BYTES} bytes")
        self._secrets = {name_of(secret): secret for secret in secrets}
        self.current = name_of(secrets[0])
        self._ciphers: dict[tuple[str, str], AESGCM] = {}
        self._derived: dict[tuple[str, bytes], bytes] = {}

    def __repr__(self) -> str:
        return f"SealKeys(current={self.current!r}, {len(self._secrets)} in all)"

    def __iter__(self) -> Iterator[str]:
        """Yield the names, the newest first."""
        return iter(self._secrets)

    def __contains__(self, name: str) -> bool:
        return name in self._secrets

    def check(self, model_id: str, name: str) -> None:
        """Refuse to continue from a commit that cannot be opened here.

        Appending with another key would halt every worker that has the right one.

        Raises
        ------
        KeyUnknown
            There is no key with this name.
        """
        if name not in self._secrets:
            raise KeyUnknown(
                f"model {model_id!r}: its newest commit is sealed with key {name}, which this "
                "process does not have; add it to LETHE_SEAL_KEY_FILE"
            )

    def __or__(self, other: SealKeys) -> SealKeys:
        """Return keys that open what either set opens, and seal as this set does."""
        return SealKeys([*(self._secrets | other._secrets).values()])

    def seal(self, model_id: str, plain: bytes, associated: bytes) -> bytes:
        """Return nonce, ciphertext and tag, under the current key."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher(self.current, model_id).encrypt(nonce, plain, associated)

    def open(self, name: str, model_id: str, sealed: bytes, associated: bytes) -> bytes:
        """Return the content sealed under the key with this name.

        Raises
        ------
        KeyUnknown
            There is no such key here, or the content was altered.
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

    def authenticate(self, label: bytes, content: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the name of each secret, the newest first, and HMAC-SHA256 of content under it.

        Each ``label`` has keys of its own.
        """
        for name, secret in self._secrets.items():
            key = self._derived.get((name, label))
            if key is None:
                derived = HKDF(hashes.SHA256(), SECRET_BYTES, salt=None, info=label)
                key = self._derived[name, label] = derived.derive(secret)
            yield name, hmac.digest(key, content, "sha256")

    def _cipher(self, name: str, model_id: str) -> AESGCM:
        cipher = self._ciphers.get((name, model_id))
        if cipher is None:
            info = _LABEL + model_id.encode()
            derived = HKDF(hashes.SHA256(), SECRET_BYTES, salt=None, info=info)
            cipher = AESGCM(derived.derive(self._secrets[name]))
            self._ciphers[name, model_id] = cipher
        return cipher


def name_of(secret: bytes) -> str:
    """Return the name of a secret, which reveals nothing about it."""
    return hashlib.sha256(b"lethe.seal.name.v1\n" + secret).hexdigest()[:16]


def read_seal_keys(path: Path) -> SealKeys:
    """Read a file of secrets: base64, one per line, the newest first; ``#`` begins a comment.

    Raises
    ------
    InvalidData
        It cannot be read, others can read it, or a line is not a secret. The message never quotes
        the file.
    """
    secrets_found = []
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
        secrets_found.append(secret)
    if not secrets_found:
        raise InvalidData(f"{path} holds no secret; `lethe key new --seal` makes one")
    return SealKeys(secrets_found)


def new_seal_file(path: Path) -> SealKeys:
    """Create a secret in a new file that only its owner can read.

    Raises
    ------
    InvalidData
        The file exists already, or cannot be written.
    """
    secret = secrets.token_bytes(SECRET_BYTES)
    write_new_secret(path, _line_of(secret))
    return SealKeys([secret])


def rotate_seal_file(path: Path) -> SealKeys:
    """Put a new secret before the others of a file, atomically, and return all of them.

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
    models = every_model(store.client)
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=False)
        for model in models:
            pipeline.hget(ModelKeys(model).head, "seal")
        # A head that is not a hash affects its own model only, whose worker reports it.
        names: list[Any] = pipeline.execute(raise_on_error=False)
    return {
        model: text(name)
        for model, name in zip(models, names, strict=True)
        if isinstance(name, bytes)
    }


def handover(store: ModelStore, seals: SealKeys, file: Path) -> str | None:
    """Return a warning if another key than the newest of ``file`` sealed the newest commits."""
    others = sorted(set(keys_of_heads(store).values()) - {seals.current})
    if not others:
        return None
    return (
        f"commits will be sealed with key {seals.current} from {file}; until now they were sealed "
        f"with {', '.join(others)}. Give this file to every worker and keep a copy"
    )


def check_opens(store: ModelStore, seals: SealKeys) -> None:
    """Reject keys that do not open the models' newest commits: sealing with them would halt others.

    Raises
    ------
    KeyUnknown
        A model's newest commit is sealed with another key.
    """
    missing = {model: name for model, name in keys_of_heads(store).items() if name not in seals}
    if missing:
        model = min(missing)
        more = f" and {len(missing) - 1} other models" if len(missing) > 1 else ""
        raise KeyUnknown(
            f"the newest commit of model {model!r}{more} is sealed with key {missing[model]}, "
            "which this process does not have: others could not open what it seals; set "
            "LETHE_SEAL_KEY_FILE to the file that contains it"
        )


def stored_seal_keys(store: ModelStore, *, make: bool) -> SealKeys | None:
    """Return the secrets in the store; with ``make``, create a first one, on disk before its use.

    Raises
    ------
    CorruptState
        The stored values are not secrets.
    NotDurable
        The server did not sync the new secret.
    """
    client = store.client
    stored: Any
    with reachable(client):
        stored = client.hgetall(keys.SEALS)
        if _CURRENT not in stored:
            if not make:
                return None
            secret = secrets.token_bytes(SECRET_BYTES)
            client.hset(keys.SEALS, name_of(secret), secret)
            client.hsetnx(keys.SEALS, "current", name_of(secret))
            store.wait_durable()
            stored = client.hgetall(keys.SEALS)
    by_name: dict[bytes, bytes] = dict(stored)
    current = by_name.pop(_CURRENT)
    first = by_name.pop(current, b"")
    others = list(by_name.values())
    if any(len(secret) != SECRET_BYTES for secret in (first, *others)):
        raise CorruptState(
            f"{keys.SEALS}: the key that seals commits is damaged; restore it from a backup, or "
            "name its file in LETHE_SEAL_KEY_FILE"
        )
    return SealKeys([first, *others])
