"""One websocket connection to a relay, from the handshake to its end.

Picows reads frames: it is compiled, and passes on each frame without a task or a queue. Frames to
be sent are built here, and all frames of one turn of the event loop go out in one write, which
makes many small messages cheap.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from chain.errors import shortened
from peer import traffic
from proto.rmb.bounds import MAX_MESSAGE_BYTES
from proto.rmb.reasons import SESSIONS, SessionReason
from proto.websocket.frames import MASK_BYTES, masked_frame

logger = logging.getLogger(__name__)

PUSHED_OUT: Final = "replaced: this twin has signed in elsewhere with the same session id"
"""Text that replaces the relay's: two gateways of one twin replace each other again and again."""

HIGH_WATER_BYTES: Final = 256 * 1024
"""Amount of unsent data above which no more is accepted. A single message may be larger."""

MAX_FRAGMENTS: Final = 4096
"""Maximum number of fragments of a message: empty ones would never reach its limit in bytes."""

_REPLACED: Final = SESSIONS[SessionReason.REPLACED].close_code
_BINARY: Final = WSMsgType.BINARY
_NO_ANSWER: Final = "nothing was read for too long"


def closed_by_relay(code: int, text: str) -> str:
    """Return the reason text for a session that the relay has closed."""
    what = PUSHED_OUT if code == _REPLACED else text
    return shortened(f"closed by the relay: {code or 'no code'} {what}".rstrip())


def hand_over(message: bytes, on_message: Callable[[bytes], None]) -> None:
    """Pass a received message to the owner of a connection."""
    try:
        on_message(message)
    except Exception:
        # A message that its owner fails to process must not end the connection.
        logger.exception("a message of %d bytes was dropped", len(message))


class Connection(WSListener):
    """A websocket connection to a relay.

    Attributes:
        ended: event that is set when the connection has ended in both directions.
        full: whether too much data is unsent.
        reason: why the connection ended, if that is known.
        close_code: close code that the relay sent; 0 if it sent none.
        date: `Date` header of the relay's answer to the handshake.
    """

    def __init__(
        self,
        on_message: Callable[[bytes], None],
        on_text: Callable[[], None],
        on_writable: Callable[[], None],
        ping_after_s: float,
        give_up_after_s: float,
    ) -> None:
        self.ended = asyncio.Event()
        self.full = False
        self._full_since_s = 0.0
        self.reason = ""
        self.close_code = 0
        self.date: str | None = None
        self._on_message = on_message
        self._on_text = on_text
        self._on_writable = on_writable
        self._ping_after_s = ping_after_s
        self._give_up_after_s = give_up_after_s
        self._loop = asyncio.get_running_loop()
        self._websocket: WSTransport | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s = 0.0
        self._traffic: traffic.Traffic | None = None  # as of the last check that found silence
        self._reading = True
        self._fragments: list[bytes] | None = None
        self._fragments_bytes = 0
        self._ping: bytes | None = None  # payload of a ping that is not answered yet
        self._told_of_text = False
        self._unsent: list[bytes] = []  # messages of this turn
        self._unsent_bytes = 0
        self._kernel_full = False
        self._abandoned = False
        self._leaving = False

    # Called by picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        if self._abandoned:
            transport.underlying_transport.abort()
            return
        self._websocket = transport
        if transport.response is not None:
            self.date = transport.response.headers.get("Date")
        self._transport = transport.underlying_transport
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(self._ping_after_s, self._check_silence)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self._heard_s = self._loop.time()
        kind = frame.msg_type
        if kind is _BINARY and frame.fin:
            self._take(frame.get_payload_as_bytes())
        elif kind is _BINARY or kind is WSMsgType.CONTINUATION:
            self._take_fragment(kind, frame)
        elif kind is WSMsgType.CLOSE:
            code = frame.get_close_code()
            text = frame.get_close_reason() or ""
            number: Any = getattr(code, "value", code)
            self.close_code = int(number or 0)
            self.reason = closed_by_relay(self.close_code, text)
            if not self._leaving:
                transport.send_close(WSCloseCode.OK)
            transport.disconnect()
        elif kind is WSMsgType.PING:
            # One pong, for the newest ping, answers all (RFC 6455, section 5.5.3): a relay that
            # sends many pings gets one answer each turn, and none while it does not read.
            if self._ping is None:
                self._loop.call_soon(self._pong)
            self._ping = frame.get_payload_as_bytes()
        elif kind is WSMsgType.TEXT:
            if not self._told_of_text:
                logger.warning("the relay sent a text message of %d bytes", frame.payload_size)
                self._told_of_text = True
            self._on_text()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.full = True
        self.ended.set()

    def pause_writing(self) -> None:
        self._kernel_full = True
        self._fill()

    def resume_writing(self) -> None:
        self._kernel_full = self.full = False
        self._pong()
        self._on_writable()

    # Called by the link.

    @property
    def began(self) -> bool:
        return self._websocket is not None

    def try_send(self, data: bytes) -> bool:
        if self.full:
            return False
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= HIGH_WATER_BYTES:
            self._fill()
        return True

    @property
    def busy_s(self) -> float:
        return self._loop.time() - self._full_since_s if self.full else 0.0

    def pause_reading(self) -> None:
        if self._transport is not None and self._reading and not self._leaving:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._reading:
            self._reading = True
            self._heard_s = self._loop.time()
            self._transport.resume_reading()

    def leave(self) -> None:
        """Write what is unsent and start the close handshake.

        The connection ends when the relay answers. Messages that the relay has written before are
        still read: its kernel has received acknowledgements for them, and the relay no longer keeps
        them.
        """
        self._flush()
        self.full = self._leaving = True
        self.resume_reading()
        if self._websocket is not None:
            self._websocket.send_close(WSCloseCode.OK)

    def drop(self) -> None:
        """End the connection at once; further calls have no effect."""
        if self._transport is not None and not self.ended.is_set():
            self._transport.abort()

    def abandon(self) -> None:
        """End the connection now, or once it is established: the caller no longer waits for it."""
        self._abandoned = True
        self.drop()

    # Internals.

    def _fill(self) -> None:
        if not self.full:
            self.full, self._full_since_s = True, self._loop.time()

    def _flush(self) -> None:
        messages, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if not messages or self._transport is None or self.ended.is_set():
            return
        masks = os.urandom(MASK_BYTES * len(messages))
        frames = [
            masked_frame(each, masks[MASK_BYTES * i : MASK_BYTES * (i + 1)])
            for i, each in enumerate(messages)
        ]
        self._transport.write(b"".join(frames) if len(frames) > 1 else frames[0])
        if self.full and not self._kernel_full:
            self.full = False
            self._on_writable()

    def _pong(self) -> None:
        if self._ping is None or self._kernel_full or self.ended.is_set() or self._leaving:
            return
        assert self._websocket is not None
        payload, self._ping = self._ping, None
        self._websocket.send_pong(payload)

    def _take(self, message: bytes) -> None:
        hand_over(message, self._on_message)

    def _take_fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        if kind is _BINARY:
            self._fragments, self._fragments_bytes = [], 0
        if self._fragments is None:  # of a text message
            return
        self._fragments.append(frame.get_payload_as_bytes())
        self._fragments_bytes += frame.payload_size
        if self._fragments_bytes > MAX_MESSAGE_BYTES:
            self.reason = f"a message of more than {MAX_MESSAGE_BYTES} bytes"
            self.drop()
        elif len(self._fragments) > MAX_FRAGMENTS:
            self.reason = f"a message of more than {MAX_FRAGMENTS} fragments"
            self.drop()
        elif frame.fin:
            message, self._fragments = b"".join(self._fragments), None
            self._take(message)

    def _check_silence(self) -> None:
        silent_s = self._loop.time() - self._heard_s if self._reading else 0.0
        assert self._websocket is not None and self._transport is not None
        if silent_s >= self._give_up_after_s:
            before, self._traffic = self._traffic, traffic.read(self._transport)
            if not traffic.moves(before, self._traffic):
                self.reason = _NO_ANSWER
                self.drop()
                return
            wait_s = self._give_up_after_s - self._ping_after_s
        elif silent_s >= self._ping_after_s:
            self._traffic = traffic.read(self._transport)
            self._websocket.send_ping()
            wait_s = self._give_up_after_s - silent_s
        else:
            wait_s = self._ping_after_s - silent_s
        self._timer = self._loop.call_later(wait_s, self._check_silence)
