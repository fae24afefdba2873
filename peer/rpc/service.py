"""Registration of call handlers, and serving calls with them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from peer.mux.errors import StreamFailedError
from peer.mux.session import MuxSession
from peer.mux.stream import MuxStream
from peer.rpc.driving import (
    Params,
    fail,
    milliseconds,
    perform,
    perform_now,
    receive,
    wait,
    wait_s,
)
from proto.mux.frames import Half
from proto.rpc.call import Kind
from proto.rpc.caller import SENDS_ONE, BytesReceived
from proto.rpc.errors import ErrorCode, PublicError, RpcStreamError
from proto.rpc.handler import Aborted, Called, Handler, InputEnded, MessageReceived

logger = logging.getLogger(__name__)

call_metadata: ContextVar[Mapping[str, Any]] = ContextVar("call_metadata")
"""Metadata of the call that a handler serves, in addition to its parameters."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: Kind
    function: Callable[..., Any]
    timeout_ms: float | None


class Service:
    """The methods that one side serves."""

    def __init__(self, timeout_s: float | None = None) -> None:
        """
        Args:
            timeout_s: time-out for the first response of a call, in seconds; methods and callers
                may lower it.
        """
        self._entries: dict[str, _Entry] = {}
        self._timeout_ms = milliseconds(timeout_s)

    def handler(
        self, method: str, *, takes_stream: bool = False, timeout_s: float | None = None
    ) -> Callable[[Function], Function]:
        """Register the decorated function as the handler of a method.

        A coroutine function answers once, an async generator as often as it yields. It gets the
        parameters of the caller: a dict, or with `takes_stream` an async iterator of dicts.
        """

        def register(function: Function) -> Function:
            several = inspect.isasyncgenfunction(function)
            if takes_stream:
                kind = Kind.DUPLEX if several else Kind.CLIENT_STREAM
            else:
                kind = Kind.SERVER_STREAM if several else Kind.UNARY
            self._add(method, kind, function, timeout_s)
            return function

        return register

    def raw(self, method: str, *, timeout_s: float | None = None) -> Callable[[Function], Function]:
        """Register the decorated coroutine function as the handler of a method with bytes.

        It gets the parameters of the header and a `RawCall`.
        """

        def register(function: Function) -> Function:
            self._add(method, Kind.RAW, function, timeout_s)
            return function

        return register

    async def serve(self, stream: MuxStream) -> None:
        """Serve the call on a stream until it is over."""
        await _Serving(self._entries, stream, self._timeout_ms).run()

    def _add(
        self, method: str, kind: Kind, function: Callable[..., Any], timeout_s: float | None
    ) -> None:
        if method in self._entries:
            raise ValueError(f"method {method} has a handler already")
        self._entries[method] = _Entry(kind, function, milliseconds(timeout_s))


class RawCall:
    """The handler's end of a raw call, which exchanges bytes."""

    def __init__(self, serving: _Serving) -> None:
        self._serving = serving

    async def answer(self, result: Any) -> None:
        """Answer the header; bytes follow the answer."""
        self._serving.machine.respond(result)
        await self._serving.flush()

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self._serving.machine.send_bytes(data)
        await self._serving.flush()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await self._serving.next_input()) is not None:
            yield data


class _Serving:
    """A call that is being served."""

    def __init__(
        self, entries: dict[str, _Entry], stream: MuxStream, timeout_ms: float | None
    ) -> None:
        self.machine = Handler(MuxSession.now_ns(), timeout_ms)
        self._entries = entries
        self._stream = stream
        self._input: asyncio.Queue[Any]  # a message, bytes, None for the end
        self._work: asyncio.Task[None] | None = None
        self._writing: asyncio.Lock

    async def run(self) -> None:
        """Serve the call."""
        machine, stream = self.machine, self._stream
        is_open = True
        while is_open and not machine.is_over and (event := machine.next_event()) is None:
            is_open = await receive(machine, stream)
        if not machine.is_over and isinstance(event, Called):
            call_metadata.set(event.request.metadata)  # for this task, and for the task of the work
            entry = self._entries.get(event.request.method)
            if entry is None:
                text = f"there is no method {event.request.method!r:.100}"
                machine.fail(PublicError(text, ErrorCode.METHOD_NOT_FOUND))
            elif entry.kind in SENDS_ONE:
                machine.accept(entry.kind, entry.timeout_ms)
                await self._run_alone(entry, event.request.params)
            else:
                await self._run_beside(entry, event.request.params)
                return
        perform_now(machine, stream)
        stream.session.drain_later(stream)

    async def _run_alone(self, entry: _Entry, params: Params) -> None:
        """Run the handler of a call that has no more input: data that arrives is not read."""
        machine, loop, task = self.machine, asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        was_aborted = False

        def abort() -> None:
            nonlocal was_aborted
            if machine.is_over and not was_aborted:
                was_aborted = True
                task.cancel()

        def stream_failed(half: Half, error: StreamFailedError) -> None:
            fail(machine, half, error)
            abort()

        def time_came() -> None:
            machine.handle_timer(MuxSession.now_ns())
            abort()

        delay_s = wait_s(machine)
        timer = None if delay_s is None else loop.call_later(delay_s, time_came)
        self._stream.call_on_failure(stream_failed)
        try:
            await self._run(entry, params)
        except asyncio.CancelledError:
            if not was_aborted:
                raise
        finally:
            self._stream.call_on_failure(None)
            if timer is not None:
                timer.cancel()
            if was_aborted:
                task.uncancel()

    async def _run_beside(self, entry: _Entry, params: Params) -> None:
        """Read until the call is over, while the handler runs concurrently."""
        is_open = True
        self._input, self._writing = asyncio.Queue(1), asyncio.Lock()
        self.machine.accept(entry.kind, entry.timeout_ms)
        self._work = asyncio.create_task(self._run(entry, params))
        try:
            while (event := self.machine.next_event()) is not None:
                await self._take(event)
            while is_open or (self._work is not None and not self._work.done()):
                if is_open:
                    is_open = await receive(self.machine, self._stream)
                elif self._work is not None:
                    await wait(self.machine, self._stream, self._work)
                while (event := self.machine.next_event()) is not None:
                    await self._take(event)
                await self.flush()
        finally:
            if self._work is not None:
                self._work.cancel()
                await asyncio.gather(self._work, return_exceptions=True)

    async def flush(self) -> None:
        """Perform the actions of the machine; concurrent writers wait for each other."""
        if self._work is None:
            await perform(self.machine, self._stream)
            return
        async with self._writing:
            await perform(self.machine, self._stream)

    async def next_input(self) -> Any:
        """Return the next message or bytes of the caller; None at the end."""
        return await self._input.get()

    async def _take(self, event: Any) -> None:
        match event:
            case MessageReceived(params):
                await self._give(params)
            case BytesReceived(data):
                await self._give(data)
            case InputEnded():
                await self._give(None)
            case Aborted():
                if self._work is not None:
                    self._work.cancel()

    async def _give(self, item: Any) -> None:
        """Pass input to the handler, at its pace; discard it once the handler is done."""
        assert self._work is not None
        if not self._input.full():
            self._input.put_nowait(item)
            return
        putting = asyncio.ensure_future(self._input.put(item))
        failing = asyncio.ensure_future(self._stream.failed())
        first = (putting, failing, self._work)
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        for each in (putting, failing):
            each.cancel()

    async def _run(self, entry: _Entry, params: Params) -> None:
        function = entry.function
        try:
            match entry.kind:
                case Kind.UNARY:
                    self.machine.respond(await function(params))
                case Kind.CLIENT_STREAM:
                    self.machine.respond(await function(self._messages()))
                case Kind.SERVER_STREAM:
                    await self._respond_all(function(params))
                case Kind.DUPLEX:
                    await self._respond_all(function(self._messages()))
                case Kind.RAW:
                    await function(params, RawCall(self))
            if self._work is None and self._stream.is_at_end:
                self.machine.receive_end()
            self.machine.end()
        except asyncio.CancelledError:
            self.machine.fail(RpcStreamError("the call was aborted"))
            raise
        except PublicError as error:
            self.machine.fail(error)
        except Exception as error:
            logger.exception("a handler failed")
            self.machine.fail(error)
        await self.flush()

    async def _respond_all(self, results: AsyncIterator[Any]) -> None:
        async for result in results:
            if self.machine.is_over:
                return
            self.machine.respond(result)
            await self.flush()

    async def _messages(self) -> AsyncIterator[Params]:
        while (params := await self.next_input()) is not None:
            yield params
