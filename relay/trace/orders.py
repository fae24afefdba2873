"""An order to trace: what is followed, how long, and how much of it.

Orders are fields `trace:<id>` of the hash `relay:control`; every process reads them within a second
of a change. Each looks at the end of an order itself, so one that nobody takes back ends all the
same.
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
    """What a trace follows."""

    UID = "uid"
    TWIN = "twin"
    SESSION = "session"


class OrderError(ValueError):
    """An order that makes no sense."""


class Order(NamedTuple):
    """One order.

    Attributes:
        id: names it.
        kind: what it follows.
        subject: the uid, the twin's id, or the session as `<twin>` or `<twin>:<session id>`.
        until: unix time of its end.
        sample: share of the messages that are followed, chosen by their uid: every process, and
            every relay, chooses the same ones.
        events_per_s: of one process, at most.
    """

    id: str
    kind: Kind
    subject: str
    until: float
    sample: float = 1.0
    events_per_s: int = EVENTS_PER_S

    @property
    def key(self) -> SessionKey:
        """The session, or the twin without one.

        Raises:
            RmbError: the subject is none.
        """
        return address.parse(self.subject)

    def samples(self, uid: str) -> bool:
        """Whether the message with this uid is one of the share."""
        return self.sample >= 1 or crc32(uid.encode()) < self.sample * _ALL

    def encode(self) -> str:
        """The order as it stands in `relay:control`."""
        return f"{self.until:.3f} {self.sample:.6g} {self.events_per_s} {self.kind} {self.subject}"


def decode(order_id: str, text: str) -> Order:
    """Reads an order.

    Raises:
        OrderError: it is none.
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
