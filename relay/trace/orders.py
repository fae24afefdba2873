"""Orders to trace: what is followed, how long, and how much of it.

Orders are fields `trace:<id>` of the hash `relay:control`; every process reads them within a second
of a change. Each process checks the end of an order itself, so that an order that is not removed
ends all the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple
from zlib import crc32

from proto.rmb import address
from proto.rmb.address import SessionKey
from proto.rmb.errors import RmbError
from relay.trace.bounds import EVENTS_PER_S, MAX_EVENTS_PER_S, MIN_SAMPLE

_ALL: Final = 1 << 32


class Kind(StrEnum):
    """Kinds of objects that a trace follows."""

    UID = "uid"
    TWIN = "twin"
    SESSION = "session"


class OrderError(ValueError):
    """An order is invalid."""


class Order(NamedTuple):
    """One order.

    Attributes:
        id: id of the order.
        kind: kind of what it follows.
        subject: uid, id of the twin, or the session as `<twin>` or `<twin>:<session id>`.
        until: unix time of its end.
        sample: share of the messages that are followed, chosen by their uid: every process and
            every relay chooses the same ones.
        events_per_s: most events per second in one process.
    """

    id: str
    kind: Kind
    subject: str
    until: float
    sample: float = 1.0
    events_per_s: int = EVENTS_PER_S

    @property
    def key(self) -> SessionKey:
        """Key of the session, or of the twin without a session.

        Raises:
            RmbError: the subject is invalid.
        """
        return address.parse(self.subject)

    def samples(self, uid: str) -> bool:
        """Check whether the message with this uid belongs to the sampled share."""
        return self.sample >= 1 or crc32(uid.encode()) < self.sample * _ALL

    def encode(self) -> str:
        """Encode the order for `relay:control`."""
        return f"{self.until:.3f} {self.sample:.6g} {self.events_per_s} {self.kind} {self.subject}"


def decode(order_id: str, text: str) -> Order:
    """Decode an order.

    Raises:
        OrderError: it is invalid.
    """
    until, _, rest = text.partition(" ")
    sample, _, rest = rest.partition(" ")
    events_per_s, _, rest = rest.partition(" ")
    kind, _, subject = rest.partition(" ")
    try:
        order = Order(order_id, Kind(kind), subject, float(until), float(sample), int(events_per_s))
        if order.kind is not Kind.UID:
            order.key  # noqa: B018
    except (ValueError, RmbError) as error:
        raise OrderError(f"trace order {order_id} is malformed: {error}") from error
    if not subject or not 1 <= order.events_per_s <= MAX_EVENTS_PER_S:
        raise OrderError(f"trace order {order_id} is out of bounds")
    if not MIN_SAMPLE <= order.sample <= 1:
        raise OrderError(f"trace order {order_id} follows {order.sample:g} of the messages")
    return order
