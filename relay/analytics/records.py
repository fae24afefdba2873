"""One event as the recorder packs it: 48 bytes, strings and names as numbers.

The numbers of kinds and reasons stand by name in the header of each segment
(`relay.analytics.segments`), so a list below may grow or be put in another order; those of sessions
and relays are given out while a segment is written. Both processes of the relay that pack events
and the one that reads them again use this, so it needs nothing but the standard library and the
lists of reasons.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from proto.federation.answers import InboundReason
from proto.rmb.reasons import MessageReason, SessionReason
from proto.sbd.errors import DropReason
from relay.sbd.options import EndReason, LossReason

RECORD: Final = Struct("<qqqqIIIHBB")
"""event_time_us, uid, size_bytes, latency_us, src_twin, dst_twin, session, remote, kind, reason.

Little-endian, and without a gap: a reader may map a block as an array of such rows. `uid` is a hash
of 64 bits taken as signed; `latency_us` is `NO_LATENCY` where there is none. A row of SBD has the
bit `SBD` in its kind, 0 as `src_twin`, and numbers of keys as `session` (the source) and `dst_twin`
(the destination).
"""

SBD: Final = 0x80
"""Bit of the kind: the row is one of SBD, whose clients are keys and no twins."""

RECORD_BYTES: Final = RECORD.size

NO_LATENCY: Final = -1
"""Null, in the column of latencies."""


class Kind(IntEnum):
    """What happened; the names in small letters are the column `kind`."""

    ACCEPTED = 0
    DELIVERED = 1
    QUEUED = 2
    DROPPED = 3
    FEDERATED_OUT = 4
    FEDERATED_IN = 5
    SESSION_OPEN = 6
    SESSION_CLOSE = 7
    LIMIT_HIT = 8
    ERROR = 9


KINDS: Final = tuple(kind.name.lower() for kind in Kind)
"""Name of each kind, at the place of its number."""

NONE: Final = "none"
"""The reason of what went well; its number is 0."""

REASONS: Final = tuple(
    dict.fromkeys(
        (
            *(NONE, *MessageReason, *SessionReason, *InboundReason),
            *(*DropReason, *EndReason, *LossReason),
        )
    )
)
"""Each reason once, at the place of its number: a session that ends for a message has its name."""

REASON_CODE: Final[dict[str, int]] = {str(reason): code for code, reason in enumerate(REASONS)}
"""Number of each reason; the members of the enumerations are strings, and are found as well."""

assert len(REASONS) <= 256, "a reason is one byte"
assert len(KINDS) <= SBD, "a kind is seven bits"

NO_NAME: Final = 0
"""The number of no name: a session without one (""), no other relay (null)."""

OTHER: Final = "(other)"
"""The name of all that came after a segment's table of names was full; its number is 1."""

FIRST_NAMES: Final = ("", OTHER)
"""What each table of names begins with."""

MAX_SESSIONS: Final = 200_000
"""Session names in one segment, with those of above: clients choose them."""

MAX_KEYS: Final = 50_000
"""Keys of SBD clients in one segment, with those of above. Clients address any key they like; each
is kept in memory until the segment is closed."""

MAX_REMOTES: Final = 10_000
"""Other relays in one segment; the number has two bytes."""

MAX_NAME_BYTES: Final = 1024
"""As long as a session id or a domain may be configured to be."""
