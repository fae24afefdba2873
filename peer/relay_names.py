"""Identification of the relay that a websocket address leads to.

Two addresses of one relay would open the same session twice, and each would replace the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from proto.federation.domains import fold

_PORTS: Final = {"ws": 80, "wss": 443}


def name_of(url: str) -> str:
    """Return the name of the relay at an address, whatever its scheme and its path.

    Raises:
        ValueError: the address has an invalid host or port.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    shown = f"[{host}]" if ":" in host else host
    return fold(shown if port in (None, _PORTS.get(parts.scheme)) else f"{shown}:{port}")


def distinct(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the first address of each relay.

    Raises:
        ValueError: one of them has an invalid host or port.
    """
    found: dict[str, str] = {}
    for url in urls:
        found.setdefault(name_of(url), url)
    return tuple(found.values())
