"""The websocket connection as uvicorn's loop sees it: bytes in, messages to a receiver, bytes out.

`http_protocol.RelayHttpProtocol` hands over a connection whose request asks for a websocket. The
ASGI application decides about it (an HTTP answer, or accept). From then on no byte passes ASGI: all
messages completed by one read go to the receiver in one call, and `send_messages` writes to the
transport.

States: CONNECTING (the application decides) -> OPEN -> CLOSING (close frame sent, or buffer
discarded; bounded) -> CLOSED. A refused handshake goes from CONNECTING to CLOSED.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable
from enum import Enum
from functools import partial
from typing import Any, Final

from proto.rmb.reasons import SESSIONS, SessionReason
from proto.websocket.errors import CloseCode
from proto.websocket.events import CloseReceived, InputRefused, PingReceived
from proto.websocket.frames import (
    FrameReader,
    binary_frames,
    close_frame,
    close_payload,
    frame_parts,
    framed_bytes,
    pong_frame,
)
from relay.server.acknowledgement import Outgoing
from relay.server.conversation import Conversation
from relay.server.handshake import http_answer
from relay.server.limits import FULL_READ_BYTES, MAX_TURN_PINGS, PINGS_PAUSE_S, ServerLimits
from relay.server.socket import HIGH_WATER_BYTES, InputRules, Receiver
from relay.server.turns import BULK_BYTES, COUNTED_FROM

GATHERED_BYTES: Final = 4096
"""Size from which on the kernel gathers header and payload: a copy costs more than two pieces."""


class State(Enum):
    CONNECTING = "connecting"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class FrameProtocol(asyncio.Protocol):
    """One websocket connection; a `relay.server.socket.RelaySocket`.

    Attributes:
        written, last_received, remote: See `RelaySocket`.
    """

    __slots__ = ("_close_code", "_close_frame", "_close_on_accept", "_detail", "_discarded_bytes",
                 "_early", "_input_over", "_limits", "_listener", "_loop", "_outgoing", "_owner",
                 "_pending_pong", "_pings", "_reader", "_reading_paused", "_receiver", "_rules",
                 "_state", "_timer", "_transport", "_turn_given", "_waiter",
                 "_writing_paused", "last_received", "remote", "written")  # fmt: skip

    def __init__(
        self,
        owner: Any,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        limits: ServerLimits,
        remote: str,
        first: bool = False,
    ) -> None:
        """Take over a connection of uvicorn's.

        Args:
            owner: uvicorn's `ServerState`, which waits for its connections and tasks.
            remote: Address of the client.
            first: Whether nothing was answered on this connection before.
        """
        self._owner = owner
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)  # TLS has a higher default
        self._loop = loop
        self._limits = limits
        self.remote = remote
        self.written = 0
        self.last_received = loop.time()
        self._state = State.CONNECTING
        self._outgoing = Outgoing(transport, loop, first)
        self._discarded_bytes = 0  # of `written`: counted, but never sent
        self._reader: FrameReader | None = None
        self._receiver: Receiver | None = None  # gets messages now
        self._listener: Receiver | None = None  # is notified of the end
        self._rules = limits.rules
        self._early = b""  # received before a receiver was set
        self._waiter: asyncio.Future[None] | None = None
        self._close_code = int(CloseCode.ABNORMAL)
        self._close_on_accept: tuple[int, str] | None = None
        self._close_frame: bytes | None = None  # waits for what was written before it
        self._input_over = False  # the peer's close frame was read, or its input refused
        self._detail: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pending_pong: bytes | None = None
        self._reading_paused = False
        self._pings = 0  # answered since other connections had their turn
        self._turn_given = False  # others have their turn, and `_read_on` follows
        self._writing_paused = False
        owner.connections.add(self)

    # --- the handshake ---------------------------------------------------------------------------

    def run(self, app: Any, scope: dict[str, Any], key: bytes, early: bytes) -> None:
        """Let the application decide about the handshake.

        Args:
            app: ASGI application.
            scope: Scope of the websocket.
            key: Key of the handshake.
            early: Bytes that followed the request.
        """
        if early:
            self._keep_early(early)
        conversation = Conversation(self, scope["path"], key)
        task = self._loop.create_task(conversation.run(app, scope))
        self._owner.tasks.add(task)
        task.add_done_callback(self._owner.tasks.discard)

    @property
    def undecided(self) -> bool:
        """Whether the handshake waits for its answer."""
        return self._state is State.CONNECTING

    @property
    def started(self) -> bool:
        """Whether it has a receiver, which is notified of its end."""
        return self._listener is not None

    @property
    def over(self) -> bool:
        """Whether the connection has ended, or was refused."""
        return self._state is State.CLOSED

    def accept(self, answer: bytes) -> None:
        """Send the answer that makes it a websocket."""
        rules, budget, wake = self._rules, self._limits.partial, self._reader_ended
        self._reader = FrameReader(rules.max_message_bytes, budget, wake, rules.takes_text)
        self._state = State.OPEN
        self._write(answer)
        if self._close_on_accept is not None:
            self.close(*self._close_on_accept)

    def refuse(self, answer: bytes) -> None:
        """Send another answer, and end the connection."""
        self._write(answer)
        self._state = State.CLOSED
        self._transport.close()
        self._arm_timer()

    def set_rules(self, rules: InputRules) -> None:
        self._rules = rules

    async def wait_closed(self) -> int:
        """Wait for the end, and return the close code."""
        if self._state is not State.CLOSED:
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._close_code

    # --- RelaySocket -----------------------------------------------------------------------------

    def start(self, receiver: Receiver, account: Hashable | None = None) -> None:
        if self._reader is not None:
            self._reader.account = account
        self._listener = receiver
        if self._state is State.CLOSED:
            self._loop.call_soon(self._tell_closed)
        elif self._state is State.OPEN:
            if self._early:
                self._loop.call_soon(self._deliver_early, receiver)
            else:
                self._receiver = receiver

    def send_messages(self, payloads: list[bytes]) -> int:
        if self._state is not State.OPEN:
            size = framed_bytes(payloads)
            self._discarded_bytes += size
            self.written += size
            return self.written
        if len(payloads[0]) >= GATHERED_BYTES:
            # The messages of one session are mostly of one kind: the first shows their size.
            self.written += framed_bytes(payloads)
            self._transport.writelines(frame_parts(payloads))
        else:
            data = binary_frames(payloads)
            self.written += len(data)
            self._transport.write(data)
        return self.written

    def buffered_bytes(self) -> int:
        if self._state is State.CLOSED:
            return 0
        return self._transport.get_write_buffer_size()

    def acknowledged(self) -> int:
        return self._outgoing.acknowledged(self.written - self._discarded_bytes)

    def drained(self) -> bool:
        if self._outgoing.lingering:
            return self._outgoing.settled()
        return self.acknowledged() == self.written - self._discarded_bytes

    def pause_reading(self) -> None:
        if self._state is State.OPEN and not self._reading_paused:
            self._reading_paused = True
            self.last_received = math.inf  # the silence is our doing
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self.last_received = self._loop.time()
            if self._has_more():
                self._let_others_in()
            elif not self._early and not self._turn_given:
                self._transport.resume_reading()

    def close(self, code: int, reason: str) -> None:
        if self._state is State.CONNECTING:
            self._close_on_accept = (code, reason)  # a close frame needs a websocket
        elif self._state is State.OPEN:
            self._close_code = code
            self._begin_close(close_frame(close_payload(code, reason)))

    def abort(self) -> None:
        if self._state is not State.CLOSED:
            self._look()
            self._stop_receiving()
            self._transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            self._data_unwanted(data)
        else:
            self.last_received = self._loop.time()
            reader = self._reader
            assert reader is not None
            turns = self._limits.turns
            if turns.left <= 0 and len(data) >= BULK_BYTES:
                reader.keep_data(data)
            elif messages := reader.receive_data(data):
                receiver.messages_received(messages)
                if len(messages) >= COUNTED_FROM:
                    turns.spend(len(messages), self._loop)
            if reader.events:
                self._handle_events()
        if len(data) >= FULL_READ_BYTES or self._has_more() or self._pings >= MAX_TURN_PINGS:
            self._let_others_in()

    def eof_received(self) -> None:
        while self._receiver is not None and self._has_more():
            self.data_received(b"")
        self._look()
        if self._state is State.OPEN:
            self._stop_receiving()
            self._arm_timer()  # the transport may hold bytes the peer no longer takes

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._pending_pong is not None and self._state is State.OPEN:
            self._write(pong_frame(self._pending_pong))
        self._pending_pong = None
        if self._receiver is not None:
            self._receiver.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sent = self.written - self._discarded_bytes
        if self._outgoing.lingering:
            until = self._loop.time() + self._limits.close_timeout_s
            self._outgoing.drain(sent, until, self._end)
        else:
            self._outgoing.lost(sent)
            self._end()

    # --- called by uvicorn -----------------------------------------------------------------------

    def shutdown(self) -> None:
        """Refuse or close the connection: the server ends."""
        text = SESSIONS[SessionReason.DRAINED].text
        if self._state is State.CONNECTING:
            self.refuse(http_answer(503, text.encode()))
        else:
            self.close(CloseCode.SERVICE_RESTART, text)

    # --- internals -------------------------------------------------------------------------------

    def _let_others_in(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()
            if not self._turn_given:
                self._turn_given = True
                pause_s = PINGS_PAUSE_S if self._pings >= MAX_TURN_PINGS else 0.0
                if self._state is State.CLOSING and not self._has_more():
                    pause_s = self._limits.discard_pause_s(self._loop.time())
                if pause_s:
                    self._loop.call_later(pause_s, self._read_on)
                else:
                    self._limits.turns.wait(self._read_on, self._loop)
                self._pings = 0

    def _has_more(self) -> bool:
        return self._reader is not None and self._reader.more

    def _read_on(self) -> None:
        """Continue reading after other connections had their turn."""
        self._turn_given = False
        if self._has_more() and not self._reading_paused:
            self.data_received(b"")
            self._let_others_in()  # one portion per turn: the next turn reads the socket
            return
        waits = self._reading_paused or self._has_more() or self._early
        if not waits and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def _look(self) -> int:
        return self._outgoing.look(self.written - self._discarded_bytes)

    def _reader_ended(self) -> None:
        # Another connection is being read: this one must not change before its own turn.
        self._loop.call_soon(self._handle_events)

    def _handle_events(self) -> None:
        reader = self._reader
        if reader is None:
            return
        events, reader.events = reader.events, []
        pongs = []
        for event in events:
            if isinstance(event, PingReceived):
                pongs.append(event.payload)
            elif isinstance(event, CloseReceived):
                self._close_received(event)
            elif isinstance(event, InputRefused):
                why, code = event.fault, self._rules.code_of(event.fault)
                self._end_input(code, close_payload(code, why.text), why.refusal.value)
        self._pings += len(pongs)
        if pongs and self._state is State.OPEN:
            if self._writing_paused:
                # The newest answers them all (RFC 6455, section 5.5.3): a peer that pings and does
                # not read gets one pong's worth of memory.
                self._pending_pong = pongs[-1]
            else:
                self._write(b"".join(map(pong_frame, pongs)))

    def _close_received(self, event: CloseReceived) -> None:
        sent = self._state is not State.OPEN and self._close_frame is None
        if sent and event.code == self._close_code != CloseCode.NORMAL:
            # No client starts a close with such a code: this answers ours, after all messages.
            self._outgoing.read_by_peer(self.written - self._discarded_bytes)
        self._end_input(event.code, event.payload)

    def _end_input(self, code: int, payload: bytes, detail: str | None = None) -> None:
        """End the connection without waiting: the peer's close frame can no longer be read."""
        self._input_over = True
        if self._state is State.OPEN:
            self._close_code, self._detail = code, detail
            if detail is not None and self._rules.drops:
                self.abort()
                return
            self._begin_close(close_frame(payload))
        elif self._close_frame is None:
            self._end_output()

    def _begin_close(self, frame: bytes) -> None:
        self._look()
        self._stop_receiving()
        # Reserve space for the frame: messages discarded from now on end after it, at positions
        # that are never reached.
        self.written += len(frame)
        self._discarded_bytes += len(frame)
        self.resume_reading()  # the peer's close has to be read
        if self._early:
            self._loop.call_soon(self._deliver_early, None)
        self._arm_timer()
        if self._transport.get_write_buffer_size() == 0:
            self._write_close(frame)
        else:
            # Some loops write at the end of a turn: only what is left in the next one is stuck.
            self._close_frame = frame
            self._loop.call_soon(self._close_after_flush)

    def _close_after_flush(self) -> None:
        frame, self._close_frame = self._close_frame, None
        if frame is None or self._state is not State.CLOSING or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() == 0:
            self._write_close(frame)
        else:
            self._discard_buffer()

    def _write_close(self, frame: bytes) -> None:
        if not self._input_over:
            self._write(frame)
            return
        # The client may disconnect as soon as it has the answer.
        sent = self.written - self._discarded_bytes
        self._outgoing.when_arrived(sent, partial(self._answer_close, frame))

    def _answer_close(self, frame: bytes) -> None:
        self._write(frame)
        self._end_output()

    def _end_output(self) -> None:
        """End our side of the TCP connection; the client waits for that, then ends its own."""
        self._look()
        self._outgoing.when_arrived(self.written - self._discarded_bytes, self._end_transport)

    def _end_transport(self) -> None:
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _discard_buffer(self) -> None:
        """Discard what the kernel did not take, and let it deliver what it took."""
        self._discarded_bytes = self.written - self._look()
        self._outgoing.linger()
        self._transport.abort()

    def _stop_receiving(self) -> None:
        self._receiver = None
        self._pending_pong = None
        if self._state is State.OPEN:
            self._state = State.CLOSING

    def _arm_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.close_timeout_s, self._close_timed_out)

    def _close_timed_out(self) -> None:
        self._timer = None
        self._look()
        self._transport.abort()

    def _keep_early(self, data: bytes) -> None:
        """Hold what arrives before a receiver is set: one read at most, as reading is paused."""
        self._early += data
        self._transport.pause_reading()

    def _deliver_early(self, receiver: Receiver | None) -> None:
        early, self._early = self._early, b""
        if self._state is State.OPEN:
            self._receiver = receiver
        if self._state in (State.OPEN, State.CLOSING):
            self.data_received(early)
            if not self._reading_paused:
                self._transport.resume_reading()

    def _data_unwanted(self, data: bytes) -> None:
        if self._state is State.CLOSING and self._reader is not None:
            # Only the peer's close frame matters now.
            self._reader.receive_data(data)
            self._handle_events()
        elif self._state in (State.CONNECTING, State.OPEN):
            self._keep_early(data)

    def _end(self) -> None:
        self._owner.connections.discard(self)
        self._state = State.CLOSED
        self._receiver = None
        self._early = b""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._tell_closed()

    def _tell_closed(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.closed(self._close_code, self._detail)
