"""How a session key changes hands.

A newcomer subscribes to the key's channel, claims the key (one atomic script: a new epoch, an
`evict` for whoever held it), waits until the former holder has said `released`, at most
`RELEASE_WAIT_S`, and then reads the stream from its start. The former holder stops writing, lets
its socket's kernel buffer drain, has removed what arrived, and only then says `released`: so what
it delivered is not delivered again, and what it did not is still in the stream. Whoever ends
without a newcomer does the same, and has the time that its socket takes to close.

The same steps are taken when both are on one worker.

The handshake is answered after the claim (`Opening`): whoever connects because another connection
of its was answered must not lose the key to that one's belated claim.
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
"""How long a newcomer waits for its predecessor, whatever that one's heartbeat says."""
CLAIM_WAIT_S: Final = 1.0
"""How long the answer of a handshake waits for the claim."""
DRAIN_WAIT_S: Final = 0.2
"""How long a session that was taken over waits for its peer to acknowledge what was written: the
newcomer waits for it."""
SOCKET_WAIT_S: Final = 5.0
"""How long any other one waits, should its socket not say before that nothing more can arrive."""
DRAIN_LOOK_S: Final = 0.001
SLOW_LOOK_S: Final = 0.02
"""Between looks at one that takes longer than `DRAIN_WAIT_S`: a drain may have thousands."""
RELEASE_AGAIN_S: Final = 1.0
"""Pause before a release is asked for again that Redis refused."""
CLAIMS: Final = 64
"""In one request: Redis serves nobody else for some 0.3 ms meanwhile."""
AGAIN_S: Final = 0.1
"""Pause before a claim is made again that Redis refused."""


class Opening:
    """What a handshake and the take-over of its key wait for of each other.

    Attributes:
        is_answered: the handshake is, or it was given up.
    """

    __slots__ = ("_answered", "_claimed", "is_answered")

    def __init__(self) -> None:
        self.is_answered = False
        loop = asyncio.get_running_loop()
        # Each has one that waits for it, which may be cancelled meanwhile.
        self._claimed: asyncio.Future[None] = loop.create_future()
        self._answered: asyncio.Future[None] = loop.create_future()

    async def claimed(self) -> None:
        """Waits for the claim, at most `CLAIM_WAIT_S`: Redis may be away."""
        patience = asyncio.get_running_loop().call_later(CLAIM_WAIT_S, self.claim_made)
        try:
            await self._claimed
        finally:
            patience.cancel()

    def claim_made(self) -> None:
        """The claim was answered: the handshake may be."""
        if not self._claimed.done():
            self._claimed.set_result(None)

    async def answered(self) -> None:
        """Waits for the answer of the handshake: nothing may be written before it."""
        await self._answered

    def answer_made(self) -> None:
        """The handshake was answered, or given up."""
        self.is_answered = True
        if not self._answered.done():
            self._answered.set_result(None)


class Claims:
    """The claims of one worker: those of one turn of the loop are one request.

    In a rush a script of its own for each cost Redis more than all the rest of a sign-in.

    Attributes:
        refusal: why Redis does not take claims for now, as it was logged.
    """

    def __init__(self, worker: Worker) -> None:
        self.refusal = ""
        self._worker = worker
        self._waiting: list[tuple[Session, asyncio.Future[Any]]] = []

    def enter(self, session: Session) -> asyncio.Future[Any]:
        """Claims the key of a session; the future gets the epoch and the former entry.

        It fails with `LinkLost`, or with the error Redis answered.
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
    """Takes a key over for a newcomer. Returns when the session is live, or has ended."""
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
    session.joining = None  # a session lasts for days; this task need not


async def _claim(worker: Worker, session: Session) -> int:
    """Enters the newcomer in the directory. Returns the epoch of the former entry, or 0."""
    claims, in_doubt = worker.claims, False
    while True:
        await worker.until_usable()
        session.claiming = True
        try:
            epoch, former = await claims.enter(session)
        except LinkLost:
            # Unknown whether it was executed: if so, the repeat finds its own entry as the
            # former one and waits in vain for its release, once.
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
    """Waits until the former holder has let go, at most `RELEASE_WAIT_S`."""
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
    """Gives a key up after the session has ended."""
    worker.upkeep.rates.ended(session)
    destination = session.destination
    # A newcomer that ends while it waits for its predecessor waits on: who follows it relies on
    # its `released` meaning that both are gone. One that Redis has not been asked for, or that it
    # refused, leaves nothing behind: it need not wait for Redis, which may be away for long.
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
    session.sender = None  # they hold each other, and the collector comes late


async def _acknowledged(worker: Worker, session: Session) -> None:
    """Waits for the peer to acknowledge what was written, for as long as it may: what it has not
    comes to its next connection again."""
    began = worker.loop.time()
    deadline = began + SOCKET_WAIT_S
    session.confirm()
    while session.inflight and not session.socket_closed and (now := worker.loop.time()) < deadline:
        if session.end_reason is SessionReason.REPLACED or session.highest_evict > session.epoch:
            deadline = min(deadline, now + DRAIN_WAIT_S)
        await asyncio.sleep(DRAIN_LOOK_S if now - began < DRAIN_WAIT_S else SLOW_LOOK_S)
        session.confirm()


async def _verify(worker: Worker, session: Session) -> None:
    """Redis changed, and the session ended before it had read its stream again: what it had
    delivered is removed where it is still the very same entry."""
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
    """Removes what arrived and the directory entry, in one MULTI.

    What Redis refuses it is asked for again: the entry would stay for as long as this worker.
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
