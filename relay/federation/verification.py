"""Checks of the signatures of partner relays' messages that do not block the worker's event loop.

One sr25519 check takes some 60 microseconds and holds the interpreter's lock, so a thread would not
help. Instead the checks of one turn of the loop are sent in one write to a child process that does
nothing else (`relay.federation.verifier`). Its verdicts come back as one byte each, and the loop
stays free for other messages. The child is started with the first check, and again after it ended.
While no process runs, or with 0 processes, the loop checks signatures itself, a few at a time.
Figures: `docs/decisions/008-inbound-federation.md`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from collections import deque
from typing import Final

from proto.identity.bounds import ACCOUNT_BYTES, SIGNATURE_BYTES
from proto.limits.shares import Shares
from relay.federation import verifier
from relay.server.child import child_environment, module_command

log = logging.getLogger(__name__)

WAITING: Final = 16_384
"""Maximum number of signatures of one worker that may wait: about a second's work of one process.
Callers take checks from `Verification.shares` before and return them after, so that forged messages
of one address leave room for those of others."""
INLINE_TURN: Final = 16
"""Signatures checked in one turn of the loop, which takes about a millisecond."""
LONE_S: Final = 0.0005
"""Minimum seconds between single signatures that are checked in the loop: that is faster than
asking a process, and takes at most an eighth of the loop's time."""
RESTART_S: Final = 1.0
"""Seconds until a child that ended by itself is started again."""
STALL_S: Final = 2.0
"""Seconds without a verdict after which a child is ended, at the latest after twice that; the loop
then does its work."""
STOP_S: Final = 2.0


Check = tuple[bytes, bytes, bytes]
"""Public key of the expected signer, what was signed (16 bytes), and the signature; a signature
that is not 65 bytes long is invalid."""


class Verification:
    """The checks of one worker.

    Attributes:
        waiting: number of checks without a verdict.
        shares: shares of the checks that may wait, by the place that brought the messages.
        restarts: number of children that ended by themselves.
    """

    def __init__(self, processes: int) -> None:
        """
        Args:
            processes: number of children; with 0 the loop checks.
        """
        self.waiting = 0
        self.shares: Shares[str] = Shares(WAITING)
        self.restarts = 0
        self._wanted = processes
        self._loop = asyncio.get_running_loop()
        self._lone_at = 0.0  # loop time of the last check that came alone
        self._children: list[Checker] = []
        self._keepers: list[asyncio.Task[None]] = []

    async def verify(self, checks: list[Check]) -> list[bool]:
        """Return which of the signatures are valid, in order."""
        if self._wanted and not self._keepers:
            self._keepers = [self._loop.create_task(self._keep()) for _ in range(self._wanted)]
        if len(checks) == 1 and not self.waiting:
            now = self._loop.time()
            if now - self._lone_at >= LONE_S:
                self._lone_at = now
                return [verifier.fits(*checks[0])]
        self.waiting += len(checks)
        try:
            if self._children:
                child = min(self._children, key=lambda each: each.waiting)
                verdicts = await child.verify(checks)
                if verdicts is not None:
                    return verdicts
            return await _verify_here(checks)
        finally:
            self.waiting -= len(checks)

    async def stop(self) -> None:
        """End the children."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _keep(self) -> None:
        """Run one child, and restart it when it ends, until this task is cancelled."""
        while True:
            try:
                await self._run_child()
            except OSError as error:
                log.error("no process for checking signatures: %s", error)
            self.restarts += 1
            await asyncio.sleep(RESTART_S)

    async def _run_child(self) -> None:
        own, others = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, child = await loop.create_unix_connection(Checker, sock=own)
        process: subprocess.Popen[bytes] | None = None
        try:
            with others:
                process = _start(others)  # some milliseconds, once
            self._children.append(child)
            await self._watch(child)
        finally:
            if child in self._children:
                self._children.remove(child)
            transport.abort()
            if process is not None:
                await asyncio.to_thread(_end, process)

    async def _watch(self, child: Checker) -> None:
        """Wait until a child has ended, or does not make progress any more."""
        seen = -1
        while not (await asyncio.wait({child.ended}, timeout=STALL_S))[0]:
            if child.waiting and child.decided == seen:
                log.error("the process that checks signatures does not answer")
                return
            seen = child.decided
        log.error("the process that checks signatures has ended")


class Checker(asyncio.Protocol):
    """The parent's end of the socket to one child."""

    def __init__(self) -> None:
        self.waiting = 0  # signatures without a verdict
        self.decided = 0  # signatures with a verdict
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._verdicts = bytearray()
        self._asked: deque[tuple[int, asyncio.Future[list[bool] | None]]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    async def verify(self, checks: list[Check]) -> list[bool] | None:
        """Check signatures as `Verification.verify` does; return None if the child has ended."""
        if self.ended.done():  # but still in the list of children
            return None
        loop = asyncio.get_running_loop()
        if not self._unsent:
            loop.call_soon(self._flush)  # together with the checks of other requests in this turn
        well_formed = [
            len(account) == ACCOUNT_BYTES and len(signature) == SIGNATURE_BYTES
            for account, _, signature in checks
        ]
        for check, whole in zip(checks, well_formed, strict=True):
            if whole:
                self._unsent += check
        count = sum(well_formed)
        if not count:
            return well_formed
        verdicts: asyncio.Future[list[bool] | None] = loop.create_future()
        self._asked.append((count, verdicts))
        self.waiting += count
        fitting = await verdicts
        if fitting is None or count == len(checks):
            return fitting
        in_turn = iter(fitting)
        return [whole and next(in_turn) for whole in well_formed]

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))

    def data_received(self, data: bytes) -> None:
        verdicts = self._verdicts
        verdicts += data
        while self._asked and len(verdicts) >= self._asked[0][0]:
            count, future = self._asked.popleft()
            self.waiting -= count
            self.decided += count
            if not future.done():
                future.set_result([verdict == 1 for verdict in verdicts[:count]])
            del verdicts[:count]

    def connection_lost(self, exc: Exception | None) -> None:
        asked, self._asked = self._asked, deque()
        for _, future in asked:
            if not future.done():
                future.set_result(None)
        if not self.ended.done():
            self.ended.set_result(None)


async def _verify_here(checks: list[Check]) -> list[bool]:
    verdicts: list[bool] = []
    for first in range(0, len(checks), INLINE_TURN):
        if first:
            await asyncio.sleep(0)
        verdicts += [verifier.fits(*check) for check in checks[first : first + INLINE_TURN]]
    return verdicts


def _start(connection: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        module_command(verifier.__name__, []),
        stdin=connection.fileno(),
        env=child_environment(None),
        process_group=0,  # Ctrl-C in a terminal must reach the supervisor only
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process whose socket is closed to end, and kill it if it does not."""
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
