"""One side of a connection, which calls the other side and may be called."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any, Final

from peer.mux.session import MuxSession
from peer.mux.stream import MuxStream
from peer.rpc.driving import Params, milliseconds, perform, perform_now, receive
from peer.rpc.service import Service
from proto.rpc.call import Kind
from proto.rpc.caller import BytesReceived, CallEnded, Caller, CallFailed, ResultReceived

NOTHING: Final = object()


class RpcPeer:
    """Calls methods of the other side.

    Attributes:
        session: session of the streams.
    """

    def __init__(self, session: MuxSession) -> None:
        self.session = session

    async def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        metadata: Params | None = None,
    ) -> Any:
        """Call a method that answers once, and return its result.

        Args:
            method: method of the other side.
            params: parameters of the method.
            timeout_s: seconds to wait for the answer, also sent to the other side. None: no limit.
            metadata: metadata of the call.

        Raises:
            RpcRemoteError: the handler of the other side failed.
            RpcTimeoutError: no answer came in time.
            RpcStreamError: the stream of the call ended.
            StreamFailedError, ConnectionEndedError: no stream could be opened.
        """
        caller = self._caller(Kind.UNARY, method, timeout_s, metadata)
        caller.send(params or {})
        stream = await self.session.open_stream()
        try:
            perform_now(caller, stream)
            while (event := caller.next_event()) is None:
                await receive(caller, stream)
        finally:
            self._leave(caller, stream)
        if isinstance(event, ResultReceived):
            return event.result
        assert isinstance(event, CallFailed)
        raise event.error

    async def stream(
        self,
        method: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
        metadata: Params | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Call a method that answers many times, and yield its results.

        Args, Raises: as for `call`; the time-out is for the first result.
        """
        async with self._calling(Kind.SERVER_STREAM, method, timeout_s, metadata) as calling:
            await calling.send(params or {})
            async for result in calling:
                yield result

    async def send(
        self,
        method: str,
        messages: AsyncIterable[Params],
        *,
        timeout_s: float | None = None,
        metadata: Params | None = None,
    ) -> Any:
        """Call a method that accepts many messages, and return its result.

        Args, Raises: as for `call`; at least one message has to be sent.
        """
        async with (
            self._calling(Kind.CLIENT_STREAM, method, timeout_s, metadata) as calling,
            calling.sending(messages),
        ):
            return await calling.only_result()

    async def duplex(
        self,
        method: str,
        messages: AsyncIterable[Params],
        *,
        timeout_s: float | None = None,
        metadata: Params | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Call a method that accepts and returns many messages, and yield its results.

        Args, Raises: as for `call`; at least one message has to be sent.
        """
        async with (
            self._calling(Kind.DUPLEX, method, timeout_s, metadata) as calling,
            calling.sending(messages),
        ):
            async for result in calling:
                yield result

    @contextlib.asynccontextmanager
    async def raw(
        self, method: str, params: Params | None = None, *, timeout_s: float | None = None
    ) -> AsyncIterator[RawCalling]:
        """Call a method with bytes, for the duration of the block; `answer` is its first answer.

        Raises: as for `call`.
        """
        async with self._calling(Kind.RAW, method, timeout_s, None) as calling:
            await calling.send(params or {})
            yield RawCalling(calling, await calling.next_result())

    @contextlib.asynccontextmanager
    async def _calling(
        self, kind: Kind, method: str, timeout_s: float | None, metadata: Params | None
    ) -> AsyncIterator[_Calling]:
        caller = self._caller(kind, method, timeout_s, metadata)
        stream = await self.session.open_stream()
        calling = _Calling(caller, stream)
        try:
            yield calling
        finally:
            if caller.is_over:
                await asyncio.shield(calling.flush())
            self._leave(caller, stream)

    def _caller(
        self, kind: Kind, method: str, timeout_s: float | None, metadata: Params | None
    ) -> Caller:
        now_ns, timeout_ms = self.session.now_ns(), milliseconds(timeout_s)
        return Caller(kind, method, now_ns, metadata=metadata, timeout_ms=timeout_ms)

    def _leave(self, caller: Caller, stream: MuxStream) -> None:
        """End the stream of a call."""
        if caller.is_over:
            perform_now(caller, stream)
            self.session.drain_later(stream)
        else:
            stream.cancel()
            stream.abort()


class _Calling:
    """A call in progress."""

    def __init__(self, caller: Caller, stream: MuxStream) -> None:
        self._caller = caller
        self._stream = stream
        self._is_open = True
        self._writing = asyncio.Lock()

    async def send(self, params: Params) -> None:
        self._caller.send(params)
        await self.flush()

    @contextlib.asynccontextmanager
    async def sending(self, messages: AsyncIterable[Params]) -> AsyncIterator[None]:
        """Send messages concurrently with the block, until they or the block end."""
        task = asyncio.ensure_future(self._send_all(messages))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_all(self, messages: AsyncIterable[Params]) -> None:
        async for params in messages:
            if self._caller.is_over:
                return
            await self.send(params)
        self._caller.end()
        await self.flush()

    async def send_bytes(self, data: bytes) -> None:
        self._caller.send_bytes(data)
        await self.flush()

    async def end(self) -> None:
        self._caller.end()
        await self.flush()

    async def flush(self) -> None:
        async with self._writing:
            await perform(self._caller, self._stream)

    async def next_result(self) -> Any:
        """Return the next result or bytes; `NOTHING` at the end."""
        while True:
            event = self._caller.next_event()
            match event:
                case None:
                    self._is_open = self._is_open and await receive(self._caller, self._stream)
                case ResultReceived(result):
                    return result
                case BytesReceived(data):
                    return data
                case CallEnded():
                    return NOTHING
                case CallFailed(error):
                    raise error

    async def only_result(self) -> Any:
        """Return the result, after the end of the call."""
        result = await self.next_result()
        await self.next_result()
        return result

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (result := await self.next_result()) is not NOTHING:
            yield result


class RawCalling:
    """The caller's end of a raw call, which exchanges bytes.

    Attributes:
        answer: answer of the handler to the header.
    """

    def __init__(self, calling: _Calling, answer: Any) -> None:
        self.answer = answer
        self._calling = calling

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        await self._calling.send_bytes(data)

    async def end(self) -> None:
        """End sending."""
        await self._calling.end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._calling:
            yield data


@contextlib.asynccontextmanager
async def connect(
    url: str, service: Service | None = None, **options: Any
) -> AsyncIterator[RpcPeer]:
    """Connect for the duration of the block; the other side may call the methods of the service.

    Args, Raises: as for `peer.mux.connect`.
    """
    # Imported here: it imports a websocket library, which servers do not need.
    from peer.mux import client

    handler = service.serve if service is not None else None
    async with client.connect(url, handler, **options) as session:
        yield RpcPeer(session)
