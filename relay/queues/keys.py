"""Names of the Redis keys and channels that queues and sessions live under.

The text of a session key is part of them. A connection of ``None`` (no session id) and ``""`` are
two different sessions, so their names differ too: ``stream:7`` and ``stream:7:``. The stream names
are those of the reference relay, so that one can take over the other's Redis.
"""

from __future__ import annotations

from typing import Final

from proto.rmb.address import SessionKey
from proto.rmb.address import format as key_text
from proto.rmb.address import parse as parse_key

__all__ = ["SessionKey", "key_text", "parse_key"]

SESSIONS: Final = "relay:sessions"
GUESTS: Final = "relay:guests"
GUESTS_VERSION: Final = "relay:guests:version"
WORKERS: Final = "relay:workers"
CONTROL: Final = "relay:control"
TWINS: Final = "relay:twin"
TWINS_VERSION: Final = "relay:twin:version"
TWINS_CHANNEL: Final = "relay:twins"
SCHEMA: Final = "relay:schema"
UNUSED: Final = "relay:unused"
"""Never written: deleting it is the write that is allowed out of memory (see ``lua/claim.lua``)."""

SCHEMA_VERSION: Final = 1
OUTBOX_SHARDS: Final = 8


def stream(text: str) -> bytes:
    """The Redis stream that queues the session named `text`."""
    return b"stream:" + text.encode()


def wake(text: str) -> bytes:
    """The channel that announces news for the session named `text`."""
    return b"wake:" + text.encode()


def worker(boot_id: str) -> str:
    """The hash with a worker's heartbeat and counters."""
    return f"relay:worker:{boot_id}"


def commit_number(boot_id: str) -> str:
    """The string with the number of a worker's last applied batch."""
    return f"relay:commit:{boot_id}"


def share(text: str) -> str:
    """The hash with how many queued messages each source twin has in one session's stream."""
    return f"relay:share:{text}"


def limit(twin: int, window: int) -> str:
    """The counter of one twin in one window of the rate limit."""
    return f"limits:{twin}:{window}"


def outbox(twin: int) -> str:
    """The federation stream that messages for `twin` leave through."""
    return f"federation:out:{twin % OUTBOX_SHARDS}"
