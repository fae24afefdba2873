"""The client for programs without an event loop: Django views, Celery tasks, scripts.

The calls of `SyncClient` block; behind them a `Client` lives on an event loop of its own, in a
thread of its own, one for all threads of the process. It begins with the first use and is begun
anew in a process that was forked since, with a session id of its own. So one `SyncClient` at the
top of a module serves a pre-forking server and every worker it has.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
import warnings
import weakref
from collections.abc import Collection, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from peer.client.bodies import Reply
from peer.client.client import Client, Destination
from peer.client.serving import ClientHandler
from peer.errors import CallError
from peer.modules.api import Request
from peer.twins import Twin

HANDLER_THREADS: Final = 16
"""Plain functions that `serve` runs at a time."""

CLOSE_S: Final = 10.0
"""How long closing may take."""

_T = TypeVar("_T")


class _Running:
    """A client on its loop, in one process."""

    def __init__(self, options: Mapping[str, Any], handlers: Mapping[str, ClientHandler]) -> None:
        self._handler_threads = ThreadPoolExecutor(HANDLER_THREADS, "rmb-handler")
        options = {**options, "handlers": self._served(handlers)}
        self._began: Future[Client] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._thread = threading.Thread(
            target=self._run, args=(options,), name="rmb-client", daemon=True
        )
        self._thread.start()
        self.client = self._began.result()

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        assert self._loop is not None  # it began
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def leave(self) -> None:
        """Have it end by itself."""
        if self._loop is not None and self._leave is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._leave.set)
        self._handler_threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self.leave()
        self._thread.join(CLOSE_S)

    async def serve(self, handlers: Mapping[str, ClientHandler]) -> None:
        self.client.serve(self._served(handlers))

    def _served(self, handlers: Mapping[str, ClientHandler]) -> dict[str, ClientHandler]:
        return {
            command: each if inspect.iscoroutinefunction(each) else self._in_thread(each)
            for command, each in handlers.items()
        }

    def _in_thread(self, handler: ClientHandler) -> ClientHandler:
        async def served(request: Request) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._handler_threads, handler, request)

        return served

    def _run(self, options: Mapping[str, Any]) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._live(options))
        except BaseException as error:
            if not self._began.done():
                self._began.set_exception(error)

    async def _live(self, options: Mapping[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        async with Client(**options) as client:
            self._began.set_result(client)
            await self._leave.wait()


class SyncClient:
    """A `Client` whose calls block; for any number of threads.

        rmb = SyncClient(secret, ["wss://relay.example"], "https://relay.example")

        def view(request):
            return JsonResponse(rmb.call(7, "calc.add", [1, 2], timeout=5).json())

    Args:
        options: those of `Client`, in the same order and with the same names.

    Nothing happens before the first use; from then on every method may raise what opening a
    `Client` raises. After `close` every one raises RuntimeError. What was not closed is when the
    process ends; one that is dropped before is a ResourceWarning.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._running: _Running | None = None
        self._closed = False
        self._options = inspect.signature(Client).bind(*args, **options).arguments
        Client(**self._options)  # says what is wrong with them here and now
        self._lock = threading.Lock()
        _clients.add(self)
        self._handlers: dict[str, ClientHandler] = dict(self._options.pop("handlers", None) or {})

    def __enter__(self) -> Self:
        """Sign in."""
        self._get()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, twin: Destination, command: str, body: Any = None, **options: Any) -> Reply:
        """Ask a twin and wait for its answer: see `Client.call`."""
        return self.begin_call(twin, command, body, **options).result()

    def begin_call(
        self, twin: Destination, command: str, body: Any = None, **options: Any
    ) -> Future[Reply]:
        """Ask a twin; the answer comes with the future.

        Many calls at once are begun first and waited for then. `Future.cancel` stops waiting. In
        a coroutine, `await asyncio.wrap_future(...)` waits without blocking the loop.
        """
        running = self._get()
        return running.submit(running.client.call(twin, command, body, **options))

    def notify(self, twin: Destination, command: str, body: Any = None, **options: Any) -> str:
        """Tell a twin something: see `Client.notify`."""
        running = self._get()
        return running.submit(running.client.notify(twin, command, body, **options)).result()

    def ask(
        self, twins: Collection[Destination], command: str, body: Any = None, **options: Any
    ) -> list[Reply | CallError]:
        """Ask several twins at once; returns when each has answered or the time is over.

        See `Client.ask`; twins that did not answer are missing.
        """
        running = self._get()

        async def collect() -> list[Reply | CallError]:
            found: list[Reply | CallError] = []
            async with running.client.ask(twins, command, body, **options) as answers:
                async for answer in answers:
                    found.append(answer)
                    if len(found) == len(twins):
                        break
            return found

        return running.submit(collect()).result()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the relay has decided everything that was sent: see `Client.flush`."""
        running = self._get()
        running.submit(running.client.flush(timeout)).result()

    def serve(self, handlers: Mapping[str, ClientHandler]) -> None:
        """Answer these commands from now on: see `Client.serve`.

        Plain functions run in threads, so they may block; coroutine functions run on the client's
        loop.

        Raises:
            ValueError: a command has a handler already.
        """
        with self._lock:
            taken = self._handlers.keys() & handlers.keys()
            if taken:
                raise ValueError(f"command {min(taken)!r} has a handler already")
            self._handlers.update(handlers)
            running = self._running
        if running is not None:
            running.submit(running.serve(handlers)).result()

    def twin(self, twin: int) -> Twin | None:
        """Look a twin up, None if there is none: see `Client.twin`."""
        running = self._get()
        return running.submit(running.client.twin(twin)).result()

    @property
    def connected(self) -> bool:
        """Whether the client is at work in this process and a relay is connected."""
        running = self._running
        return running is not None and running.client.connected

    def close(self) -> None:
        """End what is under way and sign out; the second time nothing happens."""
        with self._lock:
            running, self._running, self._closed = self._running, None, True
        if running is not None:
            running.close()

    def forked(self) -> None:
        """Called in a process that was just forked: the thread is not there, and the connection is
        the other process'."""
        self._lock = threading.Lock()
        self._running = None

    def __del__(self) -> None:
        running = self._running
        if running is not None:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=1)
            running.leave()

    def _get(self) -> _Running:
        running = self._running
        if running is not None:
            return running
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed: make a new one")
            if self._running is None:
                self._running = _Running(self._options, self._handlers)
            return self._running


_clients: weakref.WeakSet[SyncClient] = weakref.WeakSet()


def _forked() -> None:
    for client in _clients:
        client.forked()


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_forked)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:  # Windows
        return None
    return uvloop.new_event_loop
