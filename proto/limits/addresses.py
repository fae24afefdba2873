"""Whom a limit for each address is for: whoever has one IPv6 address has 2^64 of them.

A host or a site is given a whole /64 of IPv6 at least, and may call from any of its addresses; an
IPv4 address is one place.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

SITE_BITS: Final = 64
"""Of an IPv6 address: what is below belongs to one network."""
REMEMBERED: Final = 4096
"""Addresses of IPv6 whose place is known without reading them: a handful of partners call often."""


def place_of(address: str) -> str:
    """What the limits of an address are counted under.

    Args:
        address: without a port; anything that is no IPv6 address is its own place.
    """
    return _site_of(address) if ":" in address else address


@lru_cache(REMEMBERED)
def _site_of(address: str) -> str:
    try:
        site = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if site.ipv4_mapped is not None:
        return str(site.ipv4_mapped)
    return str(ipaddress.IPv6Network((site, SITE_BITS), strict=False))
