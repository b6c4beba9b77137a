"""How a client verifies the server and authenticates: certificates, and passwords from files.

Used for the store and for Kafka alike. Nothing here prints the content of a file.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from lethe.engine.errors import InvalidData

_MAX_SECRET_BYTES = 4096
"""A password file holds one line; this keeps a wrong path (a log, a device) from being read."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a connection. ``prefix`` begins the names of the settings they come from.

    Without ``ca`` the system's certificate authorities are trusted.
    """

    prefix: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def given(self) -> list[str]:
        """Return the settings that name a file."""
        named = {"CA": self.ca, "CERT": self.certificate, "KEY": self.key}
        return [f"{self.prefix}_{name}_FILE" for name, path in named.items() if path is not None]

    def context(self) -> ssl.SSLContext:
        """Return a context that checks the server's certificate and name, TLS 1.2 or newer.

        Raises
        ------
        InvalidData
            A file cannot be read or is not what its setting says.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and name
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:  # it replaces the system's authorities
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise self._unusable("CA", self.ca, error) from None
        if (self.certificate is None) != (self.key is None):
            raise InvalidData(
                f"{self.prefix}_CERT_FILE and {self.prefix}_KEY_FILE belong together: set both, or "
                "neither"
            )
        if self.certificate is not None and self.key is not None:
            try:
                # An encrypted key would ask for its password on the terminal.
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except (OSError, ssl.SSLError, InvalidData) as error:
                raise self._unusable("CERT", self.certificate, error, also="KEY") from None
        return context

    def _unusable(
        self, name: str, path: Path, error: Exception, also: str | None = None
    ) -> InvalidData:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        settings = f"{self.prefix}_{name}_FILE"
        if also is not None:
            settings += f" and {self.prefix}_{also}_FILE"
        return InvalidData(
            f"{settings}: {path} cannot be used ({reason}); name PEM files that this user may "
            "read, the key without a password"
        )


@dataclass(frozen=True, slots=True)
class Access:
    """What `engine.store.server.connection.connect` needs besides the address."""

    tls: TlsFiles = field(default_factory=lambda: TlsFiles("LETHE_REDIS"))
    password: str | None = field(default=None, repr=False)


def read_secret(path: Path, setting: str) -> str:
    """Return the one line of a file, without the line end.

    Raises
    ------
    InvalidData
        It cannot be read, is empty, or is not one short line; the message names only the file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise InvalidData(f"{setting}: {path} cannot be read ({error.strerror})") from None
    try:
        secret = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        secret = ""
    if not secret or "\n" in secret or len(content) > _MAX_SECRET_BYTES:
        raise InvalidData(f"{setting}: {path} must hold one line of UTF-8 text, the secret")
    return secret


def advice(reason: str, prefix: str) -> str | None:
    """Return advice for a TLS failure; None if the failure is not a known one.

    ``reason`` is OpenSSL's text, which the clients pass on in their own messages.
    """
    text = reason.lower()
    for words, hint in _KNOWN:
        if any(word in text for word in words):
            return hint.format(prefix=prefix)
    return None


NO_TLS = "no answer to the TLS handshake"

_KNOWN = (
    (
        ("certificate has expired", "certificate is not yet valid"),
        "its certificate has expired or is not valid yet: renew it on the server, and look at both "
        "clocks",
    ),
    (
        ("hostname mismatch", "ip address mismatch", "doesn't match"),
        "its certificate is for another name: connect by a name that the certificate has",
    ),
    (
        ("certificate_verify_failed", "certificate verify failed"),
        "its certificate was not signed by an authority that {prefix}_CA_FILE holds: name the "
        "right CA file",
    ),
    (
        (
            "certificate required",
            "certificate_required",
            "alert_certificate",
            "bad certificate",
            "bad_certificate",
            "unknown ca",
            "unknown_ca",
            "handshake_failure",
        ),
        "it wants a client certificate from an authority that it trusts: set {prefix}_CERT_FILE "
        "and {prefix}_KEY_FILE, or renew what they name",
    ),
    (
        (
            "wrong_version_number",
            "wrong version number",
            "unexpected_eof",
            "eof occurred",
            "closed (eof)",
            "to the tls",
            "plaintext broker listener",
        ),
        "it does not speak TLS on this port",
    ),
)


def _no_password() -> str:
    raise InvalidData("the key is encrypted")
