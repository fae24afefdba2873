"""How a session key is passed from one connection to the next.

A newcomer subscribes to the key's channel and claims the key (one atomic script: a new epoch, and
an `evict` for the former holder). It waits at most `RELEASE_WAIT_S` until the former holder has
published `released`, and then reads the stream from its start. The former holder stops writing,
lets its socket's kernel buffer drain, removes what arrived, and only then publishes `released`. So
what it delivered is not delivered again, and what it did not deliver is still in the stream. A
session that ends without a newcomer takes the same steps, and has as much time as its socket takes
to close.

The same steps are taken if both connections are on one worker.

The handshake is answered after the claim (`Opening`). A client that connects again because its
previous handshake was answered must not lose the key to the belated claim of that one.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proto.rmb.reasons import SessionReason
from redispipe import resp
from redispipe.errors import LinkLost
from relay.sessions import scripts
from relay.sessions.rewind import remove_if_same

if TYPE_CHECKING:
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

RELEASE_WAIT_S: Final = 0.5
"""Seconds that a newcomer waits for its predecessor, whatever that worker's heartbeat shows."""
CLAIM_WAIT_S: Final = 1.0
"""Seconds that the answer of a handshake waits for the claim."""
DRAIN_WAIT_S: Final = 0.2
"""Seconds that a replaced session waits for its peer to acknowledge what was written, during which
the newcomer waits too."""
SOCKET_WAIT_S: Final = 5.0
"""Seconds that any other session waits, unless its socket reports earlier that it is closed."""
DRAIN_LOOK_S: Final = 0.001
SLOW_LOOK_S: Final = 0.02
"""Seconds between checks after `DRAIN_WAIT_S`: a drain may have thousands of sessions."""
RELEASE_AGAIN_S: Final = 1.0
"""Seconds until a release that Redis refused is retried."""
CLAIMS: Final = 64
"""Claims in one request: Redis serves no other client for some 0.3 ms meanwhile."""
AGAIN_S: Final = 0.1
"""Seconds until a claim that Redis refused is retried."""


class Opening:
    """Synchronization of a handshake and the take-over of its key.

    Attributes:
        is_answered: whether the handshake was answered or given up.
    """

    __slots__ = ("_answered", "_claimed", "is_answered")

    def __init__(self) -> None:
        self.is_answered = False
        loop = asyncio.get_running_loop()
        # Each has one waiter, which may be cancelled meanwhile.
        self._claimed: asyncio.Future[None] = loop.create_future()
        self._answered: asyncio.Future[None] = loop.create_future()

    async def claimed(self) -> None:
        """Wait for the claim, at most `CLAIM_WAIT_S`: Redis may be unavailable."""
        patience = asyncio.get_running_loop().call_later(CLAIM_WAIT_S, self.claim_made)
        try:
            await self._claimed
        finally:
            patience.cancel()

    def claim_made(self) -> None:
        """Record that the claim was answered, so that the handshake may be answered."""
        if not self._claimed.done():
            self._claimed.set_result(None)

    async def answered(self) -> None:
        """Wait for the answer of the handshake, before which nothing may be written."""
        await self._answered

    def answer_made(self) -> None:
        """Record that the handshake was answered or given up."""
        self.is_answered = True
        if not self._answered.done():
            self._answered.set_result(None)


class Claims:
    """The claims of one worker; those of one turn of the loop share a request.

    In a rush, a script run for each would cost Redis more than all the rest of a sign-in.

    Attributes:
        refusal: error with which Redis refuses claims at present, as it was logged.
    """

    def __init__(self, worker: Worker) -> None:
        self.refusal = ""
        self._worker = worker
        self._waiting: list[tuple[Session, asyncio.Future[Any]]] = []

    def enter(self, session: Session) -> asyncio.Future[Any]:
        """Claim the key of a session; the future gets the epoch and the former entry.

        It fails with `LinkLost`, or with the error that Redis answered.
        """
        future: asyncio.Future[Any] = self._worker.loop.create_future()
        if not self._waiting:
            self._worker.loop.call_soon(self._send)
        self._waiting.append((session, future))
        return future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), CLAIMS):
            part = waiting[first : first + CLAIMS]
            each = [
                (session.destination.text, session.opened_at, session.address)
                for session, _ in part
            ]
            request = scripts.claims(self._worker.boot_id, each)
            self._worker.commit.submit(request, partial(self._answered, part))

    def _answered(self, part: list[tuple[Session, asyncio.Future[Any]]], reply: Any) -> None:
        for place, (_, future) in enumerate(part):
            if future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply[2 * place : 2 * place + 2])


async def join(worker: Worker, session: Session, opening: Opening | None) -> None:
    """Take a key over for a newcomer. Returns when the session is live, or has ended."""
    destination = session.destination
    try:
        await worker.hub.subscribe(destination.wake, session.news)
        former = await _claim(worker, session)
    finally:
        if opening is not None:
            opening.claim_made()
    if session.end_reason is None:
        predecessor, destination.session = destination.session, session
        if predecessor is not None:
            worker.end(predecessor, SessionReason.REPLACED)
        if session.guest:
            worker.guests.arrived(destination)
        if worker.history is not None:
            worker.history.opened(session)
        session.evicted(session.highest_evict)
    if former:
        await _released(session, former)
    if opening is not None and not opening.is_answered:
        await opening.answered()
    if session.end_reason is None:
        session.live = True
        session.catch_up()
        worker.upkeep.compare_soon(session)
    session.joining = None  # frees this task, as a session may last for days


async def _claim(worker: Worker, session: Session) -> int:
    """Enter the newcomer in the directory. Returns the epoch of the former entry, or 0."""
    claims, in_doubt = worker.claims, False
    while True:
        await worker.until_usable()
        session.claiming = True
        try:
            epoch, former = await claims.enter(session)
        except LinkLost:
            # It is unknown whether it was executed: if so, the repeat finds its own entry as the
            # former one, and waits once for a release that never comes.
            in_doubt = True
            continue
        except Exception as error:
            session.claiming = in_doubt
            if claims.refusal != str(error):
                claims.refusal = str(error)
                log.warning("the claim of %s was refused: %s", session.destination.text, error)
            if session.end_reason is not None and not in_doubt:
                return 0
            await asyncio.sleep(AGAIN_S)
            continue
        claims.refusal = ""
        session.epoch = int(epoch)
        return scripts.entry_epoch(former)


async def _released(session: Session, former: int) -> None:
    """Wait until the former holder has released the key, at most `RELEASE_WAIT_S`."""
    if session.released >= former:
        return
    event = asyncio.Event()
    session.on_released = lambda: event.set() if session.released >= former else None
    try:
        async with asyncio.timeout(RELEASE_WAIT_S):
            await event.wait()
    except TimeoutError:
        log.info("the former holder of %s did not release it in time", session.destination.text)
    finally:
        session.on_released = None


async def leave(worker: Worker, session: Session) -> None:
    """Give a key up after the session has ended."""
    worker.upkeep.rates.ended(session)
    destination = session.destination
    # A newcomer that ends while it waits for its predecessor continues to wait: its successor
    # relies on `released` meaning that both are gone. A claim that was not sent, or that Redis
    # refused, leaves nothing behind: it need not wait for Redis, which may be unavailable for long.
    if session.joining is not None:
        if not session.claiming:
            session.joining.cancel()
        await asyncio.gather(session.joining, return_exceptions=True)
    await _acknowledged(worker, session)
    session.inflight.clear()  # what did not arrive stays in the stream
    if session.epoch:
        await worker.until_usable()
        while session.had:
            await _verify(worker, session)
    worker.unconfirmed.pop(session, None)
    worker.stalled.pop(session, None)
    if session.epoch:
        await _release(worker, session)
    worker.hub.unsubscribe(destination.wake, session.news)
    if session.guest:
        worker.guests.left(destination)
    worker.sessions.pop(session, None)
    session.sender = None  # breaks a reference cycle, as collections are rare


async def _acknowledged(worker: Worker, session: Session) -> None:
    """Wait until the peer has acknowledged what was written, or its time is over.

    What it has not acknowledged is delivered again on its next connection.
    """
    began = worker.loop.time()
    deadline = began + SOCKET_WAIT_S
    session.confirm()
    while session.inflight and not session.socket_closed and (now := worker.loop.time()) < deadline:
        if session.end_reason is SessionReason.REPLACED or session.highest_evict > session.epoch:
            deadline = min(deadline, now + DRAIN_WAIT_S)
        await asyncio.sleep(DRAIN_LOOK_S if now - began < DRAIN_WAIT_S else SLOW_LOOK_S)
        session.confirm()


async def _verify(worker: Worker, session: Session) -> None:
    """Remove what the session had delivered, if the very same entries are still in the stream.

    This is needed if Redis changed and the session ended before it had read its stream again.
    """
    had, session.had = session.had or {}, None
    acknowledged = session.socket.acknowledged()
    stream = session.destination.stream
    try:
        await worker.until_usable()
        for entry_id, (content, position) in had.items():
            if position <= acknowledged:
                found = await worker.request(resp.command("XRANGE", stream, entry_id, entry_id))
                remove_if_same(session, found, content)
    except LinkLost:
        session.had = {**had, **(session.had or {})}
    except Exception as error:
        log.error("stream of %s cannot be read: %s", session.destination.text, error)


async def _release(worker: Worker, session: Session) -> None:
    """Remove what arrived and the directory entry, in one MULTI.

    If Redis refuses it is retried: otherwise the entry would stay for the life of this worker.
    """
    command = scripts.release(session.destination.text, session.epoch)
    told = False
    while True:
        if session.removals:
            worker.commit.remove(session)
        replied: asyncio.Future[Any] = worker.loop.create_future()
        worker.commit.add_extra(command, partial(_settle, replied))
        refusal = await replied
        if not isinstance(refusal, Exception):
            return
        if not told:
            log.error("%s is not released yet: %s", session.destination.text, refusal)
            told = True
        await asyncio.sleep(RELEASE_AGAIN_S)


def _settle(replied: asyncio.Future[Any], reply: Any) -> None:
    if not replied.done():
        replied.set_result(reply)
