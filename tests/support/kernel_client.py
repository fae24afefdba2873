"""A websocket client that knows what its kernel received, to judge what a relay may remove.

It reads in the event loop's callback, without a task in between, and can do what libraries do not
offer: end with a TCP reset after reading everything its kernel acknowledged, and fall silent as an
unplugged machine does, so that from one moment on nothing more is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Callable
from typing import Self, cast

from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

READ_BYTES = 256 * 1024
LINGER_RESET = struct.pack("ii", 1, 0)  # close() sends RST instead of FIN
SO_ATTACH_FILTER = 26  # linux/asm-generic/socket.h
DROP_EVERYTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF: return 0 bytes of the packet


class KernelClient(asyncio.Protocol):
    """One connection.

    Attributes:
        reading: whether received data is taken from the kernel.
        over: set when the connection has ended.
        broken: whether `reset`, `vanish` or `discard` ended it.
        closed_first: whether the closing handshake was begun here.
    """

    def __init__(self, url: str, on_message: Callable[[bytes], None]) -> None:
        self.reading = True
        self.broken = False
        self.closed_first = False
        self.over = asyncio.Event()
        self._on_message = on_message
        self._upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._protocol = ClientProtocol(parse_uri(url), max_size=None)
        self._protocol.send_request(self._protocol.connect())
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(
        cls,
        url: str,
        token: str,
        on_message: Callable[[bytes], None],
        *,
        address: str = "127.0.0.1",
        receive_buffer_bytes: int = 0,
        timeout_s: float = 60.0,
    ) -> Self:
        """Sign in from a loopback address.

        Raises:
            OSError: No server listens, or the connection ended before the upgrade.
            websockets.exceptions.InvalidHandshake: The relay refused.
            TimeoutError: The relay did not answer in time.
        """
        client = cls(f"{url}/?{token}", on_message)
        parts = parse_uri(url)
        end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if receive_buffer_bytes:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            end.bind((address, 0))
            end.setblocking(False)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(end, (parts.host, parts.port))
                await loop.create_connection(lambda: client, sock=end)
                await client._upgraded
        except BaseException:
            if client._transport is not None:
                client._transport.abort()
            else:
                end.close()
            raise
        return client

    @property
    def alive(self) -> bool:
        """Whether messages may still be sent and received."""
        return not self.broken and not self.over.is_set() and self.close is None

    @property
    def close(self) -> Close | None:
        """The relay's close frame, once received."""
        return self._protocol.close_rcvd

    def send(self, payload: bytes) -> None:
        """Send one binary message; do nothing if the connection is over or closing."""
        if self.alive and not self.closed_first:
            self._protocol.send_binary(payload)
            self._flush()

    def begin_close(self) -> None:
        """Send a close frame, and continue to read until the relay ends the connection."""
        if self.alive and not self.closed_first:
            self.closed_first = True
            self.start_reading()
            self._protocol.send_close(1000)
            self._flush()

    def stop_reading(self) -> None:
        """Leave received data in the kernel, whose window then closes."""
        if self.alive and self.reading:
            self.reading = False
            self._open_transport.pause_reading()

    def start_reading(self) -> None:
        """Undo `stop_reading`."""
        if not self.reading:
            self.reading = True
            if not self.over.is_set():
                self._open_transport.resume_reading()

    def reset(self) -> None:
        """End with a TCP reset, after taking everything that this kernel has acknowledged."""
        if self.broken or self.over.is_set():
            return
        self.vanish()
        self.discard()

    def vanish(self) -> None:
        """Let the kernel drop every packet of the connection from now on, unacknowledged."""
        if self.broken or self.over.is_set():
            return
        self.broken = True
        end = self._open_transport.get_extra_info("socket")
        program = ctypes.create_string_buffer(DROP_EVERYTHING)
        filter_ = struct.pack("HL", 1, ctypes.addressof(program))
        end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_)
        self._take_the_rest()

    def discard(self) -> None:
        """End the connection abruptly; after `vanish` the relay receives the reset only."""
        self.broken = True
        if not self.over.is_set():
            end = self._open_transport.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            self._open_transport.abort()

    def _take_the_rest(self) -> None:
        """Read what the kernel has acknowledged and this client has not yet read."""
        number = self._open_transport.get_extra_info("socket").fileno()
        with (
            socket.socket(fileno=os.dup(number)) as end,
            contextlib.suppress(BlockingIOError, ConnectionError),
        ):
            while data := end.recv(READ_BYTES):
                self.data_received(data)

    @property
    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data and not self.broken and not self._open_transport.is_closing():
                self._open_transport.write(data)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                if not self._upgraded.done():
                    self._upgraded.set_result(None)
            elif isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                assert event.fin, "the relay sends messages whole"
                self._on_message(bytes(event.data))
        self._flush()
        if self._protocol.handshake_exc is not None and not self._upgraded.done():
            self._upgraded.set_exception(self._protocol.handshake_exc)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.broken:
            self._take_the_rest()  # the socket is still open: a write may have failed first
        if not self._upgraded.done():
            self._upgraded.set_exception(ConnectionResetError("ended before the upgrade"))
        self.over.set()
