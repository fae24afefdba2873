"""Look-ups of partner relays' addresses that let only public addresses through.

Domains come from twins, so a domain may point anywhere: at this host, at its neighbours, at the
metadata service of a cloud. A name is looked up once for a connection, addresses that are not
public are removed from the answer, and the connection is made to an address of that very answer. So
a name that resolves differently the next time gains nothing. Addresses written as such (also inside
IPv6 addresses) are checked in the same way before anything is sent.

Name servers that do not answer block a thread until the system's look-up gives up, and twins choose
the names. So a name is looked up once at a time, a twin's new names a few at a time, names of
relays that have accepted messages have threads of their own, and an answer of the last minute is
used if no new one comes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

THREADS: Final = 32
"""Maximum number of look-ups in flight: names whose servers are silent must not block others."""
PROVEN_THREADS: Final = 16
"""Additional look-ups for names of relays that have accepted messages."""
TWIN_LOOK_UPS: Final = 2
"""Maximum number of look-ups in flight for one twin, not counting those of such relays."""
REMEMBERED_S: Final = 60.0
MAX_REMEMBERED: Final = 1024
"""Maximum number of names whose answer is remembered."""
PATIENCE_S: Final = 0.5
"""Seconds to wait for a new answer before a remembered one is used."""
MAX_ADDRESSES: Final = 8
"""Maximum number of addresses used of one answer."""

# Well-known prefix of translation to IPv4 (RFC 6052); the address is in the last four bytes.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# Beginning of the interface identifier of an address that tunnels to IPv4 within a site (RFC 5214),
# in any network; one of its bits tells whether it is globally unique.
_ISATAP: Final = 0x00005EFE
_ANY_GIVER: Final = 0xFDFFFFFF
# The range of all assigned IPv6 addresses. Outside it only addresses with an embedded IPv4 address
# lead anywhere, also by translation prefixes of the local network.
_GIVEN: Final = ipaddress.IPv6Network("2000::/3")
# Special addresses that the oldest supported Python's library takes for global ones.
_SPECIAL: Final = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))

Found = list[tuple[Any, ...]]
"""The result of `getaddrinfo`."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp = Callable[..., Found]


class ResolverFull(OSError):
    """No look-up can be started now; this is not a failure of the relay."""


class Asker(NamedTuple):
    """The twin and relay that a name is looked up for.

    Attributes:
        twin: twin that lists the relay.
        proven: whether the relay has accepted messages before.
    """

    twin: int
    proven: bool


ANYBODY: Final = Asker(0, True)


def is_public(address: Address) -> bool:
    """Check whether a relay may have this address; an embedded IPv4 address must be public too."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        isatap = (int(address) >> 32) & _ANY_GIVER == _ISATAP
        if isatap or address.teredo is not None or address not in _GIVEN:
            return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_unspecified


class PublicResolver:
    """Looks names up in its own threads, and lets only public addresses through."""

    def __init__(self, allow_private: bool, look_up: LookUp = socket.getaddrinfo) -> None:
        """
        Args:
            allow_private: whether to let all addresses through.
            look_up: the system's `getaddrinfo`.
        """
        self._allow_private = allow_private
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(THREADS + PROVEN_THREADS, thread_name_prefix="resolver")
        self._under_way: dict[str, asyncio.Future[Found]] = {}  # by name
        self._asked: Counter[int] = Counter()  # how many, by twin, for relays that are not proven
        self._remembered: dict[str, tuple[float, Found]] = {}  # expiry (loop time) and answer

    def check(self, host: str) -> None:
        """Check a host that is written as an address; a name is checked when it is looked up.

        Raises:
            OSError: nothing may be sent there.
        """
        address = _literal(host)
        if address is not None and not self._lets(address):
            raise OSError(f"{address} is not a public address")

    async def resolve(self, host: str, port: int, asker: Asker = ANYBODY) -> list[str]:
        """Return the addresses of a host that may be connected to.

        Raises:
            ResolverFull: it cannot be looked up now.
            OSError: the name has no such address.
        """
        address = _literal(host)
        if address is not None:
            self.check(host)
            return [str(address)]
        found = await self._find(host, port, asker)
        addresses = [
            ipaddress.ip_address(place[0].partition("%")[0]) for *_, place in found[:MAX_ADDRESSES]
        ]
        usable = [str(address) for address in addresses if self._lets(address)]
        if not usable:
            raise OSError(f"{host} has no public address" if found else f"{host} has no address")
        return usable

    def _lets(self, address: Address) -> bool:
        return self._allow_private or is_public(address)

    async def _find(self, host: str, port: int, asker: Asker) -> Found:
        until, remembered = self._remembered.get(host, (0.0, []))
        if until <= asyncio.get_running_loop().time():
            remembered = []
        look_up = self._under_way.get(host) or self._begin(host, port, asker)
        if look_up is not None:
            # It continues when this is cancelled: the thread is in use anyway, so its answer may be
            # used.
            await asyncio.wait({look_up}, timeout=PATIENCE_S if remembered else None)
            if look_up.done():
                return look_up.result()
        if not remembered:
            raise ResolverFull("too many names are being looked up")
        return remembered

    def _begin(self, host: str, port: int, asker: Asker) -> asyncio.Future[Found] | None:
        if len(self._under_way) >= THREADS + (PROVEN_THREADS if asker.proven else 0):
            return None
        if not asker.proven:
            if self._asked[asker.twin] >= TWIN_LOOK_UPS:
                return None
            self._asked[asker.twin] += 1
        look_up = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, host, port)
        self._under_way[host] = look_up
        look_up.add_done_callback(partial(self._answered, host, asker))
        return look_up

    def _ask(self, host: str, port: int) -> Found:
        try:
            return self._look_up(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # a label is empty or has more than 63 characters
            raise OSError(f"{host} is not a host name") from error

    def _answered(self, host: str, asker: Asker, look_up: asyncio.Future[Found]) -> None:
        del self._under_way[host]
        if not asker.proven:
            self._asked[asker.twin] -= 1
            if not self._asked[asker.twin]:
                del self._asked[asker.twin]
        if look_up.cancelled() or look_up.exception() is not None or not look_up.result():
            return
        self._remembered.pop(host, None)
        if len(self._remembered) >= MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        until = asyncio.get_running_loop().time() + REMEMBERED_S
        self._remembered[host] = until, look_up.result()

    async def close(self) -> None:
        """Stop the threads without waiting for look-ups in flight."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _literal(host: str) -> Address | None:
    """Return the address that a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
