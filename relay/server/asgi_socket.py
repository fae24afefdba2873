"""A `RelaySocket` on the standard receive/send pair: for daphne and any other ASGI server.

It works with every server but guarantees less (see `AsgiSocket`). Relays normally run on
`frame_protocol.FrameProtocol`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final

from proto.websocket.bounds import MAX_MESSAGE_BYTES
from proto.websocket.errors import CloseCode, Fault
from proto.websocket.frames import framed_bytes
from relay.server.client_address import shown_client
from relay.server.limits import CLOSE_TIMEOUT_S
from relay.server.socket import (
    EXTENSION,
    HIGH_WATER_BYTES,
    InputRules,
    Receiver,
    RelaySocket,
)

LOW_WATER_BYTES: Final = 16 * 1024

Message = dict[str, Any]


class AsgiSocket:
    """One websocket of a server that offers only ASGI.

    It is weaker than `FrameProtocol` where such a server withholds information:

    - `acknowledged()` counts what the server took. daphne takes everything at once and keeps it in
      its own buffer, so data on its way when a connection dies is counted as arrived.
    - The bounds on frames, pings and incomplete messages are the server's own.
    - `abort()` ends the application's part; how fast the connection ends is up to the server.

    Attributes:
        written: See `RelaySocket`; frames of messages only.
        last_received: Infinite: pings stay in the server, so silence cannot be judged here, and the
            server's own keep-alive ends dead connections.
        remote: See `RelaySocket`.
    """

    def __init__(
        self,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        scope: Mapping[str, Any],
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        self._receive = receive
        self._send = send
        self._rules = InputRules(max_message_bytes)
        self._close_timeout_s = close_timeout_s
        self._loop = asyncio.get_running_loop()
        client = scope.get("client")
        self.remote = shown_client(*client) if client else "unix"
        self.written = 0
        self.last_received = math.inf
        self._receiver: Receiver | None = None
        self._outbox: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._discarded_bytes = 0
        self._above_high_water = False
        self._work = asyncio.Event()  # something to send, or the end
        self._reading = asyncio.Event()
        self._reading.set()
        self._closing = False
        self._close: tuple[int, str] | None = None  # to be sent
        self._close_code = int(CloseCode.ABNORMAL)
        self._detail: str | None = None
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._aborted = False

    # --- RelaySocket -----------------------------------------------------------------------------

    def set_rules(self, rules: InputRules) -> None:
        self._rules = rules

    def start(self, receiver: Receiver, account: Hashable | None = None) -> None:
        self._receiver = receiver

    def send_messages(self, payloads: list[bytes]) -> int:
        size = framed_bytes(payloads)
        self.written += size
        if self._closing:
            self._discarded_bytes += size
            return self.written
        self._outbox.extend(payloads)
        self._buffered_bytes += size
        if self._buffered_bytes > HIGH_WATER_BYTES:
            self._above_high_water = True
        self._work.set()
        return self.written

    def buffered_bytes(self) -> int:
        return self._buffered_bytes

    def acknowledged(self) -> int:
        return self.written - self._discarded_bytes - self._buffered_bytes

    def drained(self) -> bool:
        return self._buffered_bytes == 0

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def close(self, code: int, reason: str) -> None:
        if self._closing:
            return
        self._close_code = code
        self._close = (code, reason)
        self._stop()

    def abort(self) -> None:
        self._aborted = True
        self._stop()
        for task in (self._reader, self._writer):
            if task is not None:
                task.cancel()

    # --- the pump --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry messages until the connection ends; must be awaited after `start`."""
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())
        try:
            if not self._aborted:
                await asyncio.wait(
                    (self._reader, self._writer), return_when=asyncio.FIRST_COMPLETED
                )
            if not self._reader.done() and not self._aborted:  # the close frame is out
                await asyncio.wait((self._reader,), timeout=self._close_timeout_s)
        finally:
            for task in (self._reader, self._writer):
                task.cancel()
            self._stop()
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                receiver.closed(self._close_code, self._detail)
        for task in (self._reader, self._writer):
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _stop(self) -> None:
        """Stop receiving and sending; discard what the server has not taken."""
        self._closing = True
        self._outbox.clear()
        self._discarded_bytes += self._buffered_bytes
        self._buffered_bytes = 0
        self._work.set()
        self._reading.set()

    async def _read(self) -> None:
        while True:
            await self._reading.wait()
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                if not self._closing:
                    self._close_code = message.get("code") or CloseCode.ABNORMAL
                return
            if self._closing or self._receiver is None:
                continue
            payload = message.get("bytes")
            if payload is None and self._rules.takes_text:
                payload = message["text"].encode()
            if payload is None:
                self._refuse(Fault.TEXT_FRAME)
            elif len(payload) > self._rules.max_message_bytes:
                self._refuse(Fault.TOO_LARGE)
            else:
                self._receiver.messages_received([payload])

    def _refuse(self, fault: Fault) -> None:
        self._detail = fault.refusal.value
        code = self._rules.code_of(fault)
        if self._rules.drops:
            self._close_code = code
            self.abort()
        else:
            self.close(code, fault.text)

    async def _write(self) -> None:
        try:
            while not self._closing:
                await self._work.wait()
                self._work.clear()
                while self._outbox:
                    payload = self._outbox[0]
                    await self._send({"type": "websocket.send", "bytes": payload})
                    if self._closing:  # discarded in the meantime, sent or not
                        break
                    self._outbox.popleft()
                    self._buffered_bytes -= framed_bytes([payload])
                    if self._above_high_water and self._buffered_bytes < LOW_WATER_BYTES:
                        self._above_high_water = False
                        if self._receiver is not None:
                            self._receiver.writable()
            if self._close is not None:
                await self._send_close(*self._close)
        except (OSError, RuntimeError):
            # Servers report a lost connection in these ways; the reader is notified too.
            self._stop()

    async def _send_close(self, code: int, reason: str) -> None:
        message: Message = {"type": "websocket.close", "code": int(code), "reason": reason}
        try:
            await self._send(message)
        except (OSError, RuntimeError):
            raise
        except Exception:
            # daphne accepts only 1000 and 3000-4999, and raises a bare Exception for others.
            await self._send({**message, "code": int(CloseCode.NORMAL)})


def socket_of(
    scope: Mapping[str, Any],
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
    **bounds: Any,
) -> tuple[RelaySocket, AsgiSocket | None]:
    """Return the socket of a websocket, whichever server runs it.

    Args:
        bounds: Keyword arguments of an `AsgiSocket`.

    Returns:
        The socket; and the same again if it has to be `run` after its start.
    """
    extension = scope.get("extensions", {}).get(EXTENSION)
    if extension is not None:
        return extension["socket"], None
    pumped = AsgiSocket(receive, send, scope, **bounds)
    return pumped, pumped
