"""Handling of the requests of other twins, with a limit on how many run at a time.

Each request is a task of its own, which ends at the request's deadline. At most `MAX_RUNNING` tasks
run. Further requests are held, and while these are too many or too large (`full`), the session
reads no more messages.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from peer.client.bodies import encode_answer
from peer.client.bounds import HANDLERS_TIMEOUT_S, MAX_HELD, MAX_REQUEST_BYTES, MAX_RUNNING
from peer.modules.api import (
    MAX_LOGGED_CHARACTERS,
    Answer,
    CommandError,
    Modules,
    Request,
    Response,
    answer,
)
from proto.rmb.errors import CODE_OTHER

logger = logging.getLogger(__name__)

SWEEP_S: Final = 1.0
"""Seconds between searches for handlers whose requests have expired."""

ClientHandler: TypeAlias = Callable[[Request], Any]
"""Function or coroutine function that answers a request.

Bytes, a Response or None are the answer itself, every other value is sent as JSON. It raises
CommandError for an error."""

ANY_COMMAND: Final = "*"
"""Key of the handler that answers commands that have no other handler."""

Respond: TypeAlias = Callable[[Request, Response | CommandError], Awaitable[None]]


class _Taken(NamedTuple):
    request: Request
    size_bytes: int
    """Size when it arrived: a text takes more memory once it was encoded."""


class Service:
    """Runs handlers.

    Args:
        modules: modules for commands that no handler of `serve` answers.
        respond: sends the answer to a request.
        on_room: called when `full` has become false.
    """

    def __init__(self, modules: Modules, respond: Respond, on_room: Callable[[], None]) -> None:
        self._modules = modules
        self._respond = respond
        self._loop = asyncio.get_running_loop()
        self._on_room = on_room
        self._handlers: dict[str, ClientHandler] = {}
        self._running: dict[asyncio.Task[None], _Taken] = {}
        self._held: deque[_Taken] = deque()
        self._bytes = 0  # of running and held requests
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no more requests should be added."""
        return len(self._held) >= MAX_HELD or self._bytes >= MAX_REQUEST_BYTES

    def add(self, handlers: Mapping[str, ClientHandler]) -> None:
        """Answer these commands from now on.

        Raises:
            ValueError: a command has a handler already.
        """
        taken = self._handlers.keys() & handlers.keys()
        if taken:
            raise ValueError(f"command {min(taken)!r} has a handler already")
        self._handlers.update(handlers)

    def take(self, request: Request) -> bool:
        """Answer a request, now or when others are done; return False if the service is closed."""
        if self._closed:
            return False
        taken = _Taken(request, request.size_bytes)
        self._bytes += taken.size_bytes
        if len(self._running) < MAX_RUNNING:
            self._start(taken)
        else:
            self._held.append(taken)
        return True

    async def idle(self) -> None:
        """Wait until no handler is running."""
        while self._running:
            await asyncio.wait(self._running)

    async def aclose(self) -> list[Request]:
        """Cancel all running handlers.

        Returns:
            The requests that were not carried out.
        """
        self._closed = True
        cut_off = [taken.request for taken in (*self._running.values(), *self._held)]
        self._held.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._running:
            task.cancel()
        if self._running:
            _, left = await asyncio.wait(self._running, timeout=HANDLERS_TIMEOUT_S)
            if left:
                logger.error("%d handlers do not end although they were cancelled", len(left))
        return cut_off

    def _start(self, taken: _Taken) -> None:
        task = self._loop.create_task(self._serve(taken.request))
        self._running[task] = taken
        task.add_done_callback(self._ended)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    async def _serve(self, request: Request) -> None:
        outcome = await answer(self._asked(request), request.command, logger)
        if outcome is not None:
            await self._respond(request, outcome)

    async def _asked(self, request: Request) -> Answer:
        command = request.command
        handler = (
            self._handlers.get(command)
            or self._modules.find(command)
            or self._handlers.get(ANY_COMMAND)
        )
        if handler is None:
            shown = command[:MAX_LOGGED_CHARACTERS]
            raise CommandError(CODE_OTHER, f"unknown command: {shown}")
        found = handler(request)
        if inspect.isawaitable(found):
            found = await found
        return encode_answer(found)

    def _ended(self, task: asyncio.Task[None]) -> None:
        was_full = self.full
        self._bytes -= self._running.pop(task).size_bytes
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an answer was not sent: %s", error)
        if self._closed:
            return
        now = time.time()
        while self._held:
            taken = self._held.popleft()
            if taken.request.deadline > now:
                self._start(taken)
                break
            self._bytes -= taken.size_bytes
        if was_full and not self.full:
            self._on_room()

    def _sweep(self) -> None:
        self._sweeper = None
        now = time.time()
        for task, taken in self._running.items():
            if taken.request.deadline <= now:
                task.cancel()
        if self._running:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
