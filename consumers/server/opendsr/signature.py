"""What OpenDSR answers are signed with: the key that signs receipts, and a certificate of it.

The standard signs with RSA, and names a certificate by an authority. Lethe's keys are Ed25519
(docs/evidence.md), so the signature is Ed25519 over the whole body, and the certificate is made by
the key itself: whoever checks it compares its key with the one that they trust.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)  # RFC 5280: no well-defined expiration


class AnswerSigner:
    """Signs answers for a processor's domain."""

    def __init__(self, private: Ed25519PrivateKey, domain: str) -> None:
        self._private = private
        self._domain = domain

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the headers of an answer or a callback."""
        signature = base64.b64encode(self._private.sign(body)).decode()
        return {
            "X-OpenDSR-Processor-Domain": self._domain,
            "X-OpenDSR-Signature": signature,
        }

    def certificate(self) -> bytes:
        """Return the certificate in PEM form, always the same bytes for one key and domain."""
        public = self._private.public_key()
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._domain[:64])])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(int.from_bytes(hashlib.sha256(raw).digest()[:16], "big") | 1)
            .not_valid_before(_BEGIN)
            .not_valid_after(_END)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(self._domain)]), False)
            .sign(self._private, None)
        )
        return certificate.public_bytes(serialization.Encoding.PEM)
