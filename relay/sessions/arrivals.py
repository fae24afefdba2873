"""Sign-in by a plain handshake (`relay.server.plain_handshake`), without a task for each client.

    take -> twin in the cache or looked up -> judged -> session opened, key claimed -> accepted

Each step is the callback of what it waits for. Only rare cases use a task: an outdated cached twin,
look-ups on the chain. The rules are those of `admission` and `takeover`, which the consumers of
other websockets use as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proto.identity.tokens import Token
from proto.rmb.reasons import SessionReason
from relay.server.conversation import FAILED
from relay.server.deadlines import Deadlines
from relay.sessions.admission import Admission, Refusal, look_up_failed
from relay.sessions.takeover import CLAIM_WAIT_S, Opening
from relay.twins.cache import MISSING, TwinLookupError

if TYPE_CHECKING:
    from relay.server.plain_handshake import PlainHandshake
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker
    from relay.twins.batches import Flight
    from relay.twins.source import TwinRecord

log = logging.getLogger(__name__)


class Arrivals:
    """The plain handshakes of one worker."""

    def __init__(self, worker: Worker, admission: Admission) -> None:
        self.worker = worker
        self.admission = admission
        self.patience: Final = Deadlines(CLAIM_WAIT_S)  # for claims

    def take(self, handshake: PlainHandshake) -> None:
        """Sign a client in, or refuse it."""
        arrival = _Arrival(self, handshake)
        arrival.guard(arrival.begin)


class _Arrival(Opening):
    """One client, until it is accepted or refused."""

    __slots__ = ("_arrivals", "_generation", "_handshake", "_session", "_token")

    _token: Token
    _session: Session

    def __init__(self, arrivals: Arrivals, handshake: PlainHandshake) -> None:
        self.is_answered = False
        self._arrivals = arrivals
        self._handshake = handshake
        self._generation = 0

    def guard(self, step: Callable[[], None]) -> None:
        """Run a step; answer the client even if the step raises an unexpected exception."""
        try:
            step()
        except Exception as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, Refusal):
            self._arrivals.admission.note_refusal(error, self._handshake.address)
            self._handshake.refuse(error.status, error.text)
        else:
            log.error("a sign-in failed", exc_info=error)
            self._handshake.refuse(500, FAILED)

    def begin(self) -> None:
        """Read the token, and look its twin up."""
        admission, twins = self._arrivals.admission, self._arrivals.worker.twins
        self._token = token = admission.read(self._handshake.query, self._handshake.address)
        record = twins.get(token.twin)
        if record is not MISSING:
            self._judge(record)
            return
        self._generation = twins.generation
        flight = admission.flight(token)
        if flight is None:
            self._arrivals.worker.spawn(self._look_up())
        else:
            flight.add_done_callback(self._landed)

    def _landed(self, flight: Flight) -> None:
        self.guard(lambda: self._looked_up(_record_of(flight)))

    async def _look_up(self) -> None:
        try:
            record = await self._arrivals.admission.look_up(self._token, self._handshake.address)
        except Exception as error:
            self._refuse(error)
            return
        self.guard(lambda: self._looked_up(record))

    def _looked_up(self, record: TwinRecord | None) -> None:
        address = self._handshake.address
        self._arrivals.admission.looked_up(self._token, address, self._generation)
        self._judge(record)

    def _judge(self, record: TwinRecord | None) -> None:
        arrivals, handshake = self._arrivals, self._handshake
        if handshake.socket.over:
            return  # the client has gone
        key, twin = arrivals.admission.judge(self._token, record)
        worker = arrivals.worker
        self._session = worker.open(key, handshake.socket, twin, handshake.user_agent, self)
        arrivals.patience.add(self, self.claim_made, worker.loop)

    # --- Opening ------------------------------------------------------------------------------

    def claim_made(self) -> None:
        """Accept the client, as its claim was answered or takes too long."""
        if self.is_answered:
            return
        self.is_answered = True
        self._arrivals.patience.remove(self)
        socket, session = self._handshake.socket, self._session
        try:
            if socket.over:
                self._arrivals.worker.end(session, SessionReason.CLIENT_CLOSE)
            else:
                self._handshake.accept()
                socket.start(session, session.destination.key[0])
        except Exception:
            log.exception("a sign-in failed")
            socket.abort()
            self._arrivals.worker.end(session, SessionReason.CLIENT_CLOSE)

    async def answered(self) -> None:
        """Do nothing: `claim_made` has already answered the client."""


def _record_of(flight: Flight) -> TwinRecord | None:
    """Return the record that a look-up found.

    Raises:
        Refusal: the look-up failed.
    """
    try:
        if not flight.cancelled():
            return flight.result()
    except TwinLookupError:
        pass
    raise look_up_failed()
