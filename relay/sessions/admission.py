"""Admission of clients: the checks of a handshake, in the order of the reference, with its answers.

    no query string                                400  missing jwt
    token unreadable, expired, badly signed        401  invalid jwt: ...
    twin lookup failed                             500
    twin unknown                                   401  twin not found N
    and ours: too many handshakes, or look-ups
    on the chain, from an address; too many
    sessions of the twin; its input ended too
    many of them just now                          429
    twin or address banned                         403
    above capacity or draining                     503

All checks come before the upgrade, the cheap ones first, because clients that are refused redial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from proto.identity import tokens
from proto.identity.errors import ExpiredTokenError, TokenError
from proto.identity.tokens import Token
from proto.limits.addresses import place_of
from proto.limits.bucket import TokenBuckets
from proto.rmb.reasons import SESSIONS, SessionReason
from relay.queues.keys import SessionKey
from relay.sessions.clocks import TwinClocks
from relay.twins.batches import Flight
from relay.twins.cache import MISSING, TwinLookupError
from relay.twins.look_ups import LookUps, PlaceLimitError
from relay.twins.source import TwinRecord

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

BURST_S: Final = 5
"""Seconds of its rate that an address may use at once: clients behind one address redial together
after a restart."""

OF_ADDRESS: Final = (SessionReason.IP_LIMIT, SessionReason.ADDRESS_BANNED)
"""Refusals that count against the address."""


class Refusal(Exception):
    """A handshake is refused with this status and text.

    Attributes:
        reason: reason for the metrics; a missing token or a failed look-up has none of its own.
    """

    def __init__(self, status: int, text: str, reason: SessionReason) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason


class Admitted(NamedTuple):
    """The session key and twin of a client whose token is valid."""

    key: SessionKey
    twin: TwinRecord


class Admission:
    """The checks of one worker's handshakes."""

    def __init__(
        self,
        worker: Worker,
        look_ups: LookUps,
        *,
        handshakes_per_ip_per_s: int,
        max_sid_bytes: int,
        max_token_lifetime_s: int,
        sessions_per_twin: int = 0,
    ) -> None:
        self._worker = worker
        self._look_ups = look_ups
        self._max_sid_bytes = max_sid_bytes
        self._max_token_lifetime_s = max_token_lifetime_s
        self._sessions_per_twin = sessions_per_twin
        self._handshakes: TokenBuckets[str] | None = None
        if handshakes_per_ip_per_s:
            self._handshakes = TokenBuckets(
                handshakes_per_ip_per_s, handshakes_per_ip_per_s * BURST_S
            )
        self.clocks = TwinClocks()

    async def admit(self, query: bytes | None, address: str) -> Admitted:
        """Check one handshake.

        Args:
            query: the query string, which is the token; None if the URL has none.
            address: address of the client, without a port.

        Raises:
            Refusal: the handshake is refused, with the answer to send.
        """
        token = self.read(query, address)
        twins = self._worker.twins
        record = twins.get(token.twin)
        if record is MISSING:
            generation = twins.generation
            record = await self.look_up(token, address)
            self.looked_up(token, address, generation)
        return self.judge(token, record)

    def read(self, query: bytes | None, address: str) -> Token:
        """Read the token, and make the checks that do not need the twin.

        Raises:
            Refusal: the handshake is refused, with the answer to send.
        """
        worker = self._worker
        self.admit_connection(address)
        if query is None:
            raise Refusal(400, "missing jwt", SessionReason.UNAUTHORIZED)
        try:
            token = tokens.parse(query, worker.now_s(), self._max_token_lifetime_s)
            if token.sid is not None and len(token.sid.encode()) > self._max_sid_bytes:
                raise TokenError(f"sid is longer than {self._max_sid_bytes} bytes")
        except TokenError as error:
            raise self._invalid(error) from None
        return token

    def flight(self, token: Token) -> Flight | None:
        """Start the look-up of a token's twin, if that needs no more than a future.

        Returns:
            The future, which may end with `TwinLookupError`; None: `look_up` has to be used.

        Raises:
            Refusal: too many look-ups wait already.
        """
        try:
            return self._look_ups.flight(token.twin)
        except TwinLookupError:
            raise look_up_failed() from None

    async def look_up(self, token: Token, address: str) -> TwinRecord | None:
        """Look up the twin of a token that is not in the cache.

        Raises:
            Refusal: the handshake is refused, with the answer to send.
        """
        try:
            return await self._look_ups.look_up(token.twin, place_of(address))
        except PlaceLimitError:
            raise refusal_for(SessionReason.IP_LIMIT) from None
        except TwinLookupError:
            raise look_up_failed() from None

    def looked_up(self, token: Token, address: str, generation: int) -> None:
        """Repeat the checks whose result may have changed during a look-up.

        Args:
            generation: generation of the twin cache when the look-up began.

        Raises:
            Refusal: the handshake is refused, with the answer to send.
        """
        if self._worker.twins.generation != generation:
            self._worker.rights.changed([token.twin])  # checks again when the session is open
        self._check_open()  # other clients may have connected meanwhile
        self._check_address(address)

    def judge(self, token: Token, record: TwinRecord | None) -> Admitted:
        """Check a token against its twin.

        Raises:
            Refusal: the handshake is refused, with the answer to send.
        """
        worker = self._worker
        if not worker.meters.may_sign_in(token.twin, worker.loop.time()):
            raise refusal_for(SessionReason.IP_LIMIT)
        if record is None:
            raise Refusal(401, f"twin not found {token.twin}", SessionReason.UNAUTHORIZED)
        try:
            tokens.check_signature(token, record.account)
        except TokenError as error:
            raise self._invalid(error) from None
        self.clocks.seen(token.twin, max(0, token.issued_at - worker.now_s()))
        if token.twin in worker.router.banned:
            raise refusal_for(SessionReason.BANNED)
        key = (token.twin, token.sid)
        if self._is_one_too_many(key):
            raise refusal_for(SessionReason.TWIN_SESSIONS)
        return Admitted(key, record)

    def _invalid(self, error: TokenError) -> Refusal:
        if isinstance(error, ExpiredTokenError):
            self.clocks.seen(error.twin, -error.late_s)
        return Refusal(401, f"invalid jwt: {error}", SessionReason.UNAUTHORIZED)

    def admit_connection(self, address: str) -> None:
        """Check a connection before a client signs in.

        Args:
            address: address of the client, without a port.

        Raises:
            Refusal: the connection is refused, with the answer to send.
        """
        self._check_address(address)
        now = self._worker.loop.time()
        if self._handshakes is not None and not self._handshakes.take(place_of(address), now):
            raise refusal_for(SessionReason.IP_LIMIT)
        self._check_open()

    def note_refusal(self, refused: Refusal, address: str) -> None:
        """Count a handshake that is refused.

        Args:
            address: address of the client, without a port.
        """
        self._worker.metrics.refused_handshakes[refused.reason] += 1
        if refused.reason in OF_ADDRESS:
            self._worker.hits.handshake(address)

    def _is_one_too_many(self, key: SessionKey) -> bool:
        """Check whether the twin has its maximum number of sessions here.

        A session that replaces another is not an additional one.
        """
        bound = self._sessions_per_twin
        if not bound or self._worker.meters.connections(key[0]) < bound:
            return False
        destination = self._worker.destinations.get(key)
        return destination is None or destination.session is None

    def _check_address(self, address: str) -> None:
        """Refuse an address that an operator banned."""
        if self._worker.router.banned_addresses.covers(address):
            raise refusal_for(SessionReason.ADDRESS_BANNED)

    def _check_open(self) -> None:
        """Refuse a client while the worker drains or is at capacity."""
        worker = self._worker
        if worker.draining:
            raise refusal_for(SessionReason.DRAINED)
        if worker.connections >= worker.options.capacity:
            raise refusal_for(SessionReason.CAPACITY)


def look_up_failed() -> Refusal:
    """Return the refusal for a twin that could not be looked up.

    The cause is only in the log, as it names nodes and databases.
    """
    return Refusal(500, "twin lookup failed", SessionReason.UNAUTHORIZED)


def refusal_for(reason: SessionReason) -> Refusal:
    """Return the refusal for a session reason."""
    end = SESSIONS[reason]
    assert end.http_status is not None
    return Refusal(end.http_status, end.text, reason)
