"""Events of a connection, for its owner."""

from __future__ import annotations

from dataclasses import dataclass

from proto.sbd.errors import DropReason


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The client has proved its key; it is reachable once all data to send has been written."""


@dataclass(frozen=True, slots=True)
class PacketReceived:
    """A packet was received.

    Attributes:
        key: key of the destination in a server, of the source in a client.
        payload: payload of the packet.
    """

    key: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """The server must end the connection at once, without a close frame.

    Attributes:
        reason: reason, for counts.
    """

    reason: DropReason


@dataclass(frozen=True, slots=True)
class Connected:
    """The client may send.

    Attributes:
        byte_nanos: time that each byte takes, in nanoseconds.
        idle_ms: silence after which the server drops the connection, in milliseconds.
    """

    byte_nanos: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The client must close the connection, because its server broke the protocol.

    Attributes:
        text: what the server did.
    """

    text: str


ServerEvent = Authenticated | PacketReceived | Dropped
ClientEvent = Connected | PacketReceived | Ended
