"""The one websocket of the console, `/console/live`: a frame of numbers each second.

    a page opens it -> is it a page of ours? -> who is it, may they? -> are there too many?
    -> the newest frame each second, and when rights may have changed: may they still?

A socket costs a write each second; the frame is text that was made once for all of them. The client
says nothing: whatever it sends ends the socket. One that does not read is sent nothing more until
it does, and then the newest frame.

Close codes: 4401 not signed in (any more), 4403 the account may not see this (any more), 4429 too
many sockets, 4408 the client does not read, 1013 nobody can tell whether it still may, 1008 it said
something, 1012 the site restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from channels.consumer import AsyncConsumer
from django.db import Error as DatabaseError

from relay.access.watch import LOOK_S, Watch
from relay.dashboard.admittance import (
    SIGNED_OUT,
    Verdict,
    from_a_page_of_ours,
    judge_async,
    session_key_of,
)
from relay.dashboard.feed import feed
from relay.ops.metric_names import series

PATH: Final = "/console/live"
CHECK_S: Final = 15.0
"""Rights are judged so often though nothing is known to have changed."""
UNSURE_S: Final = 300.0
"""While the database is away a socket that was allowed stays for so long: live numbers are wanted
most when something is wrong."""
MAX_SOCKETS: Final = 200
"""Open sockets of this process, those that are being checked included."""
MAX_PER_ACCOUNT: Final = 20
"""A socket is an open tab: some of these are forgotten ones."""
STUCK_S: Final = 60.0

TOO_MANY: Final = 4429
STUCK: Final = 4408
UNSURE: Final = 1013
NOT_ASKED: Final = 1008

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Sockets:
    """How many there are in this process, and how many were refused or ended by us."""

    def __init__(self) -> None:
        self.open = 0
        self.accounts: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()

    @contextlib.contextmanager
    def one_more(self) -> Iterator[bool]:
        """Counts a socket; gives whether there was room for it."""
        room = self.open < MAX_SOCKETS
        self.open += 1
        try:
            yield room
        finally:
            self.open -= 1

    @contextlib.contextmanager
    def of_account(self, account: int) -> Iterator[bool]:
        """Counts a socket of an account; gives whether there was room for it."""
        room = self.accounts[account] < MAX_PER_ACCOUNT
        self.accounts[account] += 1
        try:
            yield room
        finally:
            self.accounts[account] -= 1
            if not self.accounts[account]:
                del self.accounts[account]

    def figures(self) -> dict[str, float]:
        """For `/metrics`."""
        ended = {
            series("relay_console_sockets_ended_total", code=str(code)): float(count)
            for code, count in self.ended.items()
        }
        return {"relay_console_sockets": float(self.open), **ended}


sockets: Final = Sockets()
"""Those of this process."""


class LiveConsumer(AsyncConsumer):  # type: ignore[misc]
    """One socket. Frames come by `feed`, so it needs no channel of its own in the layer."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """The whole life of the socket."""
        self._receive, self._send = receive, send
        await receive()  # websocket.connect
        if not from_a_page_of_ours(scope):
            await send({"type": "websocket.close"})  # before it is open: 403
            return
        with sockets.one_more() as room, contextlib.suppress(OSError):
            await send({"type": "websocket.accept"})
            code = await self._admit(session_key_of(scope)) if room else TOO_MANY
            if code:
                sockets.ended[code] += 1
                await send({"type": "websocket.close", "code": code})

    async def _admit(self, session_key: str) -> int:
        """Lets it in, until it ends; returns the close code, 0 when the client went by itself."""
        try:
            verdict: Verdict = await judge_async(session_key)
        except DatabaseError:
            return UNSURE
        if verdict.close_code:
            return verdict.close_code
        with sockets.of_account(verdict.account) as room:
            if not room:
                return TOO_MANY
            tasks = [
                asyncio.create_task(self._until_gone()),
                asyncio.create_task(self._feed(session_key, verdict.account)),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return int(done.pop().result())
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_gone(self) -> int:
        """Waits for the client to go, or to say something."""
        message = await self._receive()
        return 0 if message["type"] == "websocket.disconnect" else NOT_ASKED

    async def _feed(self, session_key: str, account: int) -> int:
        """Sends frames while the account may have them."""
        loop = asyncio.get_running_loop()
        sure_at = loop.time()
        watch = Watch(CHECK_S)
        with feed.listening() as number:
            while True:
                text = ""
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        number, text = await feed.next(number)
                if text and not await self._write(text):
                    return STUCK
                if not await watch.due():
                    continue
                try:
                    verdict = await judge_async(session_key)
                except DatabaseError:
                    if loop.time() - sure_at > UNSURE_S:
                        return UNSURE
                else:
                    if verdict.close_code or verdict.account != account:
                        return verdict.close_code or SIGNED_OUT
                    sure_at = loop.time()

    async def _write(self, text: str) -> bool:
        """Sends a frame; False when the client has not read for too long."""
        try:
            async with asyncio.timeout(STUCK_S):
                await self._send({"type": "websocket.send", "text": text})
        except TimeoutError:
            return False
        return True


async def application(scope: Any, receive: Receive, send: Send) -> None:
    """The websocket routes of the operator site: this one."""
    if scope["path"] == PATH:
        await LiveConsumer()(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.close"})
