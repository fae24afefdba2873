"""Limits of RMB messages, each with its unit and reason.

The sizes of an envelope's fields are defaults that an operator may change (`Bounds`). The times are
those of the reference relay and peer (rmb-rs 1.5), and clients rely on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of one websocket message; the reference relay accepts 15 MiB and closes the
connection at 17 MiB."""

MAX_CONNECTION_BYTES: Final = 128
"""Maximum size of a session id or an address' connection: it becomes part of Redis keys."""

LONGEST_CONNECTION_BYTES: Final = 1024
"""Maximum value of the setting `relay.max_sid_bytes`."""

MAX_UID_BYTES: Final = 256
"""Maximum size of a uid. Clients use 36 bytes (UUID text); it is echoed in every answer and kept in
backlogs."""

MAX_REPEATED_UID_BYTES: Final = 4096
"""Maximum size of a uid that an error about a request repeats, even if it exceeds
`MAX_UID_BYTES`."""

MAX_TAGS_BYTES: Final = 1024
"""Maximum size of the tags, which are split on the hot path when the destination is offline."""

MAX_RELAYS_BYTES: Final = 4096
"""Maximum size of all entries of the deprecated relays list together: sixteen host names of the
maximum length, while clients send only the few of their own."""

MAX_RELAYS: Final = 64
"""Maximum number of entries of that list: sixteen long host names fit into it, and empty ones have
no use."""

UNCOUNTED_RELAYS_BYTES: Final = 3 * MAX_RELAYS + 2
"""Size up to which an envelope cannot have more than `MAX_RELAYS` entries, as each takes at least
three bytes."""

MAX_FIELDS: Final = 128
"""Maximum number of fields of one envelope: fifteen are defined, of which only relays is a list."""

MAX_TWIN: Final = 2**32 - 1
"""Largest twin id: a uint32 on the wire and on chain."""

MAX_CHARACTER_BYTES: Final = 4
"""Maximum size of one character in UTF-8: a text with at most a quarter as many characters as its
bound has bytes need not be encoded to be measured."""

NOTICE_EXPIRATION_S: Final = 300
"""Expiration of an error envelope made by a relay."""

NOTICE_REST_BYTES: Final = 2048
"""Maximum size of such an envelope without its uid and address. Relays write a text of less than a
hundred characters, two times and a code."""

DEFAULT_EXPIRATION_S: Final = 300
"""Expiration that a peer gives a request without one."""

RESPONSE_EXPIRATION_S: Final = 3600
"""Expiration that a peer gives a service's response, before it is limited to `MAX_EXPIRATION_S`."""

MAX_EXPIRATION_S: Final = 1800
"""Maximum expiration that a peer sends; a relay forwards any value."""

MAX_CLOCK_OFF_S: Final = 24 * 3600
"""Maximum time that a sender's clock may be ahead; no clock produces a later time stamp."""

MAX_LIFE_S: Final = 366 * 24 * 3600
"""Maximum expiration of a genuine message. The times are signed as one sequence of digits, so that
1712345678 and 60, long expired, can be replayed as 1 and 71234567860."""

CHALLENGE_BYTES: Final = 16
"""Size of the md5 digest that is signed for an envelope."""

SIGNATURE_BYTES: Final = 65
"""Size of a signature: one byte for the key type and 64 bytes."""

UID_BYTES: Final = 16
"""Number of random bytes behind the text of a uid."""

NONCE_BYTES: Final = 12
"""Size of the AES-GCM nonce at the beginning of a cipher payload."""

TAG_BYTES: Final = 16
"""Size of the AES-GCM authentication tag at its end."""

PING_EXPIRATION_S: Final = 40
"""Expiration of an envelope ping, as the TypeScript client sends it."""

MAX_SHARED_SECRETS: Final = 1024
"""Number of shared secrets that a peer caches; each takes about 50 us to compute."""

MAX_REMEMBERED_MESSAGES: Final = 100_000
"""Number of messages that a peer remembers to detect repeats, about 250 bytes each. A relay repeats
the messages sent shortly before a connection broke, which are far fewer."""

MAX_PENDING_REQUESTS: Final = 10_000
"""Maximum number of unanswered requests of one peer; each keeps a uid and a deadline."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Maximum sizes of the fields of envelopes, in bytes of UTF-8.

    Each bounds a whole field, so a message that is not larger cannot exceed it: see
    `unchecked_bytes`.
    """

    uid_bytes: int = MAX_UID_BYTES
    tags_bytes: int = MAX_TAGS_BYTES
    relays_bytes: int = MAX_RELAYS_BYTES
    connection_bytes: int = MAX_CONNECTION_BYTES
    unchecked_bytes: int = field(init=False)
    """Size of a message up to which the sizes of uid, tags and relays need not be checked."""
    notice_bytes: int = field(init=False)
    """Maximum size of a whole error envelope made by a relay."""

    def __post_init__(self) -> None:
        smallest = min(self.uid_bytes, self.tags_bytes, self.relays_bytes)
        object.__setattr__(self, "unchecked_bytes", smallest)
        notice_bytes = self.uid_bytes + self.connection_bytes + NOTICE_REST_BYTES
        object.__setattr__(self, "notice_bytes", notice_bytes)


DEFAULT_BOUNDS: Final = Bounds()
