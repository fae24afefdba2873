"""A client on an event loop in a thread of its own, which `SyncClient` uses.

submit(work)  --any thread-->  loop of the thread  --> future
leave()       ends the start, or the client; work submitted by then ends with it
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
"""Maximum number of plain functions given to `serve` that run at a time."""

CLOSE_S: Final = 10.0
"""Time-out for closing, in seconds."""

CLOSED: Final = "the client is closed: make a new one"

_T = TypeVar("_T")


class Running:
    """A client on its event loop, in one process.

    Args:
        options: options of the client.
        handlers: handlers that `serve` was given before.

    Attributes:
        client: the client; exists once it has started.
    """

    client: Client

    def __init__(self, options: Mapping[str, Any], handlers: Mapping[str, ClientHandler]) -> None:
        self._handler_threads = ThreadPoolExecutor(HANDLER_THREADS, "rmb-handler")
        options = {**options, "handlers": self._served(handlers)}
        self._began: Future[None] = Future()
        # Reentrant: garbage collection may call `leave` while the same thread holds the lock.
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
        """Start the thread; `wait` waits until the client has started."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether the thread runs or has run."""
        return self._thread.ident is not None

    @property
    def begun(self) -> bool:
        """Whether the client has started, even if it has ended since."""
        return self._began.done() and self._began.exception() is None

    @property
    def failed(self) -> bool:
        """Whether the client failed to start."""
        return self._began.done() and self._began.exception() is not None

    @property
    def is_this_thread(self) -> bool:
        """Whether the calling thread is that of the event loop, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def wait(self, timeout_s: float | None) -> None:
        """Wait until the client has started; any number of threads may wait.

        Raises:
            ExpiredError: it has not started in time; the start continues.
        """
        try:
            self._began.result(timeout_s)
        except TimeoutError:
            if timeout_s is None or self._began.done():
                raise  # the start itself raised it
            text = f"the client was not signed in within {seconds(timeout_s)}"
            raise ExpiredError(text) from None

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run a coroutine on the event loop.

        Raises:
            RuntimeError: the client has ended.
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
        """Run a coroutine on the event loop and wait for it; an interrupt cancels it.

        Raises:
            RuntimeError: the client has ended.
        """
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def leave(self) -> None:
        """Tell the client to end, without waiting."""
        with self._lock:
            self._leaving = True
            if self._loop is not None and not self._ended:
                self._loop.call_soon_threadsafe(self._depart)
        self._handler_threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the client, and wait until it has ended."""
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
            except KeyboardInterrupt as error:  # raised by the handler: it would end the loop
                raise RuntimeError("the handler raised KeyboardInterrupt") from error

        return served

    # In the thread.

    def _run(self, options: Mapping[str, Any]) -> None:
        why: BaseException = RuntimeError(CLOSED)
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._live(options))
        except asyncio.CancelledError:
            pass  # `leave` was called before it had started
        except BaseException as error:
            why = error
        with self._lock:
            self._ended = True
            left = list(self._submitted.items())
        # Work that was submitted too late for the loop: callers wait for it.
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
        assert self._leave is not None and self._main is not None  # `_live` has set both
        if self._began.done():
            self._leave.set()
        else:
            self._main.cancel()
