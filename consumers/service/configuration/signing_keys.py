"""Which keys this process signs with, and which it trusts, according to the settings."""

from __future__ import annotations

from pathlib import Path

from lethe.consumers.contract.signatures import (
    Signer,
    TrustedKeys,
    new_key_file,
    read_signer,
    read_trusted,
)
from lethe.consumers.service.configuration.settings import Settings
from lethe.engine.errors import InvalidData

OWN_KEY = "signing-key.pem"
"""The key in the data directory, for the embedded store: created on first use."""


def key_path(settings: Settings) -> Path | None:
    """Return the path of the private key, existing or not; None: events are not signed."""
    if settings.signing_key is not None:
        return settings.signing_key
    return settings.data_dir / OWN_KEY if settings.redis_url is None else None


def existing_signer(settings: Settings) -> Signer | None:
    """Return the signer of this process; None without a key, or before it is created.

    Raises
    ------
    InvalidData
        The key cannot be used.
    """
    path = key_path(settings)
    not_created = settings.signing_key is None and path is not None and not path.exists()
    return None if path is None or not_created else read_signer(path)


def signer_of(settings: Settings) -> Signer:
    """Return the signer of this process.

    Raises
    ------
    InvalidData
        There is none, or its key cannot be used.
    """
    signer = existing_signer(settings)
    if signer is None:
        raise InvalidData(
            "no key signs events here: name a FILE, or set LETHE_SIGNING_KEY; the data directory's "
            "own key is created when the first model is registered"
        )
    return signer


def signer_for_publishing(settings: Settings) -> Signer | None:
    """Return the signer of this process; the data directory's own key is created on first use.

    Raises
    ------
    InvalidData
        The key cannot be used or created.
    """
    signer = existing_signer(settings)
    path = key_path(settings)
    if signer is not None or path is None:
        return signer
    try:
        return new_key_file(path)
    except InvalidData:
        if path.exists():  # another process created it first
            return read_signer(path)
        raise


def request_signer(settings: Settings) -> Signer | None:
    """Return what requests are signed with, if a key is named for that.

    Raises
    ------
    InvalidData
        The key cannot be used.
    """
    path = settings.request_signing_key
    return None if path is None else read_signer(path)


def trusted_file(settings: Settings) -> TrustedKeys | None:
    """Return the keys in the trusted file alone; None if no file is named."""
    return None if settings.trusted_keys is None else read_trusted(settings.trusted_keys)


def trusted_keys(settings: Settings) -> TrustedKeys | None:
    """Return the keys whose events are accepted: those in the file, and this process's own.

    None if no file is named: then signatures are not required.

    Raises
    ------
    InvalidData
        The file, or the own key, cannot be used.
    """
    trusted = trusted_file(settings)
    own = None if trusted is None else existing_signer(settings)
    return trusted if trusted is None or own is None else trusted | TrustedKeys.of([own.public])


def keys_of_auditor(settings: Settings) -> TrustedKeys | None:
    """Return the keys that an auditor accepts: those in the trusted file, and no others.

    Without a file, on the embedded store: the data directory's own key.

    Raises
    ------
    InvalidData
        The file, or the own key, cannot be used.
    """
    trusted = trusted_file(settings)
    if trusted is not None or settings.redis_url is not None:
        return trusted
    own = existing_signer(settings)
    return None if own is None else TrustedKeys.of([own.public])
