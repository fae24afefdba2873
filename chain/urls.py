"""Display of addresses: an error or a log line must not contain a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

ENCODE_PASSWORD: Final = (
    "there is an @ behind the first / ? or #: in a password write those as %2F, %3F and %23"
)

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,19}(?=://)", re.IGNORECASE)
_MISPLACED: Final = re.compile(r"[^/?#]*[/?#].*@", re.DOTALL)
_SHOWN_CHARACTERS: Final = 80
_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s'\"]*@")
"""Matches up to the last @ of a word, as a password may contain a / that is not written as %2F."""


def shown(url: str) -> str:
    """Return scheme, host and port, as far as they can be separated from the rest."""
    found = _SCHEME.match(url)
    scheme = f"{found[0]}://" if found else ""
    if "@" in url and (not found or at_behind_slash(url)):
        return f"{scheme}..."  # what looks like the host may be part of a password
    if not found:
        return url[:_SHOWN_CHARACTERS]
    netloc = re.split(r"[/?#]", url[len(scheme) :], maxsplit=1)[0]
    return f"{scheme}{netloc.rpartition('@')[2]}"[:_SHOWN_CHARACTERS]


def hide_credentials(text: str) -> str:
    """Return a text in which user names and passwords in addresses are hidden."""
    return _CREDENTIALS.sub("***@", text)


def at_behind_slash(url: str) -> bool:
    """Return whether a password seems to contain a character that ends the host part."""
    return _MISPLACED.match(url.partition("://")[2]) is not None


def host_and_port(url: str) -> tuple[str, int | None]:
    """Return the host and the port of an address, "" and None if it has none.

    Raises:
        ValueError: the host or port is invalid, or the path has characters that are not ASCII,
            which no request can have. The message is fixed.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        check_host(host)
    except ValueError:
        raise ValueError("the host or the port is invalid") from None
    if not parts.path.isascii():
        raise ValueError("the path must be ASCII: others are written as % and two digits")
    return host, port


def check_host(host: str) -> None:
    """Reject an invalid host name, whose look-up would fail with an error that is not the
    resolver's.

    Raises:
        ValueError: a label is empty, or longer than 63 bytes.
    """
    host.encode("idna")
