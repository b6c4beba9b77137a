"""From settings to who may call: a server without keys is for this machine alone."""

from __future__ import annotations

from pathlib import Path

from lethe.consumers.server.guard import Access
from lethe.consumers.server.keys import Keys
from lethe.consumers.server.serving import is_loopback
from lethe.consumers.service.configuration.settings import Settings
from lethe.engine.errors import InvalidData

_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def access_of(settings: Settings) -> Access:
    """Return who may call.

    Raises
    ------
    InvalidData
        Others than this machine could call, and there are no keys; or the keys cannot be used.
    """
    keys = None if settings.server_keys is None else Keys(settings.server_keys)
    host = settings.server_host
    if keys is None and not is_loopback(host):
        raise InvalidData(
            f"without keys, anybody who reaches {host} could delete rows: name a file of keys with "
            "--keys (`lethe key issue FILE --name N` creates one), or listen on 127.0.0.1"
        )
    hosts = _OWN_NAMES | {f"[{host}]" if ":" in host else host} if keys is None else None
    return Access(keys, hosts, settings.server_rate)


def certificate_of(settings: Settings) -> tuple[Path, Path] | None:
    """Return the files of the server's certificate and its key; None: no TLS.

    Raises
    ------
    InvalidData
        One of the two is missing.
    """
    files = settings.server_cert_file, settings.server_key_file
    for file in files:
        if file is not None and not file.is_file():
            raise InvalidData(
                f"{file}: no such file (LETHE_SERVER_CERT_FILE, LETHE_SERVER_KEY_FILE)"
            )
    certificate, key = files
    if (certificate is None) != (key is None):
        raise InvalidData("set LETHE_SERVER_CERT_FILE and LETHE_SERVER_KEY_FILE, or neither")
    return None if certificate is None or key is None else (certificate, key)
