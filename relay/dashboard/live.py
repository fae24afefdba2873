"""The websocket of the console, `/console/live`, which sends a frame of figures each second.

    a page opens it -> check origin -> check session and permission -> check limits
    -> send the newest frame each second; check permission again when rights may have changed

A socket costs one write each second; the frame is text that was encoded once for all sockets. The
client must not send anything: any message closes the socket. A client that does not read gets no
further frames until it reads again, and then the newest one.

Close codes: 4401 not signed in (any more), 4403 no permission (any more), 4429 too many sockets,
4408 the client does not read, 1013 the permission cannot be checked, 1008 the client sent a
message, 1012 the site restarts.
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
"""Seconds after which the permission is checked again even without a known change."""
UNSURE_S: Final = 300.0
"""Seconds for which an accepted socket stays open while the database is unavailable: live figures
are needed most during a failure."""
MAX_SOCKETS: Final = 200
"""Maximum number of open sockets of this process, including those being checked."""
MAX_PER_ACCOUNT: Final = 20
"""Maximum number of sockets of one account: each is an open tab, some of them forgotten."""
STUCK_S: Final = 60.0

TOO_MANY: Final = 4429
STUCK: Final = 4408
UNSURE: Final = 1013
NOT_ASKED: Final = 1008

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Sockets:
    """Counts of this process's sockets: open, and refused or closed by the site."""

    def __init__(self) -> None:
        self.open = 0
        self.accounts: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()

    @contextlib.contextmanager
    def one_more(self) -> Iterator[bool]:
        """Count a socket; yield whether there was room for it."""
        room = self.open < MAX_SOCKETS
        self.open += 1
        try:
            yield room
        finally:
            self.open -= 1

    @contextlib.contextmanager
    def of_account(self, account: int) -> Iterator[bool]:
        """Count a socket of an account; yield whether there was room for it."""
        room = self.accounts[account] < MAX_PER_ACCOUNT
        self.accounts[account] += 1
        try:
            yield room
        finally:
            self.accounts[account] -= 1
            if not self.accounts[account]:
                del self.accounts[account]

    def figures(self) -> dict[str, float]:
        """Return the metrics for `/metrics`."""
        ended = {
            series("relay_console_sockets_ended_total", code=str(code)): float(count)
            for code, count in self.ended.items()
        }
        return {"relay_console_sockets": float(self.open), **ended}


sockets: Final = Sockets()
"""The sockets of this process."""


class LiveConsumer(AsyncConsumer):  # type: ignore[misc]
    """One socket. It gets frames from `feed` and needs no channel of its own in the layer."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve the socket until it is closed."""
        self._receive, self._send = receive, send
        await receive()  # websocket.connect
        if not from_a_page_of_ours(scope):
            await send({"type": "websocket.close"})  # closing before accepting answers 403
            return
        with sockets.one_more() as room, contextlib.suppress(OSError):
            await send({"type": "websocket.accept"})
            code = await self._admit(session_key_of(scope)) if room else TOO_MANY
            if code:
                sockets.ended[code] += 1
                await send({"type": "websocket.close", "code": code})

    async def _admit(self, session_key: str) -> int:
        """Check the permission and serve frames; return the close code, 0 if the client left."""
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
        """Wait until the client disconnects or sends a message."""
        message = await self._receive()
        return 0 if message["type"] == "websocket.disconnect" else NOT_ASKED

    async def _feed(self, session_key: str, account: int) -> int:
        """Send frames while the account has the permission; return the close code."""
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
        """Send a frame; return False if the client did not read it within `STUCK_S` seconds."""
        try:
            async with asyncio.timeout(STUCK_S):
                await self._send({"type": "websocket.send", "text": text})
        except TimeoutError:
            return False
        return True


async def application(scope: Any, receive: Receive, send: Send) -> None:
    """Route websockets of the operator site to the consumer; close those with another path."""
    if scope["path"] == PATH:
        await LiveConsumer()(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.close"})
