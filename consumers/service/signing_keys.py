"""Which keys this process signs with, and which it trusts: from the settings to `signing`."""

from __future__ import annotations

from pathlib import Path

from lethe.consumers.contract.signatures import (
    Signer,
    TrustedKeys,
    new_key_file,
    read_signer,
    read_trusted,
)
from lethe.consumers.service.settings import Settings
from lethe.engine.errors import InvalidData

OWN_KEY = "signing-key.pem"
"""The key in the data directory: made on first use, where the store is the embedded one."""


def key_path(settings: Settings) -> Path | None:
    """Return where the private key lies, or will be made; None: events are not signed."""
    if settings.signing_key is not None:
        return settings.signing_key
    return settings.data_dir / OWN_KEY if settings.redis_url is None else None


def existing_signer(settings: Settings) -> Signer | None:
    """Return the signer of this process; None without a key, or while it is not made.

    Raises
    ------
    InvalidData
        The key cannot be used.
    """
    path = key_path(settings)
    made_later = settings.signing_key is None and path is not None and not path.exists()
    return None if path is None or made_later else read_signer(path)


def signer_for_publishing(settings: Settings) -> Signer | None:
    """Return the signer of this process; the data directory's own key is made on first use.

    Raises
    ------
    InvalidData
        The key cannot be used, or not be made.
    """
    found = existing_signer(settings)
    path = key_path(settings)
    if found is not None or path is None:
        return found
    try:
        return new_key_file(path)
    except InvalidData:
        if path.exists():  # another process was faster
            return read_signer(path)
        raise


def trusted_file(settings: Settings) -> TrustedKeys | None:
    """Return the keys of the file alone; None where none is named."""
    return None if settings.trusted_keys is None else read_trusted(settings.trusted_keys)


def trusted_keys(settings: Settings) -> TrustedKeys | None:
    """Return the keys whose events count: those of the file, and this process's own.

    None where no file is named: then signatures are not asked for.

    Raises
    ------
    InvalidData
        The file, or the own key, cannot be used.
    """
    named = trusted_file(settings)
    own = None if named is None else existing_signer(settings)
    return named if named is None or own is None else named | TrustedKeys.of([own.public])


def keys_of_auditor(settings: Settings) -> TrustedKeys | None:
    """Return the keys that count for who audits: those of the file that he names, and no others.

    Without a file, on the embedded store, the data directory's own key.

    Raises
    ------
    InvalidData
        The file, or the own key, cannot be used.
    """
    named = trusted_file(settings)
    if named is not None or settings.redis_url is not None:
        return named
    own = existing_signer(settings)
    return None if own is None else TrustedKeys.of([own.public])
