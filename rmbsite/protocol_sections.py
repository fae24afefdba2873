"""The sections of the configuration for the protocols beside RMB, as :mod:`rmbsite.sections`."""

from __future__ import annotations

import dataclasses

from rmbsite.options import option
from rmbsite.sections import MIB


@dataclasses.dataclass(frozen=True, slots=True)
class SbdConfig:
    """The SBD server beside the relay: clients connect under a public key."""

    enabled: bool = option(
        False,
        "Serve SBD: on the public listener for paths that are a public key, and on sbd.listen.",
    )
    listen: tuple[str, ...] = option(
        (), "Additional addresses that serve only SBD: host:port or unix:/path."
    )
    max_clients: int = option(32_768, "Maximum number of SBD connections of one worker.", minimum=1)
    limit_kbit_per_s: int = option(
        1_000,
        "Kilobits per second an address may send, over all its SBD connections; 0: no limit.",
        minimum=0,
    )
    limit_burst_bytes: int = option(
        262_144, "Bytes an address may send at once after a pause.", minimum=20_000
    )
    idle_ms: int = option(
        10_000,
        "Milliseconds after which the relay drops an SBD connection that sends nothing, or that "
        "has not finished its handshake.",
        minimum=500,
    )
    receiver_bytes: int = option(
        4 * MIB,
        "Bytes that may wait for an SBD client that does not read; above this limit the relay "
        "drops the client.",
        minimum=20_032,
    )
    ipv6_prefix: int = option(
        128,
        "Leading bits of an IPv6 address to which SBD limits apply; 64: all addresses of a /64 "
        "network share one limit.",
        minimum=32,
        maximum=128,
    )
    hook_url: str = option(
        "",
        "URL of a server that decides which clients may connect: the relay sends it the body of "
        "PUT /authenticate, and the server answers with a token. Empty: all clients may connect.",
    )
