"""Decisions of operators about SBD: banned keys, and limits of single keys and networks.

`relay.limits.sbd` writes them to `relay:control`, where each worker reads them
(`relay.sessions.control`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from proto.limits.addresses import Network, NetworkTable, read_network
from proto.sbd.errors import KeyFormatError
from proto.sbd.frames import key_of_path
from proto.sbd.rate import byte_nanos_of

log = logging.getLogger(__name__)

KINDS: Final = ("ban_key", "ban_address", "limit_key", "limit_address")
"""Kinds of the fields of `relay:control` that concern SBD."""


class Decisions(NamedTuple):
    """The decisions in force.

    Attributes:
        banned: keys that may not connect.
        keys: nanoseconds that each byte of a key takes, by the key as in paths; 0: no limit.
        networks: the same for each address of a network.
    """

    banned: frozenset[bytes] = frozenset()
    keys: Mapping[str, int] = {}
    networks: NetworkTable[int] = NetworkTable({})


def read(fields: Mapping[str, str], ipv6_prefix: int) -> Decisions:
    """Read the fields of `relay:control`; malformed ones are logged and ignored.

    Args:
        ipv6_prefix: number of bits of an IPv6 address by which limits are counted; limits of
            smaller networks have no effect.
    """
    banned: set[bytes] = set()
    keys: dict[str, int] = {}
    networks: dict[Network, int] = {}
    for name, value in fields.items():
        kind, _, subject = name.partition(":")
        try:
            if kind == "ban_key":
                banned.add(key_of_path(subject))
            elif kind == "limit_key":
                key_of_path(subject)
                keys[subject] = _byte_nanos(value)
            elif kind == "limit_address":
                network = read_network(subject)
                if network.version == 4 or network.prefixlen <= ipv6_prefix:
                    networks[network] = _byte_nanos(value)
        except (ValueError, KeyFormatError):
            log.error("control state: %s = %.80r is malformed", name, value)
    return Decisions(frozenset(banned), keys, NetworkTable(networks))


def _byte_nanos(text: str) -> int:
    kbit_per_s = int(text)
    return byte_nanos_of(kbit_per_s) if kbit_per_s else 0
