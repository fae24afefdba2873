"""One session on a stream, from its sign-in to its end.

    token -->                     each preceded by its length: `proto.mux.messages`
          <-- 101
    envelopes <-> envelopes

The relay considers an envelope delivered when its bytes have been read here. So a paused session
stops reading, and further envelopes wait at the relay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from peer.connection import closed_by_relay, hand_over
from peer.link import CLOSE_S, RefusedError
from peer.mux import MuxSession, MuxStream, StreamFailedError
from proto.mux.errors import StreamStateError
from proto.mux.events import FailReason
from proto.mux.messages import MessageReader, MessageTooLargeError, framed
from proto.rmb.bounds import MAX_MESSAGE_BYTES
from proto.rmb.reasons import SESSIONS

HIGH_WATER_BYTES: Final = 64 * 1024
"""Unsent bytes on its stream above which a session accepts no more messages. A single message may
be larger. The value is small because there are thousands of sessions."""

SIGNED_IN: Final = 101
"""Status of the answer to a successful sign-in."""

_TEXTS: Final = {end.close_code: end.text for end in SESSIONS.values() if end.close_code}


class StreamSession:
    """A signed-in session: a `peer.link.Session`.

    Attributes:
        ended, full, reason, close_code, date: as in `peer.link.Session`.
        mux: the connection that carries the session.
    """

    def __init__(
        self,
        mux: MuxSession,
        stream: MuxStream,
        on_message: Callable[[bytes], None],
        on_writable: Callable[[], None],
    ) -> None:
        self.ended = asyncio.Event()
        self.full = False
        self.reason = ""
        self.close_code = 0
        self.date: str | None = None
        self.mux = mux
        self._stream = stream
        self._on_message = on_message
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._full_since_s = 0.0
        self._unsent: list[bytes] = []  # messages of this turn of the event loop
        self._unsent_bytes = 0
        self._messages = MessageReader(MAX_MESSAGE_BYTES)
        self._early: deque[bytes] = deque()  # received together with the answer to the sign-in
        self._resumed: asyncio.Event | None = None  # exists while reading is paused
        self._leaving = False
        self._reading: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None

    @classmethod
    async def sign_in(
        cls,
        mux: MuxSession,
        token: str,
        on_message: Callable[[bytes], None],
        on_writable: Callable[[], None],
    ) -> Self:
        """Open a stream and sign in on it.

        Raises:
            RefusedError: the relay refused the session.
            ConnectionError: the stream, or the connection, has ended.
            StreamFailedError: the relay accepted no stream.
        """
        stream = await mux.open_stream()
        session = cls(mux, stream, on_message, on_writable)
        try:
            await stream.write(framed((token.encode(),)))
            await session._take_answer()
        except BaseException:
            session.drop()
            raise
        session._reading = session._loop.create_task(session._read())
        return session

    @property
    def busy_s(self) -> float:
        """Seconds for which the session has been full."""
        return self._loop.time() - self._full_since_s if self.full else 0.0

    def try_send(self, data: bytes) -> bool:
        """Send a message; return False if too much data is unsent."""
        if self.full:
            return False
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= HIGH_WATER_BYTES:
            self._fill()
        return True

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading` is called."""
        if self._resumed is None and not self._leaving:
            self._resumed = asyncio.Event()

    def resume_reading(self) -> None:
        """Continue to read."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def leave(self) -> None:
        """Write what is unsent and end cleanly: what the relay has written before is read."""
        self._flush()
        self.full = self._leaving = True
        self.resume_reading()
        with contextlib.suppress(StreamStateError):
            self.mux.mux.end(self._stream.id, self.mux.now_ns())
        self.mux.flush_soon()

    def drop(self) -> None:
        """End the session at once; further calls have no effect."""
        for task in (self._reading, self._draining):
            if task is not None:
                task.cancel()
        self._end()

    # Internals.

    def _fill(self) -> None:
        if not self.full:
            self.full, self._full_since_s = True, self._loop.time()

    def _flush(self) -> None:
        messages, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if not messages or self.ended.is_set():
            return
        mux, stream_id = self.mux.mux, self._stream.id
        try:
            mux.write(stream_id, framed(messages))
        except StreamStateError:  # the relay has stopped reading; its reason follows
            self._fill()
            self._loop.call_later(CLOSE_S, self.drop)
            return
        self.mux.flush_soon()
        if self.full or mux.queued_of(stream_id) >= HIGH_WATER_BYTES:
            self._fill()
            self._draining = self._loop.create_task(self._drain())

    async def _take_answer(self) -> None:
        try:
            while not self._early:
                data = await self._stream.read()
                if not data:
                    raise ConnectionError("the relay ended the session without an answer")
                self._early += self._messages.receive_data(data)
        except MessageTooLargeError as error:
            raise ConnectionError(f"unexpected answer of the relay: {error}") from None
        status, _, text = self._early.popleft().decode("utf-8", "replace").partition(" ")
        if not (status.isascii() and status.isdigit() and len(status) == 3):
            raise ConnectionError(f"unexpected answer of the relay: {status!r:.60}")
        if int(status) != SIGNED_IN:
            raise RefusedError(int(status), text)

    async def _read(self) -> None:
        try:
            await self._read_on()
        except StreamFailedError as error:
            self._failed(error)
        finally:
            self._end()

    async def _read_on(self) -> None:
        stream, messages = self._stream, self._messages
        on_message = self._on_message
        while True:
            if self._resumed is not None:
                await self._pause(self._resumed)
            while self._early:
                hand_over(self._early.popleft(), on_message)
            data = await stream.read()
            if not data:
                if messages.held_bytes:
                    self.reason = f"ended {messages.held_bytes} bytes into a message"
                return
            try:
                received = messages.receive_data(data)
            except MessageTooLargeError as error:
                self.reason = str(error)
                received = error.messages
            for message in received:
                hand_over(message, on_message)
            if self.reason:
                return

    async def _pause(self, resumed: asyncio.Event) -> None:
        """Wait until reading is resumed, or the stream has failed."""
        waits = [self._loop.create_task(each) for each in (resumed.wait(), self._stream.failed())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _drain(self) -> None:
        with contextlib.suppress(StreamFailedError):
            await self._stream.drain()
            if not self._leaving:
                self.full = False
                self._on_writable()

    def _failed(self, error: StreamFailedError) -> None:
        if error.reason is FailReason.PEER:
            self.close_code = error.code
            self.reason = closed_by_relay(error.code, _TEXTS.get(error.code, ""))
        elif error.reason is FailReason.CONNECTION:
            self.reason = "the connection that carried it was lost"
        else:
            self.reason = str(error)

    def _end(self) -> None:
        self.full = True
        self._stream.abort()
        self._stream.cancel()
        self.ended.set()
