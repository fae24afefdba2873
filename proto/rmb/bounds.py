"""Limits of RMB messages: a constant, its unit, its reason.

The sizes of an envelope's fields are defaults an operator may change (`Bounds`); the times are
those of the reference relay and peer (rmb-rs 1.5) and part of what clients rely on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""One websocket message; the reference takes 15 MiB and closes at 17 MiB."""

MAX_CONNECTION_BYTES: Final = 128
"""A session id or the connection part of an address: it becomes part of Redis keys."""

LONGEST_CONNECTION_BYTES: Final = 1024
"""... and the most that `relay.max_sid_bytes` may allow."""

MAX_UID_BYTES: Final = 256
"""Clients use 36 (UUID text); it is echoed in every answer and kept in backlogs."""

MAX_REPEATED_UID_BYTES: Final = 4096
"""The error about a request repeats its uid up to this, also where it is above its bound."""

MAX_TAGS_BYTES: Final = 1024
"""Tags are split on the hot path when the destination is away."""

MAX_RELAYS_BYTES: Final = 4096
"""All entries of the deprecated relays list together: sixteen of the longest host names there
are, where clients send at most their own handful."""

MAX_RELAYS: Final = 64
"""Entries of that list: sixteen host names fit into it, and empty ones are of no use."""

UNCOUNTED_RELAYS_BYTES: Final = 3 * MAX_RELAYS + 2
"""An entry takes three bytes at least: what is not larger has no more of them than that."""

MAX_FIELDS: Final = 128
"""Of one envelope: there are fifteen, of which only relays is a list."""

MAX_TWIN: Final = 2**32 - 1
"""Twin ids are uint32 on the wire and on chain."""

MAX_CHARACTER_BYTES: Final = 4
"""One character in UTF-8: text of so many fewer characters needs no encoding to be measured."""

NOTICE_EXPIRATION_S: Final = 300
"""Life of an error envelope made by a relay."""

NOTICE_REST_BYTES: Final = 2048
"""What such an envelope may have beside a uid and an address. Those of relays have a text of less
than a hundred characters, two times and a code."""

DEFAULT_EXPIRATION_S: Final = 300
"""What a peer gives a request that names no expiration."""

RESPONSE_EXPIRATION_S: Final = 3600
"""What a peer gives a service's response, before the clamp."""

MAX_EXPIRATION_S: Final = 1800
"""A peer clamps every expiration to this; a relay forwards what it is given."""

MAX_CLOCK_OFF_S: Final = 24 * 3600
"""So far ahead a sender's clock may be: what is stamped later was not made by a clock."""

MAX_LIFE_S: Final = 366 * 24 * 3600
"""What has a longer expiration is no message that somebody made: times are signed as one row of
digits, so that 1712345678 and 60, long expired, can be read as 1 and 71234567860 too."""

CHALLENGE_BYTES: Final = 16
"""An md5 digest: what is signed of an envelope."""

SIGNATURE_BYTES: Final = 65
"""One byte key type and 64 bytes signature."""

UID_BYTES: Final = 16
"""Random ones behind the text of a uid."""

NONCE_BYTES: Final = 12
"""AES-GCM nonce in front of a cipher payload."""

TAG_BYTES: Final = 16
"""AES-GCM authentication tag at its end."""

PING_EXPIRATION_S: Final = 40
"""Life of an envelope ping, as the TypeScript client sends it."""

MAX_SHARED_SECRETS: Final = 1024
"""Secrets shared with other twins that a peer keeps; each takes some 50 us to make again."""

MAX_REMEMBERED_MESSAGES: Final = 100_000
"""Messages a peer remembers to know repeats by, some 250 bytes each. A relay repeats what it sent
shortly before a connection broke, far fewer."""

MAX_PENDING_REQUESTS: Final = 10_000
"""Requests one peer waits for at a time; each keeps a uid and a deadline."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds a relay puts on the fields of envelopes; all in bytes of UTF-8.

    Each is a bound on the whole field, so a message that is not larger cannot break it: see
    `unchecked_bytes`.
    """

    uid_bytes: int = MAX_UID_BYTES
    tags_bytes: int = MAX_TAGS_BYTES
    relays_bytes: int = MAX_RELAYS_BYTES
    connection_bytes: int = MAX_CONNECTION_BYTES
    unchecked_bytes: int = field(init=False)
    """Up to this size a message needs no look at the sizes of uid, tags and relays."""
    notice_bytes: int = field(init=False)
    """An error that a relay made, as a whole."""

    def __post_init__(self) -> None:
        smallest = min(self.uid_bytes, self.tags_bytes, self.relays_bytes)
        object.__setattr__(self, "unchecked_bytes", smallest)
        notice_bytes = self.uid_bytes + self.connection_bytes + NOTICE_REST_BYTES
        object.__setattr__(self, "notice_bytes", notice_bytes)


DEFAULT_BOUNDS: Final = Bounds()
