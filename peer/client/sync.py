"""The client for programs without an event loop: Django views, Celery tasks, scripts.

The calls of `SyncClient` block. Behind them a `Client` runs on an event loop in a thread of its
own, one for all threads of the process. It starts at the first use, and starts again in a process
that was forked since, with a session id of its own. So one `SyncClient` at the top of a module
serves a pre-forking server and all its workers.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import threading
import time
import warnings
import weakref
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from peer.client.bodies import Reply
from peer.client.bounds import TIMEOUT_S
from peer.client.client import Client, Destination, check_timeout, to_address
from peer.client.running import CLOSED, Running
from peer.client.serving import ClientHandler
from peer.errors import CallError, PeerError, RelayError, RemoteError
from peer.twins import Twin

_STILL_S: Final = 0.01
"""Minimum time left for a call when the client has just started, in seconds."""


class SyncClient:
    """A `Client` whose calls block; usable by any number of threads.

        rmb = SyncClient(secret, ["wss://relay.example"], "https://relay.example")

        def view(request):
            return JsonResponse(rmb.call(7, "calc.add", [1, 2], timeout=5).json())

    Args:
        options: those of `Client`, in the same order and with the same names.

    The client starts at the first use; from then on every method may raise the exceptions of
    opening a `Client`. All threads wait for the same start, each within its own time-out. A
    coroutine handler runs on the client's loop, and gets a RuntimeError where it would wait for
    that loop itself; plain functions may use every method. After `close` every method raises
    RuntimeError. A client that was not closed is closed when the process ends; one that is deleted
    before causes a ResourceWarning.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._running: Running | None = None
        self._closed = False
        self._options = inspect.signature(Client).bind(*args, **options).arguments
        Client(**self._options)  # raises for invalid options here and now
        self._lock = threading.Lock()
        _clients.add(self)
        self._handlers: dict[str, ClientHandler] = dict(self._options.pop("handlers", None) or {})

    def __enter__(self) -> Self:
        """Sign in."""
        self._get(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, twin: Destination, command: str, body: Any = None, **options: Any) -> Reply:
        """Send a request to a twin and wait for its answer: see `Client.call`."""
        running, options = self._within(options)
        return running.do(running.client.call(twin, command, body, **options))

    def begin_call(
        self, twin: Destination, command: str, body: Any = None, **options: Any
    ) -> Future[Reply]:
        """Send a request to a twin; return a future of the answer.

        To run many calls at once, begin all of them and then wait. `Future.cancel` stops waiting.
        In a coroutine, `await asyncio.wrap_future(...)` waits without blocking the loop.
        """
        running, options = self._within(options, blocks=False)
        return running.submit(running.client.call(twin, command, body, **options))

    def notify(self, twin: Destination, command: str, body: Any = None, **options: Any) -> str:
        """Send a notification to a twin: see `Client.notify`."""
        running, options = self._within(options)
        return running.do(running.client.notify(twin, command, body, **options))

    def ask(
        self, twins: Collection[Destination], command: str, body: Any = None, **options: Any
    ) -> list[Reply | CallError]:
        """Send a request to several twins; return when each has answered or the time is over.

        See `Client.ask`; twins that did not answer are missing.
        """
        asked = {to_address(each) for each in twins}
        running, options = self._within(options)

        async def collect() -> list[Reply | CallError]:
            found: list[Reply | CallError] = []
            heard: set[object] = set()  # a twin may answer more than once
            async with running.client.ask(asked, command, body, **options) as answers:
                async for answer in answers:
                    found.append(answer)
                    if isinstance(answer, Reply | RemoteError):
                        heard.add(answer.source)
                    elif isinstance(answer, RelayError):  # it does not say for which twin
                        heard.add(answer)
                    if len(heard) >= len(asked):
                        break
            return found

        return running.do(collect())

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the relay has decided all messages sent: see `Client.flush`."""
        running, options = self._within({"timeout": timeout})
        running.do(running.client.flush(**options))

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
        if running is None:
            return
        self._may_wait(running)
        with contextlib.suppress(PeerError):  # the next start includes these handlers
            running.wait(None)
        if running.begun:
            running.do(running.serve(handlers))

    def twin(self, twin: int) -> Twin | None:
        """Look up a twin; return None if it does not exist: see `Client.twin`."""
        running = self._get(None)
        return running.do(running.client.twin(twin))

    @property
    def connected(self) -> bool:
        """Whether the client runs in this process and a relay is connected."""
        running = self._running
        return running is not None and running.begun and running.client.connected

    def close(self) -> None:
        """End everything in progress and sign out; further calls have no effect."""
        with self._lock:
            running, self._running, self._closed = self._running, None, True
        if running is not None:
            running.close()

    def forked(self) -> None:
        """Reset the client in a forked process.

        The child process has no thread of the client, and the connection belongs to the parent.
        """
        self._lock = threading.Lock()
        self._running = None

    def __del__(self) -> None:
        running = self._running
        if running is not None and not running.failed:  # else nothing is open
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=1)
            running.leave()

    def _within(
        self, options: Mapping[str, Any], *, blocks: bool = True
    ) -> tuple[Running, dict[str, Any]]:
        """Return the running client, and the options with the time left once it has started."""
        timeout = options.get("timeout")
        if timeout is None:
            timeout = self._options.get("timeout", TIMEOUT_S)
        check_timeout(timeout)
        running = self._running
        if running is not None and running.begun:
            if blocks:
                self._may_wait(running)
            return running, dict(options)
        until = time.monotonic() + timeout
        running = self._get(timeout)
        return running, {**options, "timeout": max(until - time.monotonic(), _STILL_S)}

    def _get(self, timeout_s: float | None) -> Running:
        """Return the running client; start it if needed, once for all waiting threads."""
        running = self._running
        if running is None or running.failed:
            with self._lock:
                if self._closed:
                    raise RuntimeError(CLOSED)
                running = self._running
                if running is None or running.failed:
                    running = self._running = Running(self._options, self._handlers)
                    self._start(running)
        self._may_wait(running)
        running.wait(timeout_s)
        return running

    def _start(self, running: Running) -> None:
        try:
            running.start()
        except BaseException:  # raised by a signal, such as Celery's soft time limit
            if not running.started:  # else it continues, for the next caller
                self._running = None
                running.leave()
            raise

    def _may_wait(self, running: Running) -> None:
        if running.is_this_thread:
            raise RuntimeError(
                "a coroutine on the client's loop must not wait for it: use a plain function"
            )


_clients: weakref.WeakSet[SyncClient] = weakref.WeakSet()


def _forked() -> None:
    for client in _clients:
        client.forked()


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)
