"""RMB sessions on streams of one connection, with the interface of `tests.support.rmb_client`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

from websockets.asyncio.client import ClientConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.http11 import Response
from websockets.protocol import State

from peer.mux import MuxBounds, MuxSession, MuxStream, StreamFailedError, connect
from proto.mux.messages import MessageReader, framed
from proto.rmb.bounds import MAX_MESSAGE_BYTES
from proto.rmb.reasons import SESSIONS
from tests.support.identities import Twin
from tests.support.rmb_client import RmbClient

PREFIX = "streams+"
"""Prefix of the URL of a relay, so that each session is the only stream of a connection."""
BOUNDS = MuxBounds(stream_bytes=64 * 1024)
TEXTS = {end.close_code: end.text for end in SESSIONS.values()}


class StreamWebsocket:
    """A stream with the interface of a websocket that `RmbClient` uses; also its transport."""

    def __init__(self, stream: MuxStream, reader: MessageReader, early: list[bytes]) -> None:
        self.stream = stream
        self.transport = self
        self.state = State.OPEN
        self.close_code: int | None = None
        self.close_reason: str | None = None
        self._reader = reader
        self._early = early
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._ended = asyncio.Event()
        self.connection = contextlib.AsyncExitStack()  # connection that ends with the stream

    async def send(self, message: bytes) -> None:
        try:
            await self.stream.write(framed([message]))
        except StreamFailedError:
            raise ConnectionClosedError(None, None) from None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for message in self._early:
            yield message
        try:
            while True:
                await self._may_read.wait()
                data = await self.stream.read()
                if not data:
                    self._end(1000)
                    return
                for message in self._reader.receive_data(data):
                    yield message
        except StreamFailedError as error:
            self._end(error.code or 1006)
        finally:
            await self.connection.aclose()

    async def wait_closed(self) -> None:
        await self._ended.wait()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    async def close(self, code: int = 1000) -> None:
        with contextlib.suppress(StreamFailedError):
            await self.stream.end()

    def abort(self) -> None:
        self._may_read.set()
        self.stream.abort()
        self.stream.cancel()
        self._end(1006)

    def _end(self, code: int) -> None:
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self.close_code, self.close_reason = code, TEXTS.get(code, "")
            self._ended.set()


@contextlib.asynccontextmanager
async def connection(url: str, **options: Any) -> AsyncIterator[MuxSession]:
    """Open a connection for streams during the block."""
    async with connect(f"{url}/streams", bounds=BOUNDS, **options) as mux:
        yield mux


async def sign_in(
    mux: MuxSession, twin: Twin, sid: str | None = None, *, token: str | None = None
) -> RmbClient:
    """Sign in on a new stream.

    Raises:
        InvalidStatus: The relay refused.
    """
    stream = await mux.open_stream()
    text = twin.token(sid) if token is None else token
    await stream.write(framed([text.encode()]))
    reader = MessageReader(MAX_MESSAGE_BYTES)
    messages: list[bytes] = []
    while not messages:
        data = await stream.read()
        if not data:
            raise ConnectionError("the relay ended the stream without an answer")
        messages = reader.receive_data(data)
    answer = messages[0].decode()
    if answer != "101":
        stream.abort()
        status, _, text = answer.partition(" ")
        raise InvalidStatus(Response(int(status), "", Headers(), text.encode()))
    websocket = cast(ClientConnection, StreamWebsocket(stream, reader, messages[1:]))
    return RmbClient(websocket, twin, sid)


@contextlib.asynccontextmanager
async def session(
    mux: MuxSession, twin: Twin, sid: str | None = None, *, token: str | None = None
) -> AsyncIterator[RmbClient]:
    """Open a signed-in session during the block."""
    client = await sign_in(mux, twin, sid, token=token)
    try:
        yield client
    finally:
        await client.abort()


async def connect_alone(
    url: str, twin: Twin, sid: str | None, *, token: str | None = None
) -> RmbClient:
    """Sign in on the only stream of a connection; the connection ends with the stream."""
    stack = contextlib.AsyncExitStack()
    try:
        mux = await stack.enter_async_context(connection(url))
        client = await sign_in(mux, twin, sid, token=token)
    except BaseException:
        await stack.aclose()
        raise
    cast(StreamWebsocket, client.websocket).connection = stack
    return client
