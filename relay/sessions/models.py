"""The history of sessions, written by `relay.sessions.history` only, in batches.

The authority for held sessions is the directory in Redis: a row may be some seconds behind it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db import models

from proto.identity.bounds import MAX_TWIN
from relay.queues.keys import SessionKey, key_text

# In a unique index, whose entries PostgreSQL limits to 2.7 kB.
MAX_SID_CHARS = 1024
MAX_REMOTE_CHARS = 64
MAX_USER_AGENT_CHARS = 200
MAX_REASON_CHARS = 32
MAX_PEER_CHARS = 64

RMB = "rmb"
SBD = "sbd"
PROTOCOLS = (RMB, SBD)
WEBSOCKET = "websocket"
STREAMS = "streams"
CARRIERS = (WEBSOCKET, STREAMS)
"""What can carry a session: a websocket of its own, or a stream of a connection."""


class Peer(NamedTuple):
    """A client that is not a twin.

    Attributes:
        protocol: protocol that it speaks.
        name: its name in the protocol; for SBD its public key in base64url without padding.
    """

    protocol: str
    name: str

    @property
    def text(self) -> str:
        """The session's key for operators."""
        return f"{self.protocol}:{self.name}"


class Session(models.Model):
    """One connection of a twin or of another client, from its claim to its end."""

    # Rows without a twin are found by the index of `peer_session_once`, which costs RMB nothing.
    protocol = models.CharField(max_length=8, default=RMB)
    twin = models.PositiveBigIntegerField("twin id", null=True, blank=True, db_index=True)
    peer = models.CharField(
        max_length=MAX_PEER_CHARS,
        blank=True,
        default="",
        help_text="Public key of an SBD client in base64url.",
    )
    # "No session id" and an empty one are different sessions.
    sid_present = models.BooleanField(default=False)
    sid = models.CharField("session id", max_length=MAX_SID_CHARS, blank=True, default="")
    epoch = models.PositiveBigIntegerField(
        help_text="Number of the connection: time of Redis in µs."
    )
    worker = models.CharField(max_length=64, db_index=True, help_text="Boot id of the worker.")
    slot = models.CharField(max_length=16, blank=True, default="")
    connection = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Number, at the worker, of the connection whose stream carries the session.",
    )
    stream = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Id of the stream in its connection; empty: a websocket of its own.",
    )
    remote = models.CharField("address", max_length=MAX_REMOTE_CHARS, blank=True, default="")
    user_agent = models.CharField(max_length=MAX_USER_AGENT_CHARS, blank=True, default="")
    opened_at = models.DateTimeField("connected", db_index=True)
    closed_at = models.DateTimeField("ended", null=True, blank=True, db_index=True)
    close_reason = models.CharField(
        "end", max_length=MAX_REASON_CHARS, blank=True, default="", db_index=True
    )
    messages_in = models.PositiveBigIntegerField(default=0)
    messages_out = models.PositiveBigIntegerField(default=0)
    bytes_in = models.PositiveBigIntegerField(default=0)
    bytes_out = models.PositiveBigIntegerField(default=0)
    backlog = models.PositiveBigIntegerField(
        default=0, help_text="Messages on the way to the client at the last count."
    )
    drops = models.PositiveBigIntegerField(
        default=0, help_text="Messages from or to the session that were not delivered."
    )
    slowed = models.PositiveBigIntegerField(
        default=0,
        help_text="Times the relay stopped reading from the client because it refused messages.",
    )

    class Meta:
        ordering = ("-opened_at", "-id")
        default_permissions = ("view",)
        permissions = (("kick_session", "Can end a session"),)
        constraints = (
            models.UniqueConstraint(
                fields=("twin", "epoch", "sid_present", "sid"), name="session_once"
            ),
            models.UniqueConstraint(
                fields=("protocol", "peer", "epoch"),
                condition=models.Q(twin=None),
                name="peer_session_once",
            ),
            models.CheckConstraint(
                condition=models.Q(
                    protocol=RMB, twin__isnull=False, twin__gte=1, twin__lte=MAX_TWIN, peer=""
                )
                | (models.Q(twin=None) & ~models.Q(protocol=RMB) & ~models.Q(peer="")),
                name="session_twin_or_peer",
            ),
        )

    def __str__(self) -> str:
        return f"session {self.key_text}"

    @property
    def key(self) -> SessionKey | Peer:
        if self.twin is None:
            return Peer(self.protocol, self.peer)
        return (self.twin, self.sid if self.sid_present else None)

    @property
    def key_text(self) -> str:
        """The session's key for operators: `<twin>`, `<twin>:<sid>` or `sbd:<key>`."""
        key = self.key
        return key.text if isinstance(key, Peer) else key_text(key)


def moment(unix_s: float) -> datetime:
    """Return a point in time for a row."""
    return datetime.fromtimestamp(unix_s, UTC)


def unix_us(at: datetime) -> int:
    """Return whole microseconds since 1970."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
