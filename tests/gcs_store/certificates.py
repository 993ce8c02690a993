"""Certificates that only these tests trust."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

FAR = "gcs.test"  # a name that only the proxy of a test knows


class Certificates(NamedTuple):
    """Files: who vouches, and the server's own chain with its key."""

    authority: Path
    server: Path

    def for_server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        return context

    def for_client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


def make(folder: Path) -> Certificates:
    """For this machine and for `FAR`, valid today."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "durable's tests")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.DNSName(FAR)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    authority, server = folder / "authority.pem", folder / "server.pem"
    authority.write_bytes(public)
    server.write_bytes(private + public)
    return Certificates(authority, server)
