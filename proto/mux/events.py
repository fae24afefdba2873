"""Events of a connection, for its owner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proto.mux.errors import Violation
from proto.mux.frames import Half


class FailReason(StrEnum):
    """Reasons why a half of a stream failed."""

    PEER = "peer"
    """The other side aborted or cancelled it, with a code."""
    MISUSE = "misuse"
    """The other side confirmed an end that had not been sent."""
    OVERFLOW = "overflow"
    """The other side sent more than was granted."""
    OPEN_TIMEOUT = "open_timeout"
    """The other side did not accept the stream in time."""
    CONNECTION = "connection"
    """The connection has ended."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The other side opened a stream. It can be refused until `data_to_send` is called."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class StreamAccepted:
    """The other side accepted a stream that this side opened."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Readable:
    """There are bytes to read; not repeated until all of them are read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """The other side has ended its writing; bytes received before can still be read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Drained:
    """All written bytes have been taken to be sent."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The other side has read all that was sent; occurs only on request."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class HalfFailed:
    """A half of a stream of this side ended early.

    Attributes:
        half: READ: unread bytes are discarded. WRITE: unsent bytes are discarded.
        code: code of the other side; 0 for other reasons.
    """

    stream_id: int
    half: Half
    code: int
    reason: FailReason


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Both halves have ended, and no more frames follow. Received bytes can still be read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class PingDue:
    """The owner must send a websocket ping."""


@dataclass(frozen=True, slots=True)
class CloseDue:
    """The owner must close the websocket.

    Attributes:
        code: code of the close frame.
        text: text of the close frame.
        violation: violation by the other side; None without a violation.
    """

    code: int
    text: str
    violation: Violation | None = None


Event = (
    StreamOpened
    | StreamAccepted
    | Readable
    | ReadEnded
    | Drained
    | Acknowledged
    | HalfFailed
    | StreamEnded
    | PingDue
    | CloseDue
)
