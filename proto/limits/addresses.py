"""Client addresses: which of them share a limit per address, and which are banned.

A host or a site is assigned at least a whole /64 of IPv6 and may connect from any of its addresses,
so such a network counts as one place; so does a single IPv4 address. Bans name an address or a
network. An IPv4 address inside IPv6 (`::ffff:192.0.2.7`) is treated as that IPv4 address
everywhere.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Generic, TypeVar

V = TypeVar("V")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

SITE_BITS: Final = 64
"""Length of the IPv6 prefix that identifies a place; the bits after it belong to one network."""
REMEMBERED: Final = 4096
"""Number of cached addresses. A few partner relays connect often, and theirs need not be parsed
again."""
SHORTEST_BITS: Final = {4: 8, 6: 16}
"""Shortest prefix of a banned network, by IP version. A shorter one is a typing error: it covers
hundreds of organisations."""
MAX_NETWORK_CHARS: Final = 43
"""Maximum length of a canonical IPv6 network with its prefix length."""
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")


class NetworkError(ValueError):
    """The text is not an address or network that can be banned; the message says what to write
    instead.
    """


def place_of(address: str, site_bits: int = SITE_BITS) -> str:
    """Return the key under which the limits of an address are counted.

    Args:
        address: address without a port; any text that is not an IPv6 address is its own place.
        site_bits: prefix length of the IPv6 networks that count as one place.
    """
    return _site_of(address, site_bits) if ":" in address else address


@lru_cache(REMEMBERED)
def _site_of(address: str, site_bits: int) -> str:
    try:
        site = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if site.ipv4_mapped is not None:
        return str(site.ipv4_mapped)
    return str(ipaddress.IPv6Network((site, site_bits), strict=False))


def read_address(text: str) -> Address | None:
    """Parse an address without a port; None for any other text, such as that of a Unix socket."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def read_network(text: str) -> Network:
    """Parse the network of a ban: an address, or a network in CIDR notation.

    Raises:
        NetworkError: the text is neither, or the network is wider than `SHORTEST_BITS`.
    """
    text = text.strip()
    try:
        network = ipaddress.ip_network(text.replace("%", " "), strict=False)  # refuses scopes
    except ValueError:
        raise NetworkError(
            f"{text[:MAX_NETWORK_CHARS]!r} is not an address or network; "
            "write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/64"
        ) from None
    host = ipaddress.ip_address(text.partition("/")[0])
    if isinstance(network, ipaddress.IPv6Network) and network.overlaps(_MAPPED):
        if not network.subnet_of(_MAPPED):
            raise NetworkError(f"{network} holds all of IPv4; name IPv4 networks as such")
        bits = network.prefixlen - _MAPPED.prefixlen
        network = ipaddress.IPv4Network((int(network.network_address) & 0xFFFFFFFF, bits))
        host = getattr(host, "ipv4_mapped", None) or host
    if host != network.network_address:
        raise NetworkError(f"{text} is an address within {network}; write {network} or {host}")
    shortest = SHORTEST_BITS[network.version]
    if network.prefixlen < shortest:
        raise NetworkError(
            f"{network} is too wide; the shortest prefix of IPv{network.version} is /{shortest}"
        )
    return network


def shown_network(network: Network) -> str:
    """Return a network as text; a single address has no prefix length."""
    whole = network.prefixlen == network.max_prefixlen
    return str(network.network_address if whole else network)


class NetworkTable(Generic[V]):
    """Values by network, found with one dictionary look-up per prefix length in use.

    Results are cached, so that a repeated address costs one dictionary look-up.
    """

    def __init__(self, values: Mapping[Network, V]) -> None:
        lengths: dict[tuple[int, int], dict[int, V]] = defaultdict(dict)
        for network, value in values.items():
            shift = network.max_prefixlen - network.prefixlen
            lengths[network.version, shift][int(network.network_address) >> shift] = value
        self._lengths = sorted(lengths.items(), key=lambda each: each[0])  # the longest first
        self._answers: dict[str, V | None] = {}

    def __bool__(self) -> bool:
        return bool(self._lengths)

    def find(self, address: str) -> V | None:
        """Return the value of the smallest network that contains an address without a port, or
        None.
        """
        if not self._lengths:
            return None
        if address not in self._answers:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            self._answers[address] = self._look_up(address)
        return self._answers[address]

    def _look_up(self, text: str) -> V | None:
        address = read_address(text)
        if address is not None:
            number = int(address)
            for (version, shift), values in self._lengths:
                if version == address.version and number >> shift in values:
                    return values[number >> shift]
        return None


class BannedNetworks(NetworkTable[bool]):
    """Set of banned networks."""

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        super().__init__(dict.fromkeys(networks, True))

    def covers(self, address: str) -> bool:
        """Return whether an address without a port is banned; any other text never is."""
        return self.find(address) is not None
