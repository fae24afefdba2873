"""One stream: two halves, each a small state machine (sheet section 6).

A stream sends frames and notifies its owner through its `Outlet`, which is the connection. Where it
delays or avoids a frame that the other side would misunderstand, a docstring gives the reason
(sheet section 10).
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, Protocol

from proto.mux import frames, varint
from proto.mux.bounds import MAX_CODE, MAX_CREDIT, NANOS_PER_MS, MuxBounds
from proto.mux.errors import FrameError, StreamStateError, Violation
from proto.mux.events import (
    Acknowledged,
    Drained,
    Event,
    FailReason,
    HalfFailed,
    Readable,
    ReadEnded,
    StreamAccepted,
)
from proto.mux.frames import Half

JOINED_BYTES: Final = 1024
"""Size below which received pieces are joined while they wait for the reader: a separate small
piece takes many times its size in memory."""


class ReadState(Enum):
    """State of the reading half."""

    OPEN = "open"
    ENDED = "ended"
    """The other side ended or aborted it: further bytes break the protocol."""
    CANCELLED = "cancelled"
    """This side cancelled it: bytes may still arrive."""


class WriteState(Enum):
    """State of the writing half."""

    OPEN = "open"
    CLOSING = "closing"
    """Its end waits until the written bytes are sent."""
    ENDED = "ended"


_READING: Final = ReadState.OPEN
_ENDED: Final = WriteState.ENDED


class Outlet(Protocol):
    """Operations of the connection that a stream uses."""

    bounds: MuxBounds

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def tell(self, event: Event) -> None:
        """Queue an event for the owner."""

    def has_data(self, stream: Stream) -> None:
        """Record that the stream has bytes that may be sent."""

    def tell_failed(self, event: HalfFailed) -> None:
        """Queue the event of a failed half for the owner."""

    def linger(self, stream: Stream, due_ns: int) -> None:
        """Schedule a call of the stream's `handle_linger`."""

    def grant_later(self, stream: Stream) -> None:
        """Schedule a call of the stream's `grant`, within the acknowledgement delay."""


class Stream:
    """One stream of a connection.

    Attributes:
        id: id of the stream.
        is_ours: whether this side opened it.
        accepted: whether the other side has accepted it; until then, all frames are held back.
        credit: number of bytes that may be sent.
        wants_acknowledgement: whether to notify the owner once when all that was sent is read.
        queued_bytes: number of bytes that were written but not sent.
        held_bytes: number of bytes that were received but not read.
        has_turn: whether it is queued for its turn to send.
    """

    # Most streams are idle most of the time, so queues are created only when they are needed.
    __slots__ = ("_consumed", "_first_grant", "_granted", "_held", "_is_lingering", "_is_told",
                 "_kept", "_outlet", "_prefix", "_queue", "_refusals", "_sent", "_sent_ns",
                 "_window", "accepted", "credit", "has_turn", "held_bytes", "id", "is_ours",
                 "queued_bytes", "reading", "wants_acknowledgement", "writing")  # fmt: skip

    def __init__(self, stream_id: int, is_ours: bool, outlet: Outlet) -> None:
        self.id = stream_id
        self.is_ours = is_ours
        self.accepted = not is_ours
        self.reading = ReadState.OPEN
        self.writing = WriteState.OPEN
        self.credit = 0
        self.wants_acknowledgement = False
        self.queued_bytes = 0
        self.held_bytes = 0
        self.has_turn = False
        self._outlet = outlet
        self._prefix = varint.encode(stream_id)
        self._window = outlet.bounds.stream_bytes  # bytes that the other side may still send
        self._consumed = 0  # read and not granted again
        self._kept: deque[bytes | memoryview] | None = None  # received and not read
        self._is_told = False  # whether `Readable` was queued
        self._queue: deque[bytes | memoryview] | None = None  # written and not sent
        self._granted = self._first_grant = self._sent = 0
        self._sent_ns = 0  # when the last bytes were sent
        self._is_lingering = False  # whether `handle_linger` is scheduled
        self._held: list[bytes] | None = None  # frames that wait until the stream is accepted
        self._refusals = 0  # halves that the other side refused before that

    @property
    def is_over(self) -> bool:
        """Whether both halves have ended, and no frame waits until the stream is accepted."""
        return (
            self.writing is _ENDED
            and self.reading is not _READING
            and (self.accepted or self._refusals > 1)
        )

    @property
    def acknowledged_bytes(self) -> int:
        """Number of written bytes that the other side has read."""
        return self._granted - self._first_grant

    # --- calls of the owner -----------------------------------------------------------------------

    def ask(self) -> None:
        """Ask the other side to accept the stream; no other frame is sent before it does."""
        self._outlet.send(frames.ack(self._prefix, self._outlet.bounds.stream_bytes))

    def accept(self) -> None:
        """Accept a stream of the other side.

        If the other side has ended its writing already, it gets no ACK: if it has forgotten the
        stream, it would take the ACK for the opening of a new one (G1).
        """
        if self.reading is not ReadState.ENDED:
            self._outlet.send(frames.ack(self._prefix, self._outlet.bounds.stream_bytes))

    def refuse(self, code: int) -> None:
        """Refuse a stream of the other side."""
        self._end_writing()
        self._discard(ReadState.CANCELLED)
        self._send(frames.error(self._prefix, Half.READ, code))
        self._send(frames.error(self._prefix, Half.WRITE, code))

    def write(self, data: bytes) -> None:
        """Queue bytes.

        Raises:
            StreamStateError: the writing half has ended, or its end is queued.
        """
        if self.writing is not WriteState.OPEN:
            raise StreamStateError(f"stream {self.id} is not open for writing")
        if data:
            if self._queue is None:
                self._queue = deque()
            self._queue.append(data)
            self.queued_bytes += len(data)
            self._offer()

    def end(self, now_ns: int) -> None:
        """End the writing half after the queued bytes.

        Raises:
            StreamStateError: it has ended already.
        """
        if self.writing is not WriteState.OPEN:
            raise StreamStateError(f"stream {self.id} is not open for writing")
        self.writing = WriteState.CLOSING
        self._end_if_acknowledged(now_ns)

    def abort(self, code: int) -> None:
        """Abort the writing half, and discard unsent bytes; do nothing if it has ended.

        Raises:
            ValueError: the code is out of range.
        """
        check_code(code)
        if self.writing is not _ENDED:
            self._end_writing()
            self._send(frames.error(self._prefix, Half.READ, code))

    def cancel(self, code: int) -> None:
        """Cancel the reading half, and discard unread bytes, even if it has ended.

        Raises:
            ValueError: the code is out of range.
        """
        check_code(code)
        if self.reading is _READING:
            self._discard(ReadState.CANCELLED)
            self._send(frames.error(self._prefix, Half.WRITE, code))
        elif self.held_bytes:
            self._discard(self.reading)

    def read(self, size: int) -> bytes:
        """Return at most `size` received bytes; the other side may then send as many more."""
        kept = self._kept
        if kept is None:
            return b""
        if size >= self.held_bytes:
            taken = kept[0] if len(kept) == 1 else b"".join(kept)
            self._kept = None
            self._is_told = False
        else:
            taken = _taken(kept, size)
        self.held_bytes -= len(taken)
        if self.reading is _READING:
            self._consumed += len(taken)
            bounds = self._outlet.bounds
            if 2 * self._consumed >= bounds.stream_bytes:
                self._grant()
            elif not self.held_bytes:
                if bounds.ack_delay_ms:
                    self._outlet.grant_later(self)
                else:
                    self._grant()
        return taken if type(taken) is bytes else bytes(taken)

    def grant(self) -> None:
        """Grant the bytes that were read again, if the other side may still send any."""
        if self._consumed and self.reading is _READING:
            self._grant()

    # --- frames from the other side ---------------------------------------------------------------

    def receive(self, frame: frames.Frame, now_ns: int) -> None:
        """Handle a frame.

        Raises:
            FrameError: the frame breaks the protocol.
        """
        match frame:
            case frames.Data(payload):
                self.receive_data(payload)
            case frames.Ack(grant):
                self.receive_grant(grant, now_ns)
            case frames.Close(Half.READ):
                if self.reading is _READING:
                    self.reading = ReadState.ENDED
                    self._outlet.tell(ReadEnded(self.id))
                    self._send(frames.close(self._prefix, Half.WRITE))
            case frames.Close(Half.WRITE):
                if self.writing is not _ENDED:
                    self._fail(Half.WRITE, 0, FailReason.MISUSE)
                    self._send(frames.error(self._prefix, Half.READ, 0))
            case frames.Error(half, code):
                self._refusals += not self.accepted
                self._receive_error(half, code)

    def receive_data(self, payload: bytes) -> None:
        """Handle received bytes.

        Raises:
            FrameError: the other side had ended its writing.
        """
        if self.reading is not _READING:
            if self.reading is ReadState.CANCELLED:
                return
            raise FrameError(Violation.DATA_AFTER_END, f"stream {self.id} got bytes after its end")
        size = len(payload)
        if size > self._window:
            for half in Half:
                self._fail(half, 0, FailReason.OVERFLOW)
            self._send(frames.error(self._prefix, Half.WRITE, 0))
            self._send(frames.error(self._prefix, Half.READ, 0))
        elif size:
            self._window -= size
            kept = self._kept
            if kept is None:
                self._kept = deque((payload,))
            elif size < JOINED_BYTES and len(kept[-1]) < JOINED_BYTES:
                kept[-1] = b"".join((kept[-1], payload))
            else:
                kept.append(payload)
            self.held_bytes += size
            if not self._is_told:
                self._is_told = True
                self._outlet.tell(Readable(self.id))

    def receive_grant(self, grant: int, now_ns: int) -> None:
        """Handle an ACK.

        Raises:
            FrameError: the total of all grants is too large.
        """
        self._granted += grant
        if self._granted > MAX_CREDIT:
            raise FrameError(Violation.CREDIT, f"stream {self.id} was granted more than 2^62 bytes")
        self.credit += grant
        if not self.accepted:
            self.accepted = True
            self._first_grant = grant
            self._outlet.tell(StreamAccepted(self.id))
            for frame in self._held or ():
                self._outlet.send(frame)
            self._held = None
        elif not self.is_ours and self._granted == grant:
            self._first_grant = grant
        if self._queue:
            self._offer()
        elif self.wants_acknowledgement and self._is_acknowledged:
            self.wants_acknowledgement = False
            self._outlet.tell(Acknowledged(self.id))
        if self.writing is WriteState.CLOSING:
            self._end_if_acknowledged(now_ns)

    def fail(self, reason: FailReason) -> None:
        """End both halves without sending a frame: the other side is gone, or never answered."""
        self.accepted = True
        for half in Half:
            self._fail(half, 0, reason)

    def take(self, now_ns: int) -> bytes | None:
        """Return a frame with the next bytes to send, or None if nothing may be sent."""
        queue = self._queue
        if queue is None or not self.credit or not self.accepted:
            return None
        limit = min(self.credit, self._outlet.bounds.piece_bytes)
        payload = queue[0]
        size = len(payload)
        if size > limit:
            view = memoryview(payload)
            payload, queue[0] = view[:limit], view[limit:]
            size = limit
        else:
            queue.popleft()
            if queue and size < limit:
                payload = _gathered(payload, queue, limit)
                size = len(payload)
        self.credit -= size
        self.queued_bytes -= size
        self._sent += size
        self._sent_ns = now_ns
        if not queue:
            self._queue = None
            if self.writing is WriteState.CLOSING:
                self._linger()
            else:
                self._outlet.tell(Drained(self.id))
        return frames.data(self._prefix, payload)

    def handle_linger(self, now_ns: int) -> None:
        """Send the end, if it still waits for the other side to acknowledge the bytes before it."""
        self._is_lingering = False
        if self.writing is WriteState.CLOSING:
            self._end_if_acknowledged(now_ns)

    # --- details ----------------------------------------------------------------------------------

    def _receive_error(self, half: Half, code: int) -> None:
        if half is Half.READ and self.reading is _READING:
            self._fail(Half.READ, code, FailReason.PEER)
            self._send(frames.error(self._prefix, Half.WRITE, code))
        elif half is Half.WRITE and self.writing is not _ENDED:
            self._fail(Half.WRITE, code, FailReason.PEER)
            self._send(frames.error(self._prefix, Half.READ, code))

    def _fail(self, half: Half, code: int, reason: FailReason) -> None:
        if half is Half.READ:
            if self.reading is not _READING:
                return
            local = reason is FailReason.OVERFLOW
            self._discard(ReadState.CANCELLED if local else ReadState.ENDED)
        else:
            if self.writing is _ENDED:
                return
            self._end_writing()
        self._outlet.tell_failed(HalfFailed(self.id, half, code, reason))

    def _discard(self, state: ReadState) -> None:
        self.reading = state
        self._kept = None
        self.held_bytes = 0
        self._is_told = False

    def _end_writing(self) -> None:
        self.writing = WriteState.ENDED
        self._queue = None
        self.queued_bytes = 0

    def _offer(self) -> None:
        if not self.has_turn and self.credit and self.accepted:
            self.has_turn = True
            self._outlet.has_data(self)

    def _grant(self) -> None:
        """Grant the bytes that were read again.

        If the other side opened the stream and this side has ended it, the other side may have
        forgotten it. Sending the end again keeps the ACK from opening a new stream (G1).
        """
        if self.writing is _ENDED and not self.is_ours:
            self._outlet.send(frames.close(self._prefix, Half.READ))
        self._window += self._consumed
        self._send(frames.ack(self._prefix, self._consumed))
        self._consumed = 0

    def _end_if_acknowledged(self, now_ns: int) -> None:
        """Send the end if the other side has read all, or has not done so for a while.

        The other side loses bytes that arrive together with the end (G2).
        """
        if self._queue or not self.accepted:
            return
        if self._is_acknowledged or now_ns >= self._due_ns:
            self._end_writing()
            self._send(frames.close(self._prefix, Half.READ))
        else:
            self._linger()

    @property
    def _is_acknowledged(self) -> bool:
        return self.acknowledged_bytes >= self._sent

    @property
    def _due_ns(self) -> int:
        return self._sent_ns + self._outlet.bounds.close_linger_ms * NANOS_PER_MS

    def _linger(self) -> None:
        if not self._is_lingering:
            self._is_lingering = True
            self._outlet.linger(self, self._due_ns)

    def _send(self, frame: bytes) -> None:
        """Send a frame, or hold it until the stream is accepted.

        A frame that arrives before the other side has accepted the stream leaves it open there for
        good (G3).
        """
        if self.accepted:
            self._outlet.send(frame)
        elif self._held is None:
            self._held = [frame]
        else:
            self._held.append(frame)


def _taken(kept: deque[bytes | memoryview], size: int) -> bytes:
    """Remove and return `size` bytes of a queue that holds more."""
    parts: list[bytes | memoryview] = []
    while size:
        part = kept[0]
        if len(part) > size:
            view = memoryview(part)
            part, kept[0] = view[:size], view[size:]
        else:
            kept.popleft()
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _gathered(first: bytes | memoryview, queue: deque[bytes | memoryview], limit: int) -> bytes:
    """Join small writes, up to a total size."""
    parts, missing = [first], limit - len(first)
    while queue and missing:
        part = queue[0]
        if len(part) > missing:
            view = memoryview(part)
            part, queue[0] = view[:missing], view[missing:]
        else:
            queue.popleft()
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def check_code(code: int) -> None:
    """Check that a frame can carry an error code.

    Raises:
        ValueError: the code is out of range.
    """
    if not 0 <= code <= MAX_CODE:
        raise ValueError(f"error code {code} is not between 0 and 2^62 - 1")
