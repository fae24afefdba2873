"""How addresses are shown: an error or a log line must not repeat a password."""

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
"""Up to the last @ of a word: a password may hold a / that nobody wrote as %2F."""


def shown(url: str) -> str:
    """Scheme, host and port, as far as they can be told from the rest."""
    found = _SCHEME.match(url)
    scheme = f"{found[0]}://" if found else ""
    if "@" in url and (not found or at_behind_slash(url)):
        return f"{scheme}..."  # what stands where a host does may be part of a password
    if not found:
        return url[:_SHOWN_CHARACTERS]
    netloc = re.split(r"[/?#]", url[len(scheme) :], maxsplit=1)[0]
    return f"{scheme}{netloc.rpartition('@')[2]}"[:_SHOWN_CHARACTERS]


def hide_credentials(text: str) -> str:
    """A text with the user names and passwords of the addresses in it hidden."""
    return _CREDENTIALS.sub("***@", text)


def at_behind_slash(url: str) -> bool:
    """Whether a password seems to hold a character that ends the part of the host."""
    return _MISPLACED.match(url.partition("://")[2]) is not None


def host_and_port(url: str) -> tuple[str, int | None]:
    """The host and the port of an address, "" and None where it has none.

    Raises:
        ValueError: it has none that can be read, or a path of other than ASCII characters, which
            no request has. The text is fixed.
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
    """Refuses what can be no host: whoever looks that up gets an error of no resolver.

    Raises:
        ValueError: a label is empty, or longer than 63 bytes.
    """
    host.encode("idna")
