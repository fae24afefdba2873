"""What the SBD server is told when it is made, and what it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from proto.sbd.bounds import DEFAULT_BURST_BYTES, DEFAULT_BYTE_NANOS, DEFAULT_IDLE_MS
from proto.sbd.errors import DropReason


class SbdOptions(NamedTuple):
    """The bounds of the server.

    Attributes:
        max_clients: connections of one worker.
        byte_nanos: nanoseconds each byte of an address takes; 0 for no limit.
        burst_bytes: what an address may send at once after a silence.
        idle_ms: silence that ends a connection.
        receiver_bytes: what waits for a client that does not read; beyond it the client is dropped.
        ipv6_prefix: bits of an IPv6 address that the limits are counted by.
    """

    max_clients: int = 32_768
    byte_nanos: int = DEFAULT_BYTE_NANOS
    burst_bytes: int = DEFAULT_BURST_BYTES
    idle_ms: int = DEFAULT_IDLE_MS
    receiver_bytes: int = 4 << 20
    ipv6_prefix: int = 128


class EndReason(StrEnum):
    """Why a connection ended, beside what a client did wrong (`DropReason`)."""

    CLIENT_CLOSE = "client_close"
    REPLACED = "replaced"
    SLOW_READER = "slow_reader"
    CAPACITY = "capacity"
    DRAINED = "drained"
    BANNED = "banned"
    """An operator banned the key."""
    ADDRESS_BANNED = "address_banned"


class LossReason(StrEnum):
    """Why a packet was not delivered."""

    ABSENT = "absent"
    """No connection is open under the destination."""
    SLOW_READER = "slow_reader"
    """The destination was dropped, as it did not read."""
    REDIS_AWAY = "redis_away"
    """The destination is not on this worker, and Redis does not answer."""
    CROSSING_FULL = "crossing_full"
    """More is on its way to other workers than may wait."""


class AuthReason(StrEnum):
    """Why no token was given, or a handshake refused."""

    NO_TOKEN = "no_token"
    BAD_TOKEN = "bad_token"
    REFUSED = "refused"
    """By the hook server."""
    HOOK_FAILED = "hook_failed"
    TOO_LARGE = "too_large"
    REDIS_AWAY = "redis_away"
    BANNED = "banned"
    """An operator banned the key."""


@dataclass(slots=True)
class SbdCounts:
    """What one worker counted since it started."""

    opened: int = 0
    authenticated: int = 0
    received: int = 0
    received_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    crossed: int = 0
    ended: Counter[DropReason | EndReason] = field(default_factory=Counter)
    lost: Counter[LossReason] = field(default_factory=Counter)
