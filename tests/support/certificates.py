"""Self-signed certificates for tests. TEST KEYS ONLY: each is made for one test."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificate(
    folder: Path,
    *,
    host: str = "localhost",
    life: datetime.timedelta = datetime.timedelta(hours=1),
) -> tuple[Path, Path]:
    """Write a certificate and its key; return both paths.

    Args:
        folder: folder of both files.
        host: host name of the certificate, besides the loopback addresses.
        life: validity from now on (it begins five minutes ago); negative: already expired.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test of {host}")])
    now = datetime.datetime.now(datetime.UTC)
    loopback = [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    names = [x509.DNSName(host), *loopback]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + min(life, datetime.timedelta()) - datetime.timedelta(minutes=5))
        .not_valid_after(now + life)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / "cert.pem", folder / "key.pem"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_path, key_path
