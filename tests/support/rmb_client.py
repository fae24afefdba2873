"""A small RMB client for tests, on the `websockets` library.

It neither reconnects nor hides anything: what the relay sends is kept unchanged. Pongs answer
`barrier`; everything else goes to `inbox` in order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from proto.rmb import challenge
from proto.rmb import types_pb2 as pb
from tests.support import envelopes
from tests.support.envelopes import SessionKey
from tests.support.identities import Twin

TIMEOUT_S = 60.0


class RmbClient:
    """One signed-in session.

    Attributes:
        key: (twin, sid) of the session.
        inbox: binary messages that were not pongs, as (bytes, envelope).
        pongs: every pong envelope received.
        on_message: function called with each payload instead of filling `inbox`, for load tests.
        signs: whether `request` signs, as messages to other relays must be.
    """

    def __init__(self, websocket: ClientConnection, twin: Twin, sid: str | None) -> None:
        self.websocket = websocket
        self.twin = twin
        self.sid = sid
        self.key: SessionKey = (twin.id, sid)
        self.inbox: asyncio.Queue[tuple[bytes, pb.Envelope]] = asyncio.Queue()
        self.pongs: list[pb.Envelope] = []
        self.on_message: Callable[[bytes], None] | None = None
        self.signs = False
        self._barriers: dict[str, asyncio.Future[pb.Envelope]] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in self.websocket:
                assert isinstance(message, bytes), f"the relay sent text: {message!r}"
                self._take(message)
        for barrier in self._barriers.values():
            if not barrier.done():
                barrier.set_exception(ConnectionError(f"closed: {self.close_state()}"))

    def _take(self, message: bytes) -> None:
        envelope = pb.Envelope.FromString(message)
        if envelope.HasField("pong"):
            self.pongs.append(envelope)
            barrier = self._barriers.pop(envelope.uid, None)
            if barrier is not None and not barrier.done():
                barrier.set_result(envelope)
        elif self.on_message is not None:
            self.on_message(message)
        else:
            self.inbox.put_nowait((message, envelope))

    async def send(self, envelope: pb.Envelope) -> pb.Envelope:
        """Send an envelope unchanged; return it."""
        await self.websocket.send(envelope.SerializeToString())
        return envelope

    async def send_bytes(self, payload: bytes) -> None:
        """Send one binary message of any content."""
        await self.websocket.send(payload)

    async def send_text(self, text: str) -> None:
        """Send a text message, which RMB forbids."""
        await self.websocket.send(text)

    async def request(
        self, destination: SessionKey | None, payload: bytes = b"", **fields: Any
    ) -> pb.Envelope:
        """Send a request; `fields` as for `envelopes.request`."""
        envelope = envelopes.request(self.key, destination, payload, **fields)
        if self.signs:
            challenge.sign(envelope, self.twin.signing_key)
        return await self.send(envelope)

    async def respond(self, request: pb.Envelope, payload: bytes = b"") -> pb.Envelope:
        """Send the signed answer to a request."""
        asker = request.source
        key = (asker.twin, asker.connection if asker.HasField("connection") else None)
        envelope = envelopes.response(self.key, key, payload)
        envelope.uid = request.uid
        challenge.sign(envelope, self.twin.signing_key)
        return await self.send(envelope)

    async def barrier(self, timeout_s: float = TIMEOUT_S) -> pb.Envelope:
        """Send an envelope ping and wait for its pong: all sent before is decided and stored."""
        ping = envelopes.ping(self.key)
        return await asyncio.wait_for(await self.start_barrier(ping), timeout_s)

    async def start_barrier(self, ping: pb.Envelope) -> asyncio.Future[pb.Envelope]:
        """Send `ping` now; return a future of its pong, or of a ConnectionError."""
        pong: asyncio.Future[pb.Envelope] = asyncio.get_running_loop().create_future()
        # A test that gives up on a cut connection must not cause "exception never retrieved".
        pong.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._barriers[ping.uid] = pong
        await self.send(ping)
        return pong

    async def receive(self, timeout_s: float = TIMEOUT_S) -> pb.Envelope:
        """Return the next envelope that is not a pong.

        Raises:
            ConnectionError: The relay closed, and no envelope was left.
            TimeoutError: No envelope arrived in time.
        """
        return (await self._next(timeout_s))[1]

    async def receive_bytes(self, timeout_s: float = TIMEOUT_S) -> bytes:
        """Do the same as `receive`, but return the bytes received."""
        return (await self._next(timeout_s))[0]

    async def _next(self, timeout_s: float) -> tuple[bytes, pb.Envelope]:
        if not self.inbox.empty():
            return self.inbox.get_nowait()
        getting = asyncio.ensure_future(self.inbox.get())
        try:
            await asyncio.wait(
                {getting, self._reader}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if getting.done():
                return getting.result()
            if not self.inbox.empty():
                return self.inbox.get_nowait()
            if self._reader.done():
                raise ConnectionError(f"closed: {self.close_state()}")
            raise TimeoutError(f"nothing for {self.key} within {timeout_s} s")
        finally:
            getting.cancel()

    async def receive_many(self, count: int, timeout_s: float = TIMEOUT_S) -> list[pb.Envelope]:
        """Return the next `count` envelopes, within `timeout_s` for all of them."""
        async with asyncio.timeout(timeout_s):
            return [await self.receive(timeout_s) for _ in range(count)]

    def close_state(self) -> tuple[int | None, str | None]:
        """Return code and reason of the closing handshake, as far as they are known."""
        return self.websocket.close_code, self.websocket.close_reason

    async def closed(self, timeout_s: float = TIMEOUT_S) -> tuple[int | None, str | None]:
        """Wait for the connection's end; return code and reason (1006, "" without close frame)."""
        await asyncio.wait_for(asyncio.shield(self._reader), timeout_s)
        await asyncio.wait_for(self.websocket.wait_closed(), timeout_s)
        return self.close_state()

    @property
    def open(self) -> bool:
        """Whether the connection has not ended, as far as the client knows."""
        return not self._reader.done()

    def stop_reading(self) -> None:
        """Leave received data in the kernel: TCP's window fills up."""
        self.websocket.transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo `stop_reading`."""
        self.websocket.transport.resume_reading()

    async def close(self, code: int = 1000) -> None:
        """Close the connection with a closing handshake."""
        await self.websocket.close(code)
        await self._reader

    async def abort(self) -> None:
        """End the TCP connection without a closing handshake."""
        if self.websocket.state is not State.CLOSED:
            self.websocket.transport.abort()
        await self._reader


async def connect(
    url: str, twin: Twin, sid: str | None = None, *, token: str | None = None, **options: Any
) -> RmbClient:
    """Sign in; the caller closes. `options` are passed to `websockets.connect`.

    Args:
        url: URL of the relay; with `stream_client.PREFIX` the session is carried by a stream.

    Raises:
        websockets.exceptions.InvalidStatus: The relay refused.
    """
    from tests.support import stream_client  # which makes an `RmbClient` of a stream

    if url.startswith(stream_client.PREFIX):
        plain = url.removeprefix(stream_client.PREFIX)
        return await stream_client.connect_alone(plain, twin, sid, token=token)
    options = {
        "compression": None,
        "max_size": None,
        "ping_interval": None,
        "proxy": None,
        "open_timeout": TIMEOUT_S,
        "close_timeout": 2,
        **options,
    }
    text = twin.token(sid) if token is None else token
    websocket = await websocket_connect(f"{url}/?{text}", **options)
    return RmbClient(websocket, twin, sid)


@contextlib.asynccontextmanager
async def signing_session(url: str, twin: Twin, sid: str | None = None) -> AsyncIterator[RmbClient]:
    """Open a session whose requests are signed."""
    async with session(url, twin, sid) as client:
        client.signs = True
        yield client


@contextlib.asynccontextmanager
async def session(
    url: str, twin: Twin, sid: str | None = None, **options: Any
) -> AsyncIterator[RmbClient]:
    """Open a signed-in session during the block."""
    client = await connect(url, twin, sid, **options)
    try:
        yield client
    finally:
        await client.abort()
