"""Who may join: the checks of a handshake, in the order and with the answers of the reference.

    no query string                                400  missing jwt
    token unreadable, expired, badly signed        401  invalid jwt: ...
    twin lookup failed                             500
    twin unknown                                   401  twin not found N
    and ours: too many handshakes from an address  429, twin banned 403, above capacity or
    draining                                       503

All of it comes before the upgrade, and cheap checks come first: a refusal makes clients redial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from proto.identity import tokens
from proto.identity.errors import ExpiredTokenError, TokenError
from proto.limits.addresses import place_of
from proto.limits.bucket import TokenBuckets
from proto.rmb.reasons import SESSIONS, SessionReason
from relay.queues.keys import SessionKey
from relay.sessions.clocks import TwinClocks
from relay.twins.cache import MISSING, TwinLookupError
from relay.twins.source import TwinRecord

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

BURST_S: Final = 5
"""An address may use so many seconds of its rate at once: clients behind one address redial
together after a restart."""
LOOK_UPS: Final = 1024
"""Twin look-ups before authentication under way at once, in a worker."""
ADDRESS_LOOK_UPS_PER_S: Final = 500
"""... and begun per second and address: unknown twins are cheap to name."""


class Refusal(Exception):
    """The handshake is answered with this status and text.

    Attributes:
        reason: for the metrics; a missing token or a failed look-up has none of its own.
    """

    def __init__(self, status: int, text: str, reason: SessionReason) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason


class Admitted(NamedTuple):
    """A client that has proven whose session it opens."""

    key: SessionKey
    twin: TwinRecord


class Admission:
    """The checks of one worker's handshakes."""

    def __init__(
        self,
        worker: Worker,
        *,
        handshakes_per_ip_per_s: int,
        max_sid_bytes: int,
        max_token_lifetime_s: int,
    ) -> None:
        self._worker = worker
        self._max_sid_bytes = max_sid_bytes
        self._max_token_lifetime_s = max_token_lifetime_s
        self._handshakes: TokenBuckets[str] | None = None
        if handshakes_per_ip_per_s:
            self._handshakes = TokenBuckets(
                handshakes_per_ip_per_s, handshakes_per_ip_per_s * BURST_S
            )
        self._look_ups: TokenBuckets[str] = TokenBuckets(
            ADDRESS_LOOK_UPS_PER_S, ADDRESS_LOOK_UPS_PER_S * BURST_S
        )
        self._looking_up = 0
        self.clocks = TwinClocks()

    async def admit(self, query: bytes | None, address: str) -> Admitted:
        """Judges one handshake.

        Args:
            query: the query string, which is the token; None where the URL has none.
            address: of the client, without a port.

        Raises:
            Refusal: with the answer to give.
        """
        worker = self._worker
        now = worker.loop.time()
        address = place_of(address)
        if self._handshakes is not None and not self._handshakes.take(address, now):
            raise _refusal(SessionReason.IP_LIMIT)
        self._check_open()
        if query is None:
            raise Refusal(400, "missing jwt", SessionReason.UNAUTHORIZED)
        try:
            token = tokens.parse(query, worker.now_s(), self._max_token_lifetime_s)
            if token.sid is not None and len(token.sid.encode()) > self._max_sid_bytes:
                raise TokenError(f"sid is longer than {self._max_sid_bytes} bytes")
            record = worker.twins.get(token.twin)
            if record is MISSING:
                record = await self._look_up(token.twin, address, now)
                self._check_open()  # others came meanwhile
            if record is None:
                raise Refusal(401, f"twin not found {token.twin}", SessionReason.UNAUTHORIZED)
            tokens.check_signature(token, record.account)
            self.clocks.seen(token.twin, max(0, token.issued_at - worker.now_s()))
        except TokenError as error:
            if isinstance(error, ExpiredTokenError):
                self.clocks.seen(error.twin, -error.late_s)
            raise Refusal(401, f"invalid jwt: {error}", SessionReason.UNAUTHORIZED) from None
        if token.twin in worker.router.banned:
            raise _refusal(SessionReason.BANNED)
        return Admitted((token.twin, token.sid), record)

    def _check_open(self) -> None:
        """Refuses where nobody more is taken."""
        worker = self._worker
        if worker.draining:
            raise _refusal(SessionReason.DRAINED)
        if worker.connections >= worker.options.capacity:
            raise _refusal(SessionReason.CAPACITY)

    async def _look_up(self, twin: int, address: str, now: float) -> TwinRecord | None:
        if self._looking_up >= LOOK_UPS or not self._look_ups.take(address, now):
            raise _refusal(SessionReason.IP_LIMIT)
        self._looking_up += 1
        try:
            return await self._worker.twins.look_up(twin)
        except TwinLookupError:
            # Why is in the log: it names nodes and databases, which are nobody's business.
            raise Refusal(500, "twin lookup failed", SessionReason.UNAUTHORIZED) from None
        finally:
            self._looking_up -= 1


def _refusal(reason: SessionReason) -> Refusal:
    end = SESSIONS[reason]
    assert end.http_status is not None
    return Refusal(end.http_status, end.text, reason)
