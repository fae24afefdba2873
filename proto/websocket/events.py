"""What a `FrameReader` reports beside messages."""

from __future__ import annotations

from dataclasses import dataclass

from proto.websocket.errors import Fault


@dataclass(frozen=True, slots=True)
class PingReceived:
    """The peer wants a pong."""

    payload: bytes
    """To be sent back as it is (RFC 6455, section 5.5.3)."""


@dataclass(frozen=True, slots=True)
class CloseReceived:
    """The peer closes; nothing is read after it."""

    code: int
    """`CloseCode.NO_STATUS` when the frame had none."""
    payload: bytes
    """Valid as the payload of the close frame that answers it."""


@dataclass(frozen=True, slots=True)
class InputRefused:
    """The peer broke the protocol or a bound; nothing is read after it."""

    fault: Fault
    """Has the close frame for the peer, and the reason to count."""


ReaderEvent = PingReceived | CloseReceived | InputRefused
