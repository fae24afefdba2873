"""A session on a stream of a connection: a `RelaySocket`, like that of a websocket of its own.

    client --> length, token           length, envelope   length, envelope ...
           <-- length, "101"           length, envelope ...

Lengths are varints. A message is delivered when the client's application has read it, since the
client acknowledges bytes of a stream at that time. Messages that are not acknowledged when the
session ends stay in the session's queue. Positions are counted as on a websocket (`RelaySocket`),
including the frame headers, because the session expects that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, Final

from proto.mux import varint
from proto.mux.events import FailReason
from proto.mux.frames import Half
from proto.mux.messages import MessageReader, MessageTooLargeError, framed
from proto.mux.stream import Stream, WriteState
from proto.websocket.errors import CloseCode, Fault, Refusal
from proto.websocket.frames import frame_header, framed_bytes
from relay.mux.options import MAX_TOKEN_BYTES
from relay.server.socket import HIGH_WATER_BYTES, InputRules, Receiver

if TYPE_CHECKING:
    from relay.mux.connection import Connection

LOW_WATER_BYTES: Final = 16 * 1024
FULL_BYTES: Final = 1 << 40
"""Buffered bytes that a stream with waiting bytes reports while its connection is over its limits,
so that it gets no more."""

SIGNED_IN: Final = b"101"
"""Answer to a successful sign-in: the status that a websocket handshake would have."""


class State(Enum):
    SIGNING_IN = "signing_in"
    OPEN = "open"
    CLOSING = "closing"
    """Nothing more is received or sent; for a moment, the client may acknowledge what was sent."""
    CLOSED = "closed"


class StreamSocket:
    """A `relay.server.socket.RelaySocket` on a stream.

    Attributes:
        id: id of the stream.
        stream: machine of the stream.
        state: state of the session.
        session_text: key of the session; empty before the sign-in.
        written: see `RelaySocket`.
        account, charged_bytes: see `proto.websocket.budget.Holder`.
    """

    __slots__ = ("_acknowledged", "_at", "_code", "_connection", "_detail", "_early",
                 "_ends_on_accept", "_is_full", "_is_paused", "_reader", "_receiver", "_seen",
                 "_sent", "_told_code", "_unconfirmed", "account", "charged_bytes", "id",
                 "session_text", "state", "stream", "written")  # fmt: skip

    def __init__(self, connection: Connection, stream: Stream) -> None:
        self.id = stream.id
        self.state = State.SIGNING_IN
        self.session_text = ""
        self.written = 0
        self.account: Hashable | None = None
        self.charged_bytes = 0
        self._connection = connection
        self.stream = stream
        self._receiver: Receiver | None = None
        self._reader: MessageReader | None = None
        self._early = b""  # part of the token; later, bytes after it
        self._is_paused = False
        self._is_full = False  # above the high-water mark since `writable` was called
        self._sent = 0  # bytes written to the stream
        self._unconfirmed: deque[tuple[int, list[int]]] = deque()
        """For each write that is not acknowledged: where it ends on the stream, and the sizes of
        its messages."""
        self._acknowledged = 0  # acknowledged part of `written`
        self._at = 0  # the same position on the stream
        self._seen = 0  # acknowledged bytes of the stream at the last check
        self._code = int(CloseCode.NORMAL)  # close code for the receiver
        self._told_code = int(CloseCode.NORMAL)  # close code for the client
        self._detail: str | None = None
        self._ends_on_accept = False

    # --- the sign-in ------------------------------------------------------------------------------

    def take_token(self) -> bytes | None:
        """Return the first message of the stream; None while it is not complete.

        Raises:
            ValueError: the message is too long.
        """
        self._early += self._read()
        try:
            size, at = varint.decode(self._early)
        except ValueError:
            return None
        if size > MAX_TOKEN_BYTES:
            raise ValueError(f"a token of {size} bytes is longer than {MAX_TOKEN_BYTES}")
        if len(self._early) < at + size:
            return None
        token, self._early = self._early[at : at + size], self._early[at + size :]
        self._is_paused = True  # until the session starts
        return token

    def accept(self) -> None:
        """Answer that the sign-in succeeded."""
        if self.state is State.SIGNING_IN:
            self.state = State.OPEN
            self._write(framed([SIGNED_IN]))
            self._at = self._sent
            if self._ends_on_accept:
                self._begin_close()

    def refuse(self, status: int, text: str) -> None:
        """Answer that the sign-in failed, and end the stream."""
        if self.state is State.SIGNING_IN:
            self.state = State.CLOSED
            self._write(framed([f"{status} {text}".encode()]))
            self._connection.end_stream(self)

    # --- RelaySocket ------------------------------------------------------------------------------

    @property
    def remote(self) -> str:
        return self._connection.remote

    @property
    def connection(self) -> Connection:
        """Connection to which the stream belongs."""
        return self._connection

    @property
    def last_received(self) -> float:
        return math.inf if self._is_paused else self._connection.last_received

    def set_rules(self, rules: InputRules) -> None:
        """Do nothing: envelopes are the same on any connection."""

    def start(self, receiver: Receiver, account: Hashable | None = None) -> None:
        self._receiver, self.account = receiver, account
        self._reader = MessageReader(self._connection.options.max_message_bytes)
        self._is_paused = False
        if self.state is State.CLOSED:
            self._connection.soon(self._tell_closed)
        else:
            self._connection.soon(self.readable)

    def send_messages(self, payloads: list[bytes]) -> int:
        self.written += framed_bytes(payloads)
        if self.state is State.OPEN and self._write(framed(payloads)):
            self._unconfirmed.append((self._sent, list(map(len, payloads))))
            if self.stream.queued_bytes > HIGH_WATER_BYTES:
                self._is_full = True
        return self.written

    def buffered_bytes(self) -> int:
        queued = self.stream.queued_bytes
        return FULL_BYTES if queued and self._connection.is_over_bounds else queued

    def acknowledged(self) -> int:
        read = self.stream.acknowledged_bytes
        if read != self._seen:
            self._move_to(read)
        return self._acknowledged

    def drained(self) -> bool:
        return not self.stream.queued_bytes and self.stream.acknowledged_bytes >= self._sent

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._connection.soon(self.readable)

    def close(self, code: int, reason: str) -> None:
        """Close the session; see `RelaySocket`. The client gets the code, but not the reason."""
        if self.state is State.SIGNING_IN or self.state is State.OPEN:
            self._code = self._told_code = code
            if self.state is State.OPEN:
                self._begin_close()
            else:
                self._ends_on_accept = True

    def abort(self) -> None:
        if self.state is not State.CLOSED:
            self._code = int(CloseCode.ABNORMAL)
            self._finish()

    # --- events of the connection -----------------------------------------------------------------

    def readable(self) -> None:
        """Read the bytes that were received, after new ones arrived or reading was resumed."""
        reader = self._reader
        if self._is_paused or reader is None or self.state is not State.OPEN:
            return
        data = self._read()
        if self._early:
            data, self._early = self._early + data, b""
        if not data:
            return
        try:
            messages = reader.receive_data(data)
        except MessageTooLargeError:
            self._refuse_input(Fault.TOO_LARGE)
            return
        if reader.held_bytes != self.charged_bytes and not self._connection.budget.settle(
            self, reader.held_bytes
        ):
            self._refuse_input(Fault.TOO_MUCH_INCOMPLETE)
            return
        if messages:
            assert self._receiver is not None
            self._receiver.messages_received(messages)

    def has_room(self) -> bool:
        """Notify the receiver if there is room to write again, and return whether there is."""
        if self._is_full:
            if self.stream.queued_bytes > LOW_WATER_BYTES:
                return False
            self._is_full = False
        if self._receiver is not None and self.state is State.OPEN:
            self._receiver.writable()
        return True

    @property
    def queued_bytes(self) -> int:
        """Number of bytes that wait to be sent."""
        return self.stream.queued_bytes

    @property
    def waiting_bytes(self) -> int:
        """Number of bytes that wait, in both directions."""
        return self.stream.queued_bytes + self.stream.held_bytes + self.charged_bytes

    def read_ended(self) -> None:
        """Begin to close the session, because the client sends nothing more: it signs out."""
        self._is_paused = False
        self.readable()
        if self.state is State.OPEN:
            self._begin_close()
        elif self.state is State.SIGNING_IN:
            self._finish()

    def failed(self, half: Half, code: int, reason: FailReason) -> None:
        """End the session, because a half of the stream failed or the connection has ended."""
        if reason is FailReason.CONNECTION:
            self._code = int(CloseCode.ABNORMAL)
        elif reason is not FailReason.PEER:
            self._code = self._told_code = int(CloseCode.PROTOCOL_ERROR)
            self._detail = Refusal.PROTOCOL_ERROR.value
        self._finish()

    def finish_closing(self) -> None:
        """Finish closing: all was acknowledged, or the time for it is over."""
        if self.state is State.CLOSING:
            self._finish()

    def give_up(self) -> None:
        """End the session soon, because another needs the memory of its incomplete message."""
        self._connection.soon(self._refuse_input, Fault.TOO_MUCH_INCOMPLETE)

    # --- details ----------------------------------------------------------------------------------

    def _read(self) -> bytes:
        return self._connection.read(self.id)

    def _write(self, data: bytes) -> bool:
        if self.stream.writing is not WriteState.OPEN:
            return False
        self.stream.write(data)
        self._sent += len(data)
        self._connection.written_to(self)
        return True

    def _move_to(self, read: int) -> None:
        """Advance `_acknowledged` by the messages that the client has read completely."""
        self._seen = read
        while self._unconfirmed and self._at < read:
            end, sizes = self._unconfirmed[0]
            if end <= read:
                self._at = end
                self._acknowledged += sum(map(_on_websocket, sizes))
                self._unconfirmed.popleft()
                continue
            for index, size in enumerate(sizes):
                behind = self._at + _on_stream(size)
                if behind > read:
                    self._unconfirmed[0] = (end, sizes[index:])
                    return
                self._at = behind
                self._acknowledged += _on_websocket(size)

    def _refuse_input(self, fault: Fault) -> None:
        if self.state is State.OPEN:
            self._code = self._told_code = int(fault.code)
            self._detail = fault.refusal.value
            self._finish()

    def _begin_close(self) -> None:
        """Let the client acknowledge what it was sent for a moment, then finish."""
        if self.drained():
            self._finish()
        else:
            self.state = State.CLOSING
            self._connection.linger(self)

    def _finish(self) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._connection.budget.settle(self, 0)
        self._connection.finish(self, self._told_code)
        if self._receiver is not None:
            self._connection.soon(self._tell_closed)

    def _tell_closed(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self.acknowledged()
            receiver.closed(self._code, self._detail)


def _on_stream(size: int) -> int:
    """Return the bytes that a message takes on a stream, including its length."""
    return size + len(varint.encode(size))


def _on_websocket(size: int) -> int:
    """Return the bytes that a message would take on a websocket, including its header."""
    return size + len(frame_header(size))
