"""Events that a `FrameReader` reports besides messages."""

from __future__ import annotations

from dataclasses import dataclass

from proto.websocket.errors import Fault


@dataclass(frozen=True, slots=True)
class PingReceived:
    """The remote side sent a ping and expects a pong."""

    payload: bytes
    """Payload to send back unchanged (RFC 6455, section 5.5.3)."""


@dataclass(frozen=True, slots=True)
class CloseReceived:
    """The remote side closes; no further input is read."""

    code: int
    """`CloseCode.NO_STATUS` if the frame had no code."""
    payload: bytes
    """Payload that is valid for the close frame that answers it."""


@dataclass(frozen=True, slots=True)
class InputRefused:
    """The remote side broke the protocol or a bound; no further input is read."""

    fault: Fault
    """Fault with the close frame to send, and the reason to count."""


ReaderEvent = PingReceived | CloseReceived | InputRefused
