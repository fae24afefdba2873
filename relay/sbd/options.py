"""Options, reasons and counts of the SBD server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from proto.sbd.bounds import DEFAULT_BURST_BYTES, DEFAULT_BYTE_NANOS, DEFAULT_IDLE_MS
from proto.sbd.errors import DropReason


class SbdOptions(NamedTuple):
    """The limits of the server.

    Attributes:
        max_clients: maximum number of connections of one worker.
        byte_nanos: nanoseconds that each byte of an address takes; 0: no limit.
        burst_bytes: bytes that an address may send at once after a silence.
        idle_ms: silence that ends a connection.
        receiver_bytes: bytes that may wait for a client that does not read; beyond it, the client
            is dropped.
        ipv6_prefix: number of bits of an IPv6 address by which limits are counted.
    """

    max_clients: int = 32_768
    byte_nanos: int = DEFAULT_BYTE_NANOS
    burst_bytes: int = DEFAULT_BURST_BYTES
    idle_ms: int = DEFAULT_IDLE_MS
    receiver_bytes: int = 4 << 20
    ipv6_prefix: int = 128


class EndReason(StrEnum):
    """Reasons for which a connection ended, other than violations by the client (`DropReason`)."""

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
"""Meaning of each reason, for the documentation and operator views."""


class LossReason(StrEnum):
    """Reasons for which a packet was not delivered."""

    ABSENT = "absent"
    """No connection is open under the destination."""
    SLOW_READER = "slow_reader"
    """The destination was dropped because it did not read."""
    REDIS_AWAY = "redis_away"
    """The destination is not on this worker, and Redis does not answer."""
    CROSSING_FULL = "crossing_full"
    """Too many packets are on their way to other workers."""


class AuthReason(StrEnum):
    """Reasons for which no token was issued, or a handshake was refused."""

    NO_TOKEN = "no_token"
    BAD_TOKEN = "bad_token"
    REFUSED = "refused"
    """The hook server refused."""
    HOOK_FAILED = "hook_failed"
    TOO_LARGE = "too_large"
    REDIS_AWAY = "redis_away"
    BANNED = "banned"
    """An operator banned the key."""


@dataclass(slots=True)
class SbdCounts:
    """Counts of one worker since it started."""

    opened: int = 0
    authenticated: int = 0
    received: int = 0
    received_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    crossed: int = 0
    ended: Counter[DropReason | EndReason] = field(default_factory=Counter)
    lost: Counter[LossReason] = field(default_factory=Counter)
