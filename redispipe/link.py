"""One connection of a `RedisPipe` to Redis: matches replies to requests.

It is separate from the pipe, which reopens it as needed, because it is part of the hot path
(`hotpath.compiled`): a compiled coroutine that awaits inside `except` leaks the error to other
coroutines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final, Protocol

import hiredis

from redispipe import resp
from redispipe.errors import LinkLost

log = logging.getLogger(__name__)

_PING: Final = resp.command("PING")


class LinkOwner(Protocol):
    """The pipe, as far as its connection needs it."""

    usable: bool

    def push(self, reply: Any) -> None:
        """Handle a reply that no request waits for."""

    def lost(self, link: Link) -> None:
        """Record that the link has ended."""


class Link(asyncio.Protocol):
    """One connection: passes replies to the waiting requests, in order."""

    def __init__(self, pipe: LinkOwner) -> None:
        self.pipe = pipe
        self.reader = hiredis.Reader()
        self.waiting: deque[list[Any]] = deque()  # [replies to skip, callback, first error]
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._heard = True  # since the last check
        self._pinged = False
        self._buffered = 0  # bytes, at the last check
        self._quiet_since = self._loop.time()
        self._gathered: list[bytes] = []  # commands of this turn, not yet written
        self._in_pieces = False  # whether they are too large to be copied into one
        self._why = "the connection to redis ended"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._heard = True
        reader = self.reader
        reader.feed(data)
        gets = reader.gets
        waiting = self.waiting
        while True:
            try:
                reply = gets()
            except hiredis.ProtocolError as error:
                self._why = f"redis sent an answer that is not RESP: {error}"
                if self.pipe.usable:  # otherwise the code that opens the connection logs it
                    log.error("%s", self._why)
                self.drop()
                return
            if reply is False:
                return
            if not waiting:
                if self.pipe.usable or not isinstance(reply, hiredis.ReplyError):
                    self.pipe.push(reply)
                else:  # why Redis rejects the connection
                    self._why = str(reply)
                continue
            head = waiting[0]
            if head[0]:
                head[0] -= 1
                if head[2] is None and isinstance(reply, hiredis.ReplyError):
                    head[2] = reply
                continue
            waiting.popleft()
            head[1](head[2] if head[2] is not None else reply)

    def write(self, payload: bytes | list[bytes], at_once: bool) -> None:
        """Write commands in the order of the calls, at the end of this turn of the loop."""
        gathered = self._gathered
        first = not gathered
        if isinstance(payload, bytes):
            gathered.append(payload)
        else:
            gathered += payload
            self._in_pieces = True
        if at_once:
            self._flush()
        elif first:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        gathered = self._gathered
        transport = self.transport
        # Requests on a connection that ends get `LinkLost`; uvloop's transport rejects writes then.
        if gathered and transport is not None and not transport.is_closing():
            self._gathered = []
            if self._in_pieces:
                self._in_pieces = False
                transport.writelines(gathered)
            else:
                transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    @property
    def flushed(self) -> bool:
        transport = self.transport
        return (
            transport is not None
            and not self._gathered
            and self.buffered_bytes == 0
            and transport.get_extra_info("sslcontext") is None
        )

    def connection_lost(self, exc: Exception | None) -> None:
        waiting, self.waiting = self.waiting, deque()
        lost = LinkLost(f"{self._why}: {exc}" if exc else self._why)
        self.pipe.lost(self)
        for _, callback, refused in waiting:
            callback(lost if refused is None else LinkLost(str(refused)))

    def look(self, *, ping: bool) -> float:
        """Check the connection; return the seconds for which an answer was due without any sign of
        life.

        The time is counted from check to check.

        Args:
            ping: whether to request an answer if none is due.
        """
        now = self._loop.time()
        before, self._buffered = self._buffered, self.buffered_bytes
        due = self.waiting or self._pinged
        if self._heard or not due or self._buffered < before:
            if ping and not due and not self._heard:
                self._pinged = True
                self.write(_PING, at_once=False)
            else:
                self._pinged = False
            self._heard = False
            self._quiet_since = now
        return now - self._quiet_since

    @property
    def buffered_bytes(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()
