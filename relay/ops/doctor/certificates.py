"""TLS: the relay's certificate, and the authorities by which partner relays are verified."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from django.conf import settings

from relay.ops.doctor.finding import Finding, fault, ok, warning
from relay.ops.wording import counted

SOON: Final = timedelta(days=14)

_PUBLIC: Final = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def own_certificate(now: datetime | None = None) -> Iterator[Finding]:
    """Check that the certificate is readable, matches its key, names the domains and is valid."""
    relay = settings.RMB.relay
    if not relay.tls_cert:
        return
    try:
        certificate = x509.load_pem_x509_certificates(Path(relay.tls_cert).read_bytes())[0]
        key = serialization.load_pem_private_key(Path(relay.tls_key).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        yield fault(
            "tls.files",
            f"certificate or key cannot be read: {error}",
            "relay.tls_cert and relay.tls_key must be PEM files without a pass phrase, readable by "
            "the user of the relay",
        )
        return
    if key.public_key().public_bytes(*_PUBLIC) != certificate.public_key().public_bytes(*_PUBLIC):
        yield fault(
            "tls.key",
            f"{relay.tls_key} is not the key of {relay.tls_cert}",
            "install the pair that was issued together",
        )
    yield from _validity(certificate, now or datetime.now(UTC))
    names = _names(certificate)
    missing = [domain for domain in map(host_of, relay.domains) if not _covered(domain, names)]
    if missing:
        yield fault(
            "tls.names",
            f"the certificate is for {', '.join(names) or 'no name'}, not for {', '.join(missing)}",
            "clients and relays refuse it: have it issued for every name of relay.domains",
        )


def authorities() -> Iterator[Finding]:
    """Check the file of authorities by which partner relays are verified."""
    path = settings.RMB.federation.ca_file
    if not path:
        return
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        yield fault(
            "tls.authorities",
            f"federation.ca_file {path} cannot be used: {error}",
            "name a PEM file of certificates, or leave it empty for those of the system",
        )
    else:
        yield ok("tls.authorities", f"partner relays are verified with {path}")


def _validity(certificate: x509.Certificate, now: datetime) -> Iterator[Finding]:
    until = certificate.not_valid_after_utc
    renew = "renew it, then restart the relay's workers (a drain of each loses nothing)"
    if until <= now:
        yield fault("tls.expiry", f"the certificate expired on {until:%Y-%m-%d %H:%M} UTC", renew)
    elif certificate.not_valid_before_utc > now:
        yield fault(
            "tls.expiry",
            f"the certificate is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            "check the clock of this machine",
        )
    elif until - now < SOON:
        yield warning(
            "tls.expiry", f"the certificate expires in {counted((until - now).days, 'day')}", renew
        )
    else:
        yield ok("tls.expiry", f"the certificate is valid until {until:%Y-%m-%d}")


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return [str(name.value) for name in common]
    names = extension.value.get_values_for_type(x509.DNSName)
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return [*names, *map(str, addresses)]


def _covered(host: str, names: list[str]) -> bool:
    parent = host.partition(".")[2]
    return any(name.lower() in (host.lower(), f"*.{parent.lower()}") for name in names)


def host_of(domain: str) -> str:
    """Return the host name of a domain, which may have a port in a test network."""
    host, colon, port = domain.rpartition(":")
    host = host if colon and port.isdigit() else domain
    return host.removesuffix(".").strip("[]").lower()
