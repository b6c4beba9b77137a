#!/usr/bin/env python3
"""Make a certificate authority and certificates signed by it, for tests and for one machine.

    scripts/make_certificates.py DIR [--host NAME ...] [--client NAME ...] [--days N]

DIR gets ``ca.pem``, ``server.pem`` (key and certificate together, as Kafka reads them) with
``server-cert.pem`` and ``server-key.pem``, and for each client ``NAME-cert.pem`` and
``NAME-key.pem``. Files with a key have mode 0600. The authority's own key is not kept: to add a
certificate, make all of them again. Where your organisation has an authority, use that.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ORGANISATION = "Lethe test authority"
HOSTS = ("localhost", "127.0.0.1")
DAYS = 30.0


class Authority:
    """A key that signs, and the certificate that says so."""

    def __init__(self, name: str = ORGANISATION, days: float = DAYS) -> None:
        self._days = days
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        self._certificate = (
            _builder(subject, subject, self._key, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The authority's certificate: what clients and servers trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, name: str, hosts: tuple[str, ...] = (), days: float | None = None
    ) -> tuple[bytes, bytes]:
        """Return a key and a certificate of ``name``; negative ``days``: it has expired.

        With ``hosts`` a server's, for these names and addresses; else a client's.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        # A broker is a client as well: of its own controller.
        purposes = [purpose, ExtendedKeyUsageOID.CLIENT_AUTH] if hosts else [purpose]
        builder = (
            _builder(
                _name(name), self._certificate.subject, key, self._days if days is None else days
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return _pem(key), certificate.public_bytes(serialization.Encoding.PEM)


def make(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: float) -> None:
    """Write an authority, a server's certificate and clients' certificates."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority()
    (directory / "ca.pem").write_bytes(authority.pem)
    key, certificate = authority.issue("broker", hosts, days)
    _write_private(directory / "server.pem", key + certificate)
    _write_private(directory / "server-key.pem", key)
    (directory / "server-cert.pem").write_bytes(certificate)
    for client in clients:
        key, certificate = authority.issue(client)
        _write_private(directory / f"{client}-key.pem", key)
        (directory / f"{client}-cert.pem").write_bytes(certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - datetime.timedelta(days=1))
        .not_valid_after(end)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def main(arguments: list[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--host", action="append", default=[], help=f"default: {HOSTS}")
    parser.add_argument("--client", action="append", default=[], help="default: none")
    parser.add_argument("--days", type=float, default=DAYS, help=f"default: {DAYS:g}")
    chosen = parser.parse_args(arguments)
    make(chosen.directory, tuple(chosen.host) or HOSTS, tuple(chosen.client), chosen.days)
    print(chosen.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
