"""A connection to an SBD server.

The protocol is implemented in `proto.sbd.machine.ClientSide`; this module has the websocket and two
tasks. One reads, and pauses while the application reads nothing, which slows the server down. The
other writes what the state machine permits; a packet, the server, or the machine's timer wakes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from typing import Final, Self
from urllib.parse import urlsplit

from nacl import bindings
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from proto.sbd import frames
from proto.sbd.bounds import KEY_BYTES, MAX_MESSAGE_BYTES, SIGNATURE_BYTES
from proto.sbd.errors import ClosedError, SbdError
from proto.sbd.events import Connected, Ended, PacketReceived
from proto.sbd.machine import ClientSide, State

OPEN_S: Final = 10.0
CLOSE_S: Final = 1.0
WAITING_PACKETS: Final = 64
"""Number of received packets waiting for the application from which on the server is not read."""
MAX_ANSWER_BYTES: Final = 16 * 1024
SCHEMES: Final = {"ws": http.client.HTTPConnection, "wss": http.client.HTTPSConnection}


class ConnectError(SbdError):
    """The server could not be reached, refused, or did not finish the handshake in time."""


def new_secret() -> bytes:
    """Generate a secret key (libsodium's 64 bytes) whose public key can be addressed."""
    while True:
        key, secret = bindings.crypto_sign_seed_keypair(os.urandom(KEY_BYTES))
        if frames.is_addressable(key):
            return bytes(secret)


class SbdClient:
    """A client of an SBD server.

    Attributes:
        key: the client's public key, 32 bytes.
        secret: libsodium's 64 byte ed25519 secret key.
        url: URL of the server.
    """

    def __init__(
        self,
        url: str,
        seed: bytes | None = None,
        *,
        auth_material: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        open_timeout_s: float = OPEN_S,
    ) -> None:
        """
        Args:
            url: `ws://host:port` or `wss://host`.
            seed: 32 byte seed of an ed25519 key; by default a new one, as the protocol advises.
            auth_material: body sent to the server's `/authenticate` for a token; None: no token.
            headers: additional headers of the handshake.
            tls: TLS context for `wss`; verifies certificates by default.
            open_timeout_s: time-out until the server is ready, in seconds.

        Raises:
            ValueError: the URL is invalid, or the seed is not 32 bytes.
        """
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url}: must be ws://host or wss://host")
        if seed is not None and len(seed) != KEY_BYTES:
            raise ValueError(f"a seed has {KEY_BYTES} bytes, not {len(seed)}")
        self.url = url.rstrip("/")
        self.secret = new_secret() if seed is None else bindings.crypto_sign_seed_keypair(seed)[1]
        self.key: bytes = self.secret[KEY_BYTES:]
        self._auth_material = auth_material
        self._headers = dict(headers or {})
        self._tls = tls
        self._open_timeout_s = open_timeout_s
        self._machine = ClientSide(self._sign, time.monotonic_ns())
        self._websocket: ClientConnection | None = None
        self._received: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(WAITING_PACKETS)
        self._news = asyncio.Event()  # set at a packet, or the end
        self._work = asyncio.Event()  # wakes the writer
        self._room = asyncio.Event()
        self._sent = asyncio.Event()  # set while no packet waits
        self._sent.set()
        self._ready: asyncio.Future[None]
        self._tasks: list[asyncio.Task[None]] = []
        self._why = "the client is not open"
        self._ended = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and wait until packets can be sent.

        Raises:
            ConnectError: the connection could not be established.
        """
        try:
            async with asyncio.timeout(self._open_timeout_s):
                await self._open()
        except TimeoutError:
            await self.close()
            raise ConnectError(f"{self.url}: not ready within {self._open_timeout_s:g} s") from None
        except (OSError, WebSocketException, http.client.HTTPException, ClosedError) as error:
            await self.close()
            text = str(error) or type(error).__name__
            if isinstance(error, InvalidStatus):
                said = (error.response.body or b"").decode(errors="replace")[:120]
                text = f"HTTP {error.response.status_code} {said}".strip()
            raise ConnectError(f"{self.url}: {text}") from error

    async def send(self, key: bytes, message: bytes) -> None:
        """Send a message to a key; wait while many messages wait for the server's rate limit.

        Raises:
            MessageSizeError: the message is longer than 19,968 bytes.
            ClosedError: the connection has ended.
        """
        while not self._machine.has_room and self._machine.state is State.READY:
            self._room.clear()
            await self._room.wait()
        if self._machine.state is not State.READY:
            raise ClosedError(self._why)
        self._machine.send(key, message)
        self._sent.clear()
        self._work.set()

    async def drain(self) -> None:
        """Wait until all messages that waited for the rate limit have been sent.

        Raises:
            ClosedError: the connection has ended.
        """
        await self._sent.wait()
        if self._machine.state is not State.READY:
            raise ClosedError(self._why)

    async def receive(self) -> tuple[bytes, bytes]:
        """Return the next packet: the key of its source, and the message.

        Raises:
            ClosedError: the connection has ended.
        """
        while self._received.empty():
            if self._ended:
                raise ClosedError(self._why)
            self._news.clear()
            await self._news.wait()
        return self._received.get_nowait()

    async def __aiter__(self) -> AsyncIterator[tuple[bytes, bytes]]:
        with contextlib.suppress(ClosedError):
            while True:
                yield await self.receive()

    async def close(self) -> None:
        """Close the connection."""
        self._end("the client was closed")
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._websocket is not None:
            await self._websocket.close()

    # --- internals --------------------------------------------------------------------------------

    async def _open(self) -> None:
        headers = dict(self._headers)
        if self._auth_material is not None:
            token = await asyncio.to_thread(self._token, self._auth_material)
            headers["Authorization"] = f"Bearer {token}"
        self._websocket = await connect(
            f"{self.url}/{frames.path_of_key(self.key)}",
            additional_headers=headers,
            ssl=(self._tls or True) if self.url.startswith("wss:") else None,
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            ping_interval=None,
            open_timeout=None,
            close_timeout=CLOSE_S,
            proxy=None,
        )
        self._ready = asyncio.get_running_loop().create_future()
        self._tasks = [
            asyncio.ensure_future(self._read(self._websocket)),
            asyncio.ensure_future(self._write(self._websocket)),
        ]
        await self._ready

    def _token(self, material: bytes) -> str:
        """Request a token from the server; blocks."""
        parts = urlsplit(self.url)
        options = {"context": self._tls} if parts.scheme == "wss" else {}
        connection = SCHEMES[parts.scheme](parts.netloc, timeout=self._open_timeout_s, **options)
        try:
            headers = {"Content-Type": "application/octet-stream"}
            connection.request("PUT", "/authenticate", material, headers)
            answer = connection.getresponse()
            try:
                body = answer.read(MAX_ANSWER_BYTES)
            except (ValueError, OverflowError):  # a chunk with a negative size
                raise OSError("no token: the server's answer is not HTTP") from None
            if answer.status != 200:
                said = body.decode(errors="replace")[:120]
                raise OSError(f"no token: HTTP {answer.status} {said}".strip())
        finally:
            connection.close()
        try:
            token = json.loads(body)["authToken"]
            if not isinstance(token, str):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise OSError("no token: the server's answer has no authToken") from None
        return token

    def _sign(self, nonce: bytes) -> bytes:
        signed: bytes = bindings.crypto_sign(nonce, self.secret)
        return signed[:SIGNATURE_BYTES]

    async def _read(self, websocket: ClientConnection) -> None:
        why = "the server ended the connection"
        try:
            async for message in websocket:
                data = message.encode() if isinstance(message, str) else message
                self._machine.receive_data(data, time.monotonic_ns())
                self._work.set()
                while (event := self._machine.next_event()) is not None:
                    if isinstance(event, PacketReceived):
                        await self._received.put((event.key, event.payload))
                        self._news.set()
                    elif isinstance(event, Connected):
                        self._ready.set_result(None)
                    elif isinstance(event, Ended):
                        why = event.text
                        return
        except WebSocketException:
            pass  # the close code does not matter: the protocol has none
        finally:
            self._end(why)

    async def _write(self, websocket: ClientConnection) -> None:
        with contextlib.suppress(WebSocketException):
            while not self._ended:
                for message in self._machine.data_to_send(time.monotonic_ns()):
                    await websocket.send(message)
                self._room.set()
                if not self._machine.waits:
                    self._sent.set()
                due_ns = self._machine.next_timer()
                wait_s = None if due_ns is None else (due_ns - time.monotonic_ns()) / 1e9
                # Not wait_for, which loses a cancellation that comes with the event (Python 3.11).
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._work.wait()
                self._work.clear()
                self._machine.handle_timer(time.monotonic_ns())

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended = True
            self._machine.end()
            self._why = why
        for event in (self._room, self._sent, self._work):
            event.set()
        if self._websocket is not None and not self._ready.done():
            self._ready.set_exception(ClosedError(self._why))
        self._news.set()
