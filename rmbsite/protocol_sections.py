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
        (), "Further addresses where only SBD is served: host:port or unix:/path each."
    )
    max_clients: int = option(32_768, "SBD connections of one worker.", minimum=1)
    limit_kbit_per_s: int = option(
        1_000,
        "Kilobits per second an address may send, over all its SBD connections; 0: no limit.",
        minimum=0,
    )
    limit_burst_bytes: int = option(
        262_144, "Bytes an address may send at once after a silence.", minimum=20_000
    )
    idle_ms: int = option(
        10_000,
        "Milliseconds after which the relay drops an SBD connection that sends nothing, or whose "
        "handshake is not done.",
        minimum=500,
    )
    receiver_bytes: int = option(
        4 * MIB,
        "Bytes that may wait for an SBD client that does not read; beyond it the relay drops the "
        "client.",
        minimum=20_032,
    )
    ipv6_prefix: int = option(
        128,
        "Bits of an IPv6 address that the limits of SBD are counted by; 64 counts a network as "
        "one address.",
        minimum=32,
        maximum=128,
    )
    hook_url: str = option(
        "",
        "URL of a server that decides who may connect: it gets the body of PUT /authenticate and "
        "answers with a token. Empty: everyone may connect.",
    )
