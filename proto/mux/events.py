"""What happened on a connection, for its owner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proto.mux.errors import Violation
from proto.mux.frames import Half


class FailReason(StrEnum):
    """Why a half of a stream failed."""

    PEER = "peer"
    """The other side gave it up, with a code."""
    MISUSE = "misuse"
    """The other side confirmed an end that was not sent."""
    OVERFLOW = "overflow"
    """The other side sent more than was granted."""
    OPEN_TIMEOUT = "open_timeout"
    """The other side did not accept the stream in time."""
    CONNECTION = "connection"
    """The connection has ended."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The other side opened a stream. It may be refused until frames are taken to be sent."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class StreamAccepted:
    """The other side accepted a stream that was opened here."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Readable:
    """There are bytes to read; told again only after all of them were read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """The other side writes no more; what came before can be read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Drained:
    """All that was written has been taken to be sent."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The other side has read all that was sent; told only when it was asked for."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class HalfFailed:
    """A half of a stream ended before its end, as seen from here.

    Attributes:
        half: READ: what was not read is discarded. WRITE: what was not sent is.
        code: of the other side; 0 for other reasons.
    """

    stream_id: int
    half: Half
    code: int
    reason: FailReason


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Both halves have ended: no more frames pass. Bytes that came can still be read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class PingDue:
    """A websocket ping is to be sent."""


@dataclass(frozen=True, slots=True)
class CloseDue:
    """The websocket is to be closed.

    Attributes:
        code: of the close frame.
        text: of the close frame.
        violation: what the other side did; None, it did nothing wrong.
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
