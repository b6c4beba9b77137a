"""Files of rows encrypted at rest: a key for each, in the store of row keys.

A file is ``ENCRYPTED | nonce (12) | AES-256-GCM of its content``; its name is the digest of the
content, as of any other. The associated data name model, folder and file. The key of a file that is
removed is dropped before it: every copy of the file, in snapshots, backups and former versions of
an object, is noise from then on. A file that was written before its model's files were encrypted is
read as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lethe.engine.errors import RowsMissing, StoreUnavailable
from lethe.engine.rowstore.manifest import ENCRYPTED
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.row_keys import NONCE_BYTES, RowKeys

if TYPE_CHECKING:
    from lethe.engine.rowstore.files import Files

_UNSETTLED = 1024
"""Keys that may wait to be on disk: to wait for one takes up to a second."""


class SealedFiles:
    """The files of a registration, encrypted beneath their names (`engine.rowstore.files.Files`).

    A key is in the store of keys before its file is written, so that whoever writes the same
    content at the same time takes the same key. On disk it is when the root is known (`settle`):
    a crash before that leaves noise, which is swept as other files that nothing names.
    """

    def __init__(self, files: Files, keys: RowKeys, model: ModelKeys, folder: str) -> None:
        self.url = files.url
        self._files = files
        self._keys = keys
        self._model = model
        self._where = model.file_keys(folder)
        self._unsettled: dict[str, bytes] = {}
        self._lock = Lock()

    def put(self, name: str, data: bytes) -> None:
        """Write a file, encrypted under the key that it has, or a new one."""
        key = self._keys.of_files(self._where, {name: AESGCM.generate_key(256)})[name]
        with self._lock:
            self._unsettled[name] = key
            many = len(self._unsettled) >= _UNSETTLED
        nonce = os.urandom(NONCE_BYTES)
        body = AESGCM(key).encrypt(nonce, data, self._bound_to(name))
        self._files.put(name, ENCRYPTED + nonce + body)
        if many:
            self.settle()

    def settle(self) -> None:
        """Return once the keys of what was put are on disk.

        Raises
        ------
        StoreUnavailable
            The store of keys is away, or has lost one since: begin again.
        """
        with self._lock:
            keys, self._unsettled = self._unsettled, {}
        if keys and not self._keys.keep_files(self._where, keys):
            raise StoreUnavailable(
                f"model {self._model.model_id!r}: the store of row keys (LETHE_ROW_KEYS_URL) lost "
                "keys of files while they were written; try again"
            )

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none.

        Raises
        ------
        RowsMissing
            It has no key.
        """
        data = self._files.get(name)
        if data is None or not data.startswith(ENCRYPTED):
            return data
        key = self._keys.of_file(self._where, name)
        if key is None:
            raise RowsMissing(
                f"model {self._model.model_id!r}: file {name} of its rows at {self.url} has no key "
                "in LETHE_ROW_KEYS_URL: the store of keys lost writes, or is not the one that was "
                "used. Restore it, or register the model again with --replace --accept-forgotten"
            )
        start = len(ENCRYPTED) + NONCE_BYTES
        try:
            nonce = data[len(ENCRYPTED) : start]
            return AESGCM(key).decrypt(nonce, data[start:], self._bound_to(name))
        except (InvalidTag, ValueError):
            return b""  # which has another digest: its reader says that it is another file

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, those that are there: their keys first, so that no crash leaves one."""
        ending = list(names)
        if ending:
            self._keys.drop_files(self._where, ending)
        self._files.delete(ending)

    def names(self, *, older_than: float = 0.0) -> list[str]:
        """Return the names of all files."""
        return self._files.names(older_than=older_than)

    def folders(self) -> list[str]:
        """Return the names of the folders beside the files."""
        return self._files.folders()

    def _bound_to(self, name: str) -> bytes:
        # Neither has a newline: model ids are percent-encoded.
        return f"lethe file of rows\n{self._where}\n{name}".encode()
