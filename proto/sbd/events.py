"""What happened on a connection, for its owner."""

from __future__ import annotations

from dataclasses import dataclass

from proto.sbd.errors import DropReason


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The client holds its key; it is reachable once what is there to be sent has been written."""


@dataclass(frozen=True, slots=True)
class PacketReceived:
    """A packet came.

    Attributes:
        key: the destination in a server, the source in a client.
        payload: of it.
    """

    key: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """The server has to end the connection at once, without a close frame.

    Attributes:
        reason: to be counted.
    """

    reason: DropReason


@dataclass(frozen=True, slots=True)
class Connected:
    """A client may send.

    Attributes:
        byte_nanos: the time each byte takes, in nanoseconds.
        idle_ms: the silence after which the server drops the connection.
    """

    byte_nanos: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A client has to close the connection: its server broke the protocol.

    Attributes:
        text: what it did.
    """

    text: str


ServerEvent = Authenticated | PacketReceived | Dropped
ClientEvent = Connected | PacketReceived | Ended
