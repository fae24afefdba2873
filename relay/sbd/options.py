"""What the SBD server is told when it is made, and what it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

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
    ADDRESS_BANNED = "address_banned"
    KICKED = "kicked"


MEANINGS: Final[dict[DropReason | EndReason, str]] = {
    DropReason.ILLEGAL_KEY: "the key begins with 28 zero bytes; the relay sends nothing",
    DropReason.TOO_SHORT: "a message below 32 bytes",
    DropReason.TOO_LARGE: "a message above 20,000 bytes; its frame header is enough to refuse it",
    DropReason.BAD_RESPONSE: "an authentication response that is not 96 bytes long",
    DropReason.BAD_SIGNATURE: "the signature does not match the nonce and the key",
    DropReason.EARLY_FORWARD: "a packet before the client had signed",
    DropReason.SECOND_RESPONSE: "a second authentication response",
    DropReason.RATE_LIMIT: "more bytes than the address may send",
    DropReason.PROTOCOL_ERROR: "a frame that the websocket protocol does not allow",
    DropReason.HANDSHAKE_TIMEOUT: "the handshake took longer than `sbd.idle_ms`",
    DropReason.IDLE: "no message for `sbd.idle_ms`",
    EndReason.REPLACED: "the key was proven on a newer connection",
    EndReason.SLOW_READER: "the client does not read the packets that wait for it",
    EndReason.CAPACITY: "the worker has `sbd.max_clients` connections",
    EndReason.DRAINED: "the worker stopped",
    EndReason.BANNED: "an operator banned the key",
    EndReason.ADDRESS_BANNED: "an operator banned the address",
    EndReason.KICKED: "an operator ended the connection",
    EndReason.CLIENT_CLOSE: "the client ended the connection",
}
"""What each reason means, for the documentation and operator views."""


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
