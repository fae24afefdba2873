"""The list of reasons for which a message ends undelivered or a session closes.

Logs, metrics, analytics, the admin and close frames all use these names. `docs/protocol/reasons.md`
is checked against the tables below.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class MessageReason(StrEnum):
    """Reason for which a message was not delivered."""

    UNPARSABLE = "unparsable"
    EMPTY = "empty"
    TEXT_FRAME = "text_frame"
    TOO_LARGE = "too_large"
    WRONG_SOURCE = "wrong_source"
    MISSING_DESTINATION = "missing_destination"
    UNKNOWN_TWIN = "unknown_twin"
    NO_RELAY = "no_relay"
    OFFLINE_FAILFAST = "offline_failfast"
    LIMIT_COUNT = "limit_count"
    LIMIT_SIZE = "limit_size"
    BANNED = "banned"
    QUEUE_FULL = "queue_full"
    SOURCE_SHARE = "source_share"
    STORAGE_FULL = "storage_full"
    EXPIRED = "expired"
    QUEUE_EXPIRED = "queue_expired"
    BAD_SIGNATURE = "bad_signature"
    NOT_HERE = "not_here"
    REMOTE_4XX = "remote_4xx"
    REMOTE_5XX = "remote_5xx"
    REMOTE_TIMEOUT = "remote_timeout"
    OUTBOX_FULL = "outbox_full"
    PURGED = "purged"
    LOOK_UP_FAILED = "look_up_failed"
    NO_USABLE_RELAY = "no_usable_relay"
    SOURCE_FULL = "source_full"
    TWIN_FULL = "twin_full"


class SessionReason(StrEnum):
    """Reason for which a session ended, or never began.

    The three fatal kinds of input have the same name as the reason of their message.
    """

    CLIENT_CLOSE = "client_close"
    IDLE = "idle"
    REPLACED = "replaced"
    BACK_PRESSURE = "back_pressure"
    PROTOCOL_ERROR = "protocol_error"
    TEXT_FRAME = "text_frame"
    UNPARSABLE = "unparsable"
    TOO_LARGE = "too_large"
    KICKED = "kicked"
    BANNED = "banned"
    DRAINED = "drained"
    WORKER_LOST = "worker_lost"
    CAPACITY = "capacity"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    UNAUTHORIZED = "unauthorized"
    IP_LIMIT = "ip_limit"
    TWIN_CHANGED = "twin_changed"
    TWIN_SESSIONS = "twin_sessions"
    ADDRESS_BANNED = "address_banned"


class SessionEnd(NamedTuple):
    """How a session ends for one reason.

    Attributes:
        close_code: code of the close frame; None if no close frame is sent.
        http_status: status of the HTTP answer if the reason is found before the upgrade; None if it
            never is.
        text: reason in the close frame, and the short body of the HTTP answer; empty if neither is
            sent, or if the body says more.
        meaning: explanation for the documentation and operator views.
    """

    close_code: int | None
    http_status: int | None
    text: str
    meaning: str


# Error texts for the sender of a request are in `notices.TEXTS`.
MESSAGES: Final[dict[MessageReason, str]] = {
    MessageReason.UNPARSABLE: "the bytes are not an envelope",
    MessageReason.EMPTY: "a binary message without any bytes",
    MessageReason.TEXT_FRAME: "a text message",
    MessageReason.TOO_LARGE: "a field above its bound; a message above its bound ends the session",
    MessageReason.WRONG_SOURCE: "the source is not the session that sent it",
    MessageReason.MISSING_DESTINATION: "no destination, or twin 0",
    MessageReason.UNKNOWN_TWIN: "there is no such twin",
    MessageReason.NO_RELAY: "the destination twin names no relay",
    MessageReason.OFFLINE_FAILFAST: "tagged fail-fast and the destination is not connected",
    MessageReason.LIMIT_COUNT: "more messages than the twin's limit",
    MessageReason.LIMIT_SIZE: "more bytes than the twin's limit",
    MessageReason.BANNED: "a banned twin is part of it",
    MessageReason.QUEUE_FULL: "the destination's queue is at its bound",
    MessageReason.SOURCE_SHARE: "the source twin holds a quarter of a queue that is above half, or "
    "of what may wait for the destination twin",
    MessageReason.STORAGE_FULL: "the memory or the disk of Redis is full",
    MessageReason.EXPIRED: "its deadline passed while it waited",
    MessageReason.QUEUE_EXPIRED: "it waited longer than queues are kept",
    MessageReason.BAD_SIGNATURE: "from another relay, not signed by its source",
    MessageReason.NOT_HERE: "from another relay, for a twin that does not list this one",
    MessageReason.REMOTE_4XX: "the destination's relay refused it",
    MessageReason.REMOTE_5XX: "the destination's relay failed; tried until it expires",
    MessageReason.REMOTE_TIMEOUT: "the destination's relay did not answer; tried until it expires",
    MessageReason.OUTBOX_FULL: "the queue to other relays is at its bound",
    MessageReason.PURGED: "an operator emptied the queue",
    MessageReason.LOOK_UP_FAILED: "whether there is such a twin cannot be found out now",
    MessageReason.NO_USABLE_RELAY: "nothing the destination twin lists is the name of a relay",
    MessageReason.SOURCE_FULL: "the source twin has as much waiting in all queues as it may",
    MessageReason.TWIN_FULL: "as much waits for all sessions of the destination twin as may",
}
"""Meaning of each reason, for the documentation and operator views."""

# Codes below 4000 are those of RFC 6455, section 7.4.1. Those above are specific to this relay; no
# released client reacts to any of them.
SESSIONS: Final[dict[SessionReason, SessionEnd]] = {
    SessionReason.CLIENT_CLOSE: SessionEnd(1000, None, "", "the client closed or went away"),
    SessionReason.IDLE: SessionEnd(4005, None, "idle", "nothing was received for too long"),
    SessionReason.REPLACED: SessionEnd(
        4001, None, "replaced", "a newer connection has the same twin and session id"
    ),
    SessionReason.BACK_PRESSURE: SessionEnd(
        4008, None, "back_pressure", "the client did not read for too long"
    ),
    SessionReason.PROTOCOL_ERROR: SessionEnd(
        1002, None, "protocol_error", "not the websocket protocol"
    ),
    SessionReason.TEXT_FRAME: SessionEnd(
        1003, None, "text_frame", "a text message; envelopes are binary"
    ),
    SessionReason.UNPARSABLE: SessionEnd(
        1007, None, "unparsable", "a binary message that is not an envelope"
    ),
    SessionReason.TOO_LARGE: SessionEnd(1009, None, "too_large", "a message above its bound"),
    SessionReason.KICKED: SessionEnd(4003, None, "kicked", "ended by an operator"),
    SessionReason.BANNED: SessionEnd(4004, 403, "banned", "an operator banned the twin"),
    SessionReason.DRAINED: SessionEnd(1012, 503, "drained", "the worker is going to restart"),
    SessionReason.WORKER_LOST: SessionEnd(
        None, None, "", "the worker died; found later by the others"
    ),
    SessionReason.CAPACITY: SessionEnd(1013, 503, "capacity", "the worker holds all it may"),
    SessionReason.HANDSHAKE_TIMEOUT: SessionEnd(None, None, "", "no complete handshake in time"),
    SessionReason.UNAUTHORIZED: SessionEnd(
        None, 401, "", "no token, a bad one, or an unknown twin"
    ),
    SessionReason.IP_LIMIT: SessionEnd(
        None, 429, "ip_limit", "too many handshakes from one address"
    ),
    SessionReason.TWIN_CHANGED: SessionEnd(
        4006, None, "twin_changed", "the twin was removed, or has another account or other relays"
    ),
    SessionReason.TWIN_SESSIONS: SessionEnd(
        None, 429, "twin_sessions", "the twin has as many sessions as it may"
    ),
    SessionReason.ADDRESS_BANNED: SessionEnd(
        4007, 403, "address_banned", "an operator banned the address"
    ),
}
