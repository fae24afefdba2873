"""A connection of many streams, without IO (sheet sections 3 to 10).

Pass it the messages of a websocket (`receive_data`), then take messages to send (`data_to_send`)
and events (`next_event`). Times are nanoseconds of a monotonic clock; see also `next_timer`.

    opener                       the other side
    open_stream()    ACK n  -->  StreamOpened
    StreamAccepted  <--  ACK m   (when its frames are taken to be sent)
    write(), end()     DATA -->  Readable, ReadEnded
                   <--  ACK k    read()

Both sides open streams: the dialling side under even ids, the other side under odd ones. Only read
bytes are granted again, so neither side receives more than it granted. Call `data_to_send` once for
all messages of one read: they may contain both a stream's opening and its end.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from proto.mux import frames, varint
from proto.mux.bounds import (
    MAX_LATE,
    MAX_STREAM_ID,
    NORMAL_CLOSURE,
    PROTOCOL_ERROR,
    MuxBounds,
    bounds_ns,
    cut_reason,
)
from proto.mux.counts import MuxCounts
from proto.mux.errors import (
    FrameError,
    StreamIdsUsedUpError,
    StreamStateError,
    Violation,
)
from proto.mux.events import (
    CloseDue,
    Event,
    FailReason,
    HalfFailed,
    PingDue,
    StreamEnded,
    StreamOpened,
)
from proto.mux.frames import Half
from proto.mux.stream import Stream, check_code

REFUSED: Final = 0
"""The code that refuses a stream beyond the limits: the protocol reserves none."""
PINGS_HEARD: Final = {True: 1, False: 2}
"""Pings received after which this side sends none, by whether it dialled; as in the reference."""


class MuxConnection:
    """One side of a connection.

    Attributes:
        bounds: limits of the connection.
        counts: counts of the connection.
        is_closed: whether it has ended, and cannot be used any more.
    """

    def __init__(self, is_client: bool, now_ns: int, bounds: MuxBounds | None = None) -> None:
        """Create a side of a connection whose websocket is open from now on.

        Args:
            is_client: whether this side dialled.
            now_ns: current time.
        """
        self.bounds = bounds or MuxBounds()
        self.counts = MuxCounts()
        self.is_closed = False
        self._is_client = is_client
        self._next_id = 0 if is_client else 1
        self._highest = -1  # highest stream id of the other side
        self._streams: dict[int, Stream] = {}
        self._theirs = 0  # number of streams that the other side opened
        self._asking: dict[int, Stream] = {}  # opened by the other side, not accepted yet
        self._openings: list[Stream] = []  # not opened before a frame is received
        self._may_open_ns = None if is_client else now_ns + bounds_ns(self.bounds.first_frame_ms)
        self._frames: list[bytes] = []
        self._ready: deque[Stream] = deque()  # streams with bytes that may be sent
        self._opened: deque[tuple[int, Stream]] = deque()  # deadline, stream to be accepted by then
        self._timers: list[tuple[int, int]] = []  # due time, id of a lingering stream
        self._granting: dict[int, Stream] = {}  # with bytes to be acknowledged...
        self._grants_due_ns = 0  # ... by this time
        self._late: deque[int] = deque(maxlen=MAX_LATE)  # ids that were not accepted in time
        self._events: deque[Event] = deque()
        self._heard_ns = self._pinged_ns = now_ns
        self._pings = 0  # received from the other side

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        """Iterate over the streams."""
        return iter(self._streams.values())

    @property
    def queued_bytes(self) -> int:
        """Bytes of all streams that were written but not sent yet."""
        return sum(stream.queued_bytes for stream in self._streams.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of all streams that were received but not read yet."""
        return sum(stream.held_bytes for stream in self._streams.values())

    # --- calls of the owner -----------------------------------------------------------------------

    def open_stream(self, now_ns: int) -> int:
        """Open a stream; what is written to it waits until the other side accepts it.

        Returns:
            The id of the stream.

        Raises:
            StreamStateError: the connection has ended.
            StreamIdsUsedUpError: no id is left.
        """
        if self.is_closed:
            raise StreamStateError("the connection has ended")
        if self._next_id > MAX_STREAM_ID:
            raise StreamIdsUsedUpError("all ids of this side have been used")
        stream = Stream(self._next_id, True, self)
        self._next_id += 2
        self._streams[stream.id] = stream
        self.counts.opened += 1
        if self._may_open_ns is None:
            self._open(stream, now_ns)
        else:
            self._openings.append(stream)
        return stream.id

    def refuse(self, stream_id: int, code: int = REFUSED) -> None:
        """Refuse a stream that the other side has just opened.

        Raises:
            StreamStateError: the stream has been accepted already.
            ValueError: the code is out of range.
        """
        check_code(code)
        stream = self.stream(stream_id)
        if self._asking.pop(stream_id, None) is None:
            raise StreamStateError(f"stream {stream_id} has been accepted")
        self.counts.refused += 1
        stream.refuse(code)
        self.settle(stream)

    def write(self, stream_id: int, data: bytes) -> None:
        """Queue bytes of a stream; the event `Drained` follows when all were taken to be sent.

        Raises:
            StreamStateError: the stream's writing half has ended.
        """
        self.stream(stream_id).write(data)

    def read(self, stream_id: int, size: int) -> bytes:
        """Return at most `size` of the received bytes; b"" if nothing is waiting.

        Raises:
            StreamStateError: the stream has ended, and all was read.
        """
        data = (stream := self.stream(stream_id)).read(size)
        self.settle(stream)
        return data

    def end(self, stream_id: int, now_ns: int) -> None:
        """End the writing half of a stream after the bytes that are queued.

        Raises:
            StreamStateError: it has ended already.
        """
        stream = self.stream(stream_id)
        stream.end(now_ns)
        self.settle(stream)

    def abort(self, stream_id: int, code: int = 0) -> None:
        """Abort the writing half of a stream.

        Raises:
            ValueError: the code is out of range.
        """
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.abort(code)
            self.settle(stream)

    def cancel(self, stream_id: int, code: int = 0) -> None:
        """Cancel the reading half of a stream.

        Raises:
            ValueError: the code is out of range.
        """
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.cancel(code)
            self.settle(stream)

    def tell_acknowledged(self, stream_id: int) -> None:
        """Request the event `Acknowledged` for when the other side has read all that was written.

        Raises:
            StreamStateError: the stream has ended.
        """
        self.stream(stream_id).wants_acknowledgement = True

    def stream(self, stream_id: int) -> Stream:
        """Return a stream, whose figures stay valid after its end; call `settle` after changing it.

        Raises:
            StreamStateError: the stream has ended.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            raise StreamStateError(f"stream {stream_id} has ended")
        return stream

    def queued_of(self, stream_id: int) -> int:
        """Return the number of bytes of a stream that wait to be sent."""
        return self._streams[stream_id].queued_bytes if stream_id in self._streams else 0

    def close(self, code: int = NORMAL_CLOSURE, text: str = "") -> None:
        """End the connection: all streams fail, and an event asks to close the websocket."""
        self._close(CloseDue(code, cut_reason(text)))

    def connection_lost(self) -> None:
        """Record that the websocket has ended: all streams fail."""
        self._close(None)

    # --- frames from the other side ---------------------------------------------------------------

    def receive_data(self, message: bytes | str, now_ns: int) -> None:
        """Handle one message of the websocket."""
        self.receive_messages((message,), now_ns)

    def receive_messages(self, messages: Iterable[bytes | str], now_ns: int) -> None:
        """Handle the messages of one read."""
        if self.is_closed:
            return
        self._heard_ns = now_ns
        try:
            for message in messages:
                self._receive(message, now_ns)
        except FrameError as error:
            self.counts.violation = error.violation
            self._close(CloseDue(PROTOCOL_ERROR, cut_reason(str(error)), error.violation))
            return
        if self._may_open_ns is not None:
            self._open_all(now_ns)

    def receive_ping(self, now_ns: int) -> None:
        """Record a websocket ping of the other side: it is enough that one side sends them."""
        self._heard_ns = now_ns
        self._pings += 1

    def receive_pong(self, now_ns: int) -> None:
        """Record a websocket pong."""
        self._heard_ns = now_ns

    def data_to_send(self, now_ns: int, size: int | None = None) -> list[bytes]:
        """Return the messages to send, in order: one piece of each stream in turn.

        Args:
            size: bytes of streams after which no more are taken; None: all that may be sent.
        """
        if self._asking:
            asking, self._asking = self._asking, {}
            self.counts.accepted += len(asking)
            for stream in asking.values():
                stream.accept()
        if self._granting:
            self._grant_due(now_ns)
        output, self._frames = self._frames, []
        taken = 0
        while self._ready and (size is None or taken < size):
            stream = self._ready.popleft()
            frame = stream.take(now_ns)
            if frame is not None:
                output.append(frame)
                taken += len(frame)
                if stream.queued_bytes:
                    if stream.credit:
                        self._ready.append(stream)
                        continue
                    self.counts.stalls += 1
            stream.has_turn = False
        self.counts.sent_bytes += taken
        return output

    @property
    def has_data_to_send(self) -> bool:
        """Whether there are messages to send."""
        return bool(self._frames or self._ready or self._asking)

    @property
    def waiting_frames(self) -> int:
        """Number of frames to send that carry no stream bytes; the owner must limit them."""
        return len(self._frames)

    def next_event(self) -> Event | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def next_timer(self) -> int | None:
        """Return when to call `handle_timer`; None: not before something else happens."""
        if self.is_closed:
            return None
        dues = []
        opened = self._opened
        while opened and (opened[0][1].accepted or opened[0][1].is_over):
            opened.popleft()
        if self._openings and self._may_open_ns is not None:
            dues.append(self._may_open_ns)
        if opened:
            dues.append(opened[0][0])
        if self._timers:
            dues.append(self._timers[0][0])
        if self._granting:
            dues.append(self._grants_due_ns)
        if self._is_pinging:
            dues.append(self._ping_ns)
        if self.bounds.ping_timeout_ms:
            dues.append(self._heard_ns + bounds_ns(self.bounds.ping_timeout_ms))
        return min(dues, default=None)

    def handle_timer(self, now_ns: int) -> None:
        """Do what is due; call `data_to_send` afterwards."""
        if self.is_closed:
            return
        timeout_ms = self.bounds.ping_timeout_ms
        if timeout_ms and now_ns >= self._heard_ns + bounds_ns(timeout_ms):
            self.close(NORMAL_CLOSURE, "keep-alive timeout")
            return
        if self._is_pinging and now_ns >= self._ping_ns:
            self._pinged_ns = now_ns
            self.tell(PingDue())
        if self._may_open_ns is not None and now_ns >= self._may_open_ns:
            self._open_all(now_ns)
        self._grant_due(now_ns)
        while self._opened and self._opened[0][0] <= now_ns:
            _, stream = self._opened.popleft()
            if not stream.accepted:
                stream.fail(FailReason.OPEN_TIMEOUT)
                self._late.append(stream.id)
                self.settle(stream)
        while self._timers and self._timers[0][0] <= now_ns:
            _, stream_id = heapq.heappop(self._timers)
            if (lingering := self._streams.get(stream_id)) is not None:
                lingering.handle_linger(now_ns)
                self.settle(lingering)

    # --- for streams ------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue a frame to be sent before the waiting bytes of streams."""
        self._frames.append(frame)

    def tell(self, event: Event) -> None:
        """Queue an event for the owner."""
        self._events.append(event)

    def tell_failed(self, event: HalfFailed) -> None:
        """Count a failed half, and queue its event for the owner."""
        self.counts.failed[event.reason] += 1
        self._events.append(event)

    def has_data(self, stream: Stream) -> None:
        """Queue a stream for its turn to send."""
        self._ready.append(stream)

    def linger(self, stream: Stream, due_ns: int) -> None:
        """Schedule a stream's `handle_linger`."""
        heapq.heappush(self._timers, (due_ns, stream.id))

    def grant_later(self, stream: Stream) -> None:
        """Acknowledge what a stream has read after `ack_delay_ms`, together with other streams."""
        if not self._granting:
            self._grants_due_ns = self._heard_ns + bounds_ns(self.bounds.ack_delay_ms)
        self._granting[stream.id] = stream

    # --- details ----------------------------------------------------------------------------------

    @property
    def _is_pinging(self) -> bool:
        return bool(self.bounds.ping_interval_ms) and self._pings < PINGS_HEARD[self._is_client]

    @property
    def _ping_ns(self) -> int:
        silent_since = max(self._heard_ns, self._pinged_ns)
        return silent_since + bounds_ns(self.bounds.ping_interval_ms)

    def _receive(self, message: bytes | str, now_ns: int) -> None:
        if isinstance(message, str):
            raise FrameError(Violation.TEXT, "a text message is not a frame")
        stream_id, at = frames.parse_id(message)
        stream = self._streams.get(stream_id)
        if stream is None or stream.is_over:
            self._receive_for_none(stream_id, message, at)
            return
        kind = message[at : at + 2]
        if kind == frames.DATA:
            payload = message[at + 2 :]
            self.counts.received_bytes += len(payload)
            stream.receive_data(payload)
        elif kind == frames.ACK:
            stream.receive_grant(frames.parse_grant(message, at + 2), now_ns)
        else:
            stream.receive(frames.parse_frame(message, at), now_ns)
        self.settle(stream)

    def _receive_for_none(self, stream_id: int, message: bytes, at: int) -> None:
        """Handle a frame for a stream that does not exist any more, or not yet.

        Ids of the other side only increase, so only the highest one must be remembered. If the
        first frame of a stream is not an ACK, it uses up the id, as in the reference.
        """
        if stream_id % 2 == self._next_id % 2:
            if stream_id >= self._next_id:
                raise FrameError(Violation.UNKNOWN_ID, f"stream {stream_id} was never opened")
            self.counts.ignored += 1
            if frames.is_ack(message, at) and stream_id in self._late:
                self._late.remove(stream_id)
                for half in Half:
                    self.send(frames.error(varint.encode(stream_id), half, REFUSED))
            return
        if stream_id <= self._highest or not frames.is_ack(message, at):
            self._highest = max(self._highest, stream_id)
            self.counts.ignored += 1
            return
        opening = frames.parse_frame(message, at)
        self._highest = stream_id
        stream = Stream(stream_id, False, self)
        bounds = self.bounds
        self._streams[stream_id] = stream
        self._theirs += 1
        held = len(self._streams) * bounds.stream_bytes
        if self._theirs > bounds.max_streams or held > bounds.max_held_bytes:
            self.counts.refused += 1
            stream.refuse(REFUSED)
            self._forget(stream)
            return
        self._asking[stream_id] = stream
        self.tell(StreamOpened(stream_id))
        stream.receive(opening, 0)

    def _grant_due(self, now_ns: int) -> None:
        """Acknowledge what was read, if the delay has passed."""
        if now_ns >= self._grants_due_ns:
            granting, self._granting = self._granting, {}
            for stream in granting.values():
                stream.grant()

    def _open(self, stream: Stream, now_ns: int) -> None:
        stream.ask()
        self._opened.append((now_ns + bounds_ns(self.bounds.open_timeout_ms), stream))

    def _open_all(self, now_ns: int) -> None:
        """Open the streams that waited until the other side listens (G4)."""
        self._may_open_ns = None
        for stream in self._openings:
            self._open(stream, now_ns)
        self._openings.clear()

    def settle(self, stream: Stream) -> None:
        """Forget a stream that is over, once all its received bytes are read."""
        if stream.is_over and not stream.held_bytes and stream.id in self._streams:
            self._forget(stream)
            self.tell(StreamEnded(stream.id))

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.id]
        self._theirs -= not stream.is_ours
        self._asking.pop(stream.id, None)
        self._granting.pop(stream.id, None)

    def _close(self, due: CloseDue | None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        for stream in list(self._streams.values()):
            stream.fail(FailReason.CONNECTION)
            self.settle(stream)
        self._frames.clear()
        self._ready.clear()
        self._opened.clear()
        self._timers.clear()
        self._asking.clear()
        self._granting.clear()
        self._openings.clear()
        if due is not None:
            self.tell(due)
