"""A client on an event loop of its own, in a thread of its own: what `SyncClient` drives.

submit(work)  --any thread-->  loop of the thread  --> future
leave()       ends the beginning, or the client; what was submitted by then ends with it
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from peer.client.client import Client
from peer.client.serving import ClientHandler
from peer.errors import ExpiredError, seconds
from peer.loops import loop_factory
from peer.modules.api import Request

HANDLER_THREADS: Final = 16
"""Plain functions that `serve` runs at a time."""

CLOSE_S: Final = 10.0
"""How long closing may take."""

CLOSED: Final = "the client is closed: make a new one"

_T = TypeVar("_T")


class Running:
    """A client on its loop, in one process.

    Args:
        options: of the client.
        handlers: those that `serve` was given before.

    Attributes:
        client: there once it has begun.
    """

    client: Client

    def __init__(self, options: Mapping[str, Any], handlers: Mapping[str, ClientHandler]) -> None:
        self._handler_threads = ThreadPoolExecutor(HANDLER_THREADS, "rmb-handler")
        options = {**options, "handlers": self._served(handlers)}
        self._began: Future[None] = Future()
        # Reentrant: garbage may be collected, and `leave` called, while the same thread holds it.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._leave: asyncio.Event | None = None
        self._leaving = False
        self._ended = False
        self._submitted: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        self._thread = threading.Thread(
            target=self._run, args=(options,), name="rmb-client", daemon=True
        )

    def start(self) -> None:
        """Begin; `wait` tells when it has begun."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether its thread is at work, or was."""
        return self._thread.ident is not None

    @property
    def begun(self) -> bool:
        """Whether the client is there, or was."""
        return self._began.done() and self._began.exception() is None

    @property
    def failed(self) -> bool:
        """Whether it did not come to begin."""
        return self._began.done() and self._began.exception() is not None

    @property
    def is_this_thread(self) -> bool:
        """Whether the loop is that of the thread that asks: it must not wait for itself."""
        return threading.current_thread() is self._thread

    def wait(self, timeout_s: float | None) -> None:
        """Wait until it has begun; any number of threads may.

        Raises:
            ExpiredError: it has not in time, and goes on.
        """
        try:
            self._began.result(timeout_s)
        except TimeoutError:
            if timeout_s is None or self._began.done():
                raise  # it is the beginning's own
            text = f"the client was not signed in within {seconds(timeout_s)}"
            raise ExpiredError(text) from None

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Have the loop do something.

        Raises:
            RuntimeError: it has ended.
        """
        with self._lock:
            if self._ended or self._loop is None:
                work.close()
                raise RuntimeError(CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._submitted[future] = work
        future.add_done_callback(lambda done: self._submitted.pop(done, None))
        return future

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Have the loop do something, and wait for it; who is interrupted ends it.

        Raises:
            RuntimeError: it has ended.
        """
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def leave(self) -> None:
        """Have it end by itself."""
        with self._lock:
            self._leaving = True
            if self._loop is not None and not self._ended:
                self._loop.call_soon_threadsafe(self._depart)
        self._handler_threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End it, and wait until it has."""
        self.leave()
        if self.started and not self.is_this_thread:
            self._thread.join(CLOSE_S)

    async def serve(self, handlers: Mapping[str, ClientHandler]) -> None:
        """Answer these commands from now on."""
        self.client.serve(self._served(handlers))

    def _served(self, handlers: Mapping[str, ClientHandler]) -> dict[str, ClientHandler]:
        return {
            command: each if inspect.iscoroutinefunction(each) else self._in_thread(each)
            for command, each in handlers.items()
        }

    def _in_thread(self, handler: ClientHandler) -> ClientHandler:
        async def served(request: Request) -> Any:
            loop = asyncio.get_running_loop()
            try:
                return await loop.run_in_executor(self._handler_threads, handler, request)
            except KeyboardInterrupt as error:  # the handler's own: the loop would end with it
                raise RuntimeError("the handler raised KeyboardInterrupt") from error

        return served

    # In the thread.

    def _run(self, options: Mapping[str, Any]) -> None:
        why: BaseException = RuntimeError(CLOSED)
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._live(options))
        except asyncio.CancelledError:
            pass  # it was left before it had begun
        except BaseException as error:
            why = error
        with self._lock:
            self._ended = True
            left = list(self._submitted.items())
        # What came too late for the loop: somebody waits for it.
        for future, work in left:
            work.close()
            with contextlib.suppress(InvalidStateError):
                future.set_exception(RuntimeError(CLOSED))
        if not self._began.done():
            self._began.set_exception(why)
        self._handler_threads.shutdown(wait=False, cancel_futures=True)

    async def _live(self, options: Mapping[str, Any]) -> None:
        self._leave = asyncio.Event()
        self._main = asyncio.current_task()
        with self._lock:
            if self._leaving:
                return
            self._loop = asyncio.get_running_loop()
        async with Client(**options) as client:
            self.client = client
            self._began.set_result(None)
            await self._leave.wait()

    def _depart(self) -> None:
        assert self._leave is not None and self._main is not None  # it lives
        if self._began.done():
            self._leave.set()
        else:
            self._main.cancel()
