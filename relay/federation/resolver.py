"""Addresses of other relays: public ones only, and the one that was looked at is connected to.

Domains come from twins, so a domain may point anywhere: at this host, at its neighbours, at the
metadata service of a cloud. A name is looked up once for a connection; what is not public is left
out of the answer, and the connection is made to an address of that very answer, so a name that
resolves differently the next time gains nothing. Addresses written as such (also inside of IPv6
ones) are judged the same way before anything is sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

THREADS: Final = 32
"""Look-ups under way: names whose servers do not answer must not hold up the others."""
MAX_ADDRESSES: Final = 8
"""Used of one answer."""

# Well-known prefix of translation to IPv4 (RFC 6052); the address is in the last four bytes.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# All IPv6 addresses that were given to anybody. Beside them only what has an IPv4 address inside
# leads anywhere, also in ways of the local network's own.
_GIVEN: Final = ipaddress.IPv6Network("2000::/3")
# Special addresses that the library of the oldest Python takes for global ones.
_SPECIAL: Final = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp = Callable[..., list[tuple[Any, ...]]]


def is_public(address: Address) -> bool:
    """Whether relays may be at this address; an IPv4 address inside of it must be public too."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address not in _GIVEN:
            return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_unspecified


class PublicResolver:
    """Looks names up in threads of its own and lets public addresses through."""

    def __init__(self, allow_private: bool, look_up: LookUp = socket.getaddrinfo) -> None:
        """
        Args:
            allow_private: lets all addresses through.
            look_up: the system's `getaddrinfo`.
        """
        self._allow_private = allow_private
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolver")

    def check(self, host: str) -> None:
        """Judges a host that is written as an address; a name is judged when it is looked up.

        Raises:
            OSError: nothing may be sent there.
        """
        address = _literal(host)
        if address is not None and not self._lets(address):
            raise OSError(f"{address} is not a public address")

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host that may be connected to.

        Raises:
            OSError: there is none.
        """
        address = _literal(host)
        if address is not None:
            self.check(host)
            return [str(address)]
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._found, host, port
        )
        addresses = [
            ipaddress.ip_address(place[0].partition("%")[0]) for *_, place in found[:MAX_ADDRESSES]
        ]
        usable = [str(address) for address in addresses if self._lets(address)]
        if not usable:
            raise OSError(f"{host} has no public address" if found else f"{host} has no address")
        return usable

    def _lets(self, address: Address) -> bool:
        return self._allow_private or is_public(address)

    def _found(self, host: str, port: int) -> list[tuple[Any, ...]]:
        return self._look_up(host, port, type=socket.SOCK_STREAM)

    async def close(self) -> None:
        """Ends the threads without waiting for the look-ups they are in."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _literal(host: str) -> Address | None:
    """The address a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
