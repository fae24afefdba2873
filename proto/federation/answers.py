"""HTTP answers to the envelopes that partner relays deliver, by reason.

The reference relay (rmb-rs 1.5) treats every 4xx as final and reports to the sender that its
destination is offline; it retries after any other error. So 4xx is for what no retry can change,
and 503 with Retry-After for the rest.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from proto.federation.batch import ACCEPTED, HAD_ALREADY
from proto.rmb.reasons import MessageReason


class InboundReason(StrEnum):
    """Reason for which a partner relay's envelope was not accepted, beyond those in
    `MessageReason`.
    """

    UNKNOWN_SOURCE = "unknown_source"
    BLOCKED = "blocked"
    ADDRESS_BANNED = "address_banned"
    TOO_OLD = "too_old"
    BAD_BATCH = "bad_batch"
    SLOW_BODY = "slow_body"
    BODY_ENDED = "body_ended"
    BODIES_FULL = "bodies_full"
    ADDRESS_LIMIT = "address_limit"
    LOOK_UP_FAILED = "look_up_failed"
    CHECKS_FULL = "checks_full"
    UNDER_WAY = "under_way"
    BEFORE_REFUSED = "before_refused"
    REDIS_AWAY = "redis_away"
    OVERFULL = "overfull"
    CLIENT_GONE = "client_gone"
    STARTING = "starting"
    DRAINING = "draining"


Reason = MessageReason | InboundReason


class Answer(NamedTuple):
    """One HTTP answer.

    Attributes:
        status: HTTP status.
        reason: reason for the metrics; None if the envelope was accepted.
        text: the body.
        retry_after_s: seconds after which to retry, with a temporary refusal.
    """

    status: int
    reason: Reason | None = None
    text: str = ""
    retry_after_s: int = 0

    @property
    def final(self) -> bool:
        """Whether the refusal is permanent."""
        return 400 <= self.status < 500

    @property
    def temporary(self) -> bool:
        """Whether a retry may be accepted."""
        return self.status >= 500


RETRY_AFTER_S: Final = 1
"""Seconds to wait after a temporary refusal. The reference relay does not read it; relays of this
implementation have their own back-off."""

TAKEN: Final = Answer(ACCEPTED)
REPEATED: Final = Answer(HAD_ALREADY)
"""Answer of the batch form to a repeated message; the single form answers `TAKEN`."""

MEANINGS: Final[dict[Reason, tuple[int, str]]] = {
    MessageReason.UNPARSABLE: (400, "not an envelope"),
    MessageReason.EMPTY: (400, "empty body"),
    MessageReason.MISSING_DESTINATION: (400, "envelope without destination"),
    InboundReason.BAD_BATCH: (400, "not a batch"),
    MessageReason.BAD_SIGNATURE: (403, "not signed by its source twin"),
    InboundReason.UNKNOWN_SOURCE: (403, "unknown source twin"),
    MessageReason.UNKNOWN_TWIN: (403, "unknown destination twin"),
    MessageReason.NO_RELAY: (403, "destination twin has no relay"),
    MessageReason.NO_USABLE_RELAY: (403, "destination twin lists no usable relay"),
    MessageReason.NOT_HERE: (403, "destination twin does not use this relay"),
    MessageReason.BANNED: (403, "twin is banned"),
    InboundReason.BLOCKED: (403, "relay is blocked"),
    InboundReason.ADDRESS_BANNED: (403, "address is banned"),
    InboundReason.TOO_OLD: (403, "message ended its life more than a day ago"),
    MessageReason.OFFLINE_FAILFAST: (404, "destination offline"),
    MessageReason.TOO_LARGE: (413, "too large"),
    MessageReason.LIMIT_COUNT: (503, "source twin exceeded its rate limit"),
    MessageReason.LIMIT_SIZE: (503, "source twin exceeded its rate limit"),
    MessageReason.QUEUE_FULL: (503, "destination queue is full"),
    MessageReason.SOURCE_SHARE: (503, "source twin's share of the destination queue is full"),
    MessageReason.SOURCE_FULL: (503, "too many messages of the source twin wait in queues"),
    MessageReason.TWIN_FULL: (503, "all queues of the destination twin are full"),
    MessageReason.STORAGE_FULL: (503, "relay storage is full"),
    InboundReason.SLOW_BODY: (503, "body came too slowly"),
    InboundReason.BODY_ENDED: (503, "body ended early"),
    InboundReason.BODIES_FULL: (503, "too many bodies at once"),
    InboundReason.ADDRESS_LIMIT: (503, "too many deliveries from this address"),
    InboundReason.LOOK_UP_FAILED: (503, "twin look-up failed"),
    InboundReason.CHECKS_FULL: (503, "too many signatures to check"),
    InboundReason.UNDER_WAY: (503, "the same message is under way"),
    InboundReason.BEFORE_REFUSED: (503, "an earlier message to this twin was not taken"),
    InboundReason.REDIS_AWAY: (503, "relay storage is away"),
    InboundReason.OVERFULL: (503, "relay is overloaded"),
    InboundReason.CLIENT_GONE: (503, "the client has gone"),
    InboundReason.STARTING: (503, "relay is not ready for this yet"),
    InboundReason.DRAINING: (503, "relay is about to restart"),
}
"""Status and text of each refusal."""

_REFUSALS: Final = {
    reason: Answer(status, reason, text, RETRY_AFTER_S if status == 503 else 0)
    for reason, (status, text) in MEANINGS.items()
}


def refused(reason: Reason, retry_after_s: int = 0) -> Answer:
    """Return the answer for a reason.

    Args:
        reason: one of `MEANINGS`.
        retry_after_s: seconds until the reason no longer holds, where that is known.
    """
    answer = _REFUSALS[reason]
    return answer._replace(retry_after_s=retry_after_s) if retry_after_s else answer
