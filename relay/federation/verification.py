"""Checking the signatures of what other relays bring, without holding up the worker's loop.

One sr25519 check takes some 60 microseconds and holds the interpreter's lock, so a thread would
not help. Instead the checks of one turn of the loop go as one write to a child process that does
nothing else (`relay.federation.verifier`), and its verdicts come back as one byte each; the loop
stays free for everybody else's messages. The child is started when there is something to check,
and again when it ended; while there is none, or with 0 processes, the loop checks by itself, a few
at a time. Figures: `docs/decisions/008-inbound-federation.md`.
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
"""Signatures of one worker that may wait: about a second's work of one process. Whoever asks for
checks takes them from `Verification.shares` before and gives them back, so that the forged messages
of one address leave room for those of the others."""
INLINE_TURN: Final = 16
"""Signatures checked in one turn of the loop: about a millisecond."""
LONE_S: Final = 0.0005
"""A signature that comes alone, so long after the last such one, is checked in the loop: that takes
less time than asking a process, and an eighth of the loop's at most."""
RESTART_S: Final = 1.0
"""Pause before a child that ended by itself is started again."""
STALL_S: Final = 2.0
"""A child that has decided nothing for so long, or twice that, is ended: the loop does its work."""
STOP_S: Final = 2.0


Check = tuple[bytes, bytes, bytes]
"""Public key of who should have signed, what was signed (16 bytes), and the signature: one that has
not 65 bytes does not fit."""


class Verification:
    """The checks of one worker.

    Attributes:
        waiting: how many are not decided.
        shares: of the checks that may wait, by the place that brought the messages.
        restarts: children that ended by themselves.
    """

    def __init__(self, processes: int) -> None:
        """
        Args:
            processes: how many children; with 0 the loop checks.
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
        """Which of the signatures fit, in order."""
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
        """Ends the children."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _keep(self) -> None:
        """Runs one child, for as long as this task."""
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
        """Returns when a child has ended, or does nothing any more."""
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
        self.decided = 0  # with one
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._verdicts = bytearray()
        self._asked: deque[tuple[int, asyncio.Future[list[bool] | None]]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    async def verify(self, checks: list[Check]) -> list[bool] | None:
        """As `Verification.verify`; None where the child ended before its verdicts."""
        if self.ended.done():  # and whoever keeps it has not noticed yet
            return None
        loop = asyncio.get_running_loop()
        if not self._unsent:
            loop.call_soon(self._flush)  # what other requests of this turn ask goes with it
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
        process_group=0,  # Ctrl-C in a terminal is for the supervisor
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its socket has ended, and so does it; if not, it is made to."""
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
