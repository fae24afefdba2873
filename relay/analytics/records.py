"""Record of one event as the recorder packs it: 48 bytes, with numbers for texts.

The header of each segment (`relay.analytics.segments`) lists the names of kinds and reasons by
number, so the lists below may grow or change their order. Numbers of sessions and relays are
assigned while a segment is written. The processes of the relay that pack events and the one that
reads them use this module, so it needs only the standard library and the lists of reasons.
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

Little-endian without padding: a reader may map a block as an array of such rows. `uid` is a hash of
64 bits taken as signed; `latency_us` is `NO_LATENCY` if it is unknown. A row of SBD has the bit
`SBD` in its kind, 0 as `src_twin`, and numbers of keys as `session` (the source) and `dst_twin`
(the destination)."""

SBD: Final = 0x80
"""Bit of the kind: the row is one of SBD, whose clients have keys instead of twins."""

RECORD_BYTES: Final = RECORD.size

NO_LATENCY: Final = -1
"""Value for null in the column of latencies."""


class Kind(IntEnum):
    """Kinds of events; their names in lower case are the values of the column `kind`."""

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
"""Names of the kinds, at the index of their numbers."""

NONE: Final = "none"
"""Reason of success; its number is 0."""

REASONS: Final = tuple(
    dict.fromkeys(
        (
            *(NONE, *MessageReason, *SessionReason, *InboundReason),
            *(*DropReason, *EndReason, *LossReason),
        )
    )
)
"""All reasons, at the index of their numbers; a name of several enumerations is listed once."""

REASON_CODE: Final[dict[str, int]] = {str(reason): code for code, reason in enumerate(REASONS)}
"""Number of each reason. Members of the enumerations are strings and can be used as keys."""

assert len(REASONS) <= 256, "a reason is one byte"
assert len(KINDS) <= SBD, "a kind is seven bits"

NO_NAME: Final = 0
"""Number that stands for no name: a session without a name (""), or no partner relay (null)."""

OTHER: Final = "(other)"
"""Name that stands for all names after a segment's table of names was full; its number is 1."""

FIRST_NAMES: Final = ("", OTHER)
"""First names of each table of names."""

MAX_SESSIONS: Final = 200_000
"""Maximum session names in one segment, including `FIRST_NAMES`; clients choose the names."""

MAX_KEYS: Final = 50_000
"""Maximum keys of SBD clients in one segment, including `FIRST_NAMES`. Clients may address any key,
and each key is kept in memory until the segment is closed."""

MAX_REMOTES: Final = 10_000
"""Maximum partner relays in one segment; their number has two bytes."""

MAX_NAME_BYTES: Final = 1024
"""Maximum size of a name: the largest configurable session id or domain."""
