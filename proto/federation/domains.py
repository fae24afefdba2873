"""Names of relays, as twins list them: `host` or `host:port`, and nothing else.

Twins choose this text freely, and it becomes the address of a request. So any text that could be
read as a path, a user, a query or a second host is rejected. On chain there are no ports; test
networks use them.

The name of a relay can be spelled in many ways. `fold` maps all of them to one text, and every name
passes through it where it enters: from the chain, the registry, an operator, an option, a client,
or the header of a request. After that, names are compared as texts. The text as entered is kept
where it is displayed, and on the chain, where the reference relay compares bytes.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final, NamedTuple

MAX_DOMAIN_BYTES: Final = 260
"""Maximum size of a name of 253 characters and a port."""
MAX_HOST_BYTES: Final = 253
MAX_LABEL_CHARS: Final = 63
DEFAULT_PORT: Final = 443
"""Default port of relays, which use HTTPS among themselves. Only test networks use HTTP."""
LOOPBACK: Final = "127.0.0.1"
REMEMBERED: Final = 4096
"""Number of names whose canonical form is cached: twins list a few relays again and again."""

_DOMAIN: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_SPELLED: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::(?P<port>[0-9]{1,5})\.?)?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:/+", re.IGNORECASE)
_OTHER_PARTS: Final = re.compile(r"[/?#\\].*", re.DOTALL)
_BETWEEN: Final = re.compile(r"[\s,;|_]+")
_LOOPBACK: Final = re.compile(r"(?:localhost|\[::1\])(?=:|\Z)")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class DomainError(ValueError):
    """The text cannot be the domain of a relay."""


class Place(NamedTuple):
    """Host and port at which a relay is reached.

    Attributes:
        host: host name or IP address; IPv6 without its brackets.
        port: None for the default port.
    """

    host: str
    port: int | None


def parse(domain: str) -> Place:
    """Parse a domain.

    Raises:
        DomainError: the text is not a domain.
    """
    found = _DOMAIN.fullmatch(domain) if len(domain) <= MAX_DOMAIN_BYTES else None
    if found is None or ".." in domain or len(found["host"]) > MAX_HOST_BYTES:
        raise DomainError("domain: must be host or host:port")
    return Place(found["host"].strip("[]"), _port(found["port"]))


def canonical(domain: str) -> str:
    """Return the canonical spelling of a relay's name.

    It is in lower case and without a dot at the end or the default port. International names are in
    their ASCII form, addresses in their shortest form, and an IPv6 address that wraps an IPv4
    address is that IPv4 address.

    Raises:
        DomainError: the text is neither host nor host:port.
    """
    found = _SPELLED.fullmatch(domain) if len(domain) <= MAX_DOMAIN_BYTES else None
    if found is None:
        raise DomainError("domain: must be host or host:port")
    host, port = _host(found["host"]), _port(found["port"])
    return host if port in (None, DEFAULT_PORT) else f"{host}:{port}"


def spelled(domain: str) -> str:
    """Return the canonical name, or the text itself if it is not a name of a relay."""
    try:
        return canonical(domain)
    except DomainError:
        return domain


@lru_cache(REMEMBERED)
def fold(domain: str) -> str:
    """Return the text that identifies a relay.

    It is the canonical name, with `localhost` and `[::1]` as 127.0.0.1, because all three lead to
    the same host. A text that is not a name of a relay is returned unchanged.
    """
    name = spelled(domain)
    found = _LOOPBACK.match(name)
    return LOOPBACK + name[found.end() :] if found else name


@lru_cache(REMEMBERED)
def reachable(relays: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a twin's relays that requests can be made to.

    Args:
        relays: names as returned by `fold`.
    """
    return tuple(relay for relay in relays if is_name(relay))


def is_name(text: str) -> bool:
    """Return whether a text is the name of a relay in any spelling."""
    try:
        canonical(text)
    except DomainError:
        return False
    return True


def is_address(host: str) -> bool:
    """Return whether a host is not a name: an IP address in any spelling, or invalid."""
    try:
        return ":" in host or _address(_name(host)) is not None
    except DomainError:
        return True


def nearest(text: str) -> tuple[str, ...]:
    """Return the names of relays that a text was probably meant to be; empty if none can be
    guessed.
    """
    bare = _OTHER_PARTS.sub("", _SCHEME.sub("", text.strip())).rpartition("@")[2]
    words = [word.strip(".") for word in _BETWEEN.split(bare) if word.strip(".")]
    return tuple(words) if all(map(is_name, words)) else ()


def _port(digits: str | None) -> int | None:
    port = int(digits) if digits else None
    if port is not None and not 0 < port < 65536:
        raise DomainError("domain: the port must be 1 to 65535")
    return port


def _host(text: str) -> str:
    if not text.startswith("["):
        text = _name(text)
    elif ":" not in text:
        raise DomainError("domain: only an IPv6 address stands in brackets")
    address = _address(text.strip("[]"))
    if address is None:
        return text
    return f"[{address}]" if address.version == 6 else str(address)


def _name(text: str) -> str:
    if any(len(label) > MAX_LABEL_CHARS for label in text.split(".")):  # before it is encoded
        raise DomainError(f"domain: a label of the host is above {MAX_LABEL_CHARS} characters")
    try:
        # This converts labels of other scripts to ASCII and checks the lengths of all.
        name = text.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        raise DomainError("domain: the host has an empty or too long label") from None
    if len(name) > MAX_HOST_BYTES or not _DOMAIN.fullmatch(name):
        raise DomainError("domain: a host has letters, digits, dots and hyphens only")
    return name


def _address(host: str) -> _Address | None:
    """Return the address that a host spells, in any notation that systems accept; None for
    a name.
    """
    try:
        if ":" in host:
            wide = ipaddress.IPv6Address(host)
            return wide.ipv4_mapped or wide
        labels = host.split(".")
        if not _NUMBER.fullmatch(labels[-1]):
            return None
        if len(labels) > 4:
            raise ValueError("too many labels")
        *first, last = map(_number, labels)
        if any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
            raise ValueError("too large")
        return ipaddress.IPv4Address(
            sum(number << 8 * (3 - at) for at, number in enumerate(first)) + last
        )
    except ValueError:
        raise DomainError(f"domain: {host:.60} is neither an IP address nor a host name") from None


def _number(label: str) -> int:
    """Parse a part of an IPv4 address: decimal, hexadecimal after 0x, octal after 0."""
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") and len(label) > 1 else 10)
