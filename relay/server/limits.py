"""Bounds of the public listener, and how often each was exceeded.

All connections of a worker share one object: `http_protocol` binds it to the protocol classes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from proto.websocket.bounds import MAX_MESSAGE_BYTES, PARTIAL_BYTES
from proto.websocket.budget import MessageBudget
from relay.server.deadlines import Deadlines
from relay.server.socket import InputRules
from relay.server.turns import Turns

HANDSHAKE_TIMEOUT_S: Final = 10.0
MAX_REQUEST_LINE_BYTES: Final = 8 * 1024
"""Maximum size of path and query string; the query string is the token, of about 300 bytes."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Maximum size of request line and all headers."""
MAX_PIPELINED: Final = 64
"""Maximum number of requests of one connection that wait for the answer to an earlier one: each
takes a whole scope with its headers. Clients that pipeline send a dozen."""
KEEP_ALIVE_S: Final = 75
"""Seconds between two requests of one connection, at most. Relays keep connections open for 15 s
(ours) or 90 s (the reference relay); a request that they send while it is being closed here
costs them a retry."""
FULL_READ_BYTES: Final = 256_000
"""Size of a read after which the kernel probably has more. uvloop reads up to 32 such pieces in one
turn of the loop, which may take seconds; other connections get a turn after each."""
MAX_TURN_PINGS: Final = 64
"""Number of pings without a pause after which a connection is not read..."""
PINGS_PAUSE_S: Final = 0.064
"""... for this many seconds: 128 pings are one read, so 2,000 per second."""
DISCARDED_BYTES_PER_S: Final = 16 << 20
"""Bytes per second that a worker reads of connections being closed, all together. Everything except
the peer's close frame is discarded: one peer can finish sending a message that was too large,
and many do not slow down other clients."""
CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds to wait for the peer's close frame, and for the kernel to drain."""


@dataclass(slots=True)
class ServerLimits:
    """Limits of one worker's listener.

    Attributes:
        handshake_timeout_s: Seconds from the connection, or from the first byte of a later request,
            to the end of the request's headers.
        answer_timeout_s: Seconds within which a client must read some of an answer.
        max_message_bytes: Size of one websocket message.
        partial_bytes: Size of the incomplete messages of all connections together.
        max_request_line_bytes: Size of path and query string; beyond it the answer is 414.
        max_head_bytes: Size of request line and headers; beyond it the answer is 431.
        keep_alive_s: Seconds between two requests of one connection.
        rules: Rules of a websocket that sets none of its own.
        refused: Number of refusals before a websocket began, by reason.
    """

    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S
    answer_timeout_s: float = HANDSHAKE_TIMEOUT_S
    max_message_bytes: int = MAX_MESSAGE_BYTES
    partial_bytes: int = PARTIAL_BYTES
    max_request_line_bytes: int = MAX_REQUEST_LINE_BYTES
    max_head_bytes: int = MAX_HEAD_BYTES
    keep_alive_s: float = KEEP_ALIVE_S
    close_timeout_s: float = CLOSE_TIMEOUT_S
    refused: Counter[str] = field(default_factory=Counter)
    partial: MessageBudget = field(init=False)
    handshakes: Deadlines = field(init=False)
    unread: Deadlines = field(init=False)
    idle: Deadlines = field(init=False)
    rules: InputRules = field(init=False)
    turns: Turns = field(default_factory=Turns, init=False)
    _discarded_until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.rules = InputRules(self.max_message_bytes)
        self.partial = MessageBudget(self.partial_bytes)
        self.handshakes = Deadlines(self.handshake_timeout_s)
        self.unread = Deadlines(self.answer_timeout_s)
        self.idle = Deadlines(self.keep_alive_s)

    def discard_pause_s(self, now: float) -> float:
        """Count a full read of a closing connection; return the seconds until it is read again."""
        taken_s = FULL_READ_BYTES / DISCARDED_BYTES_PER_S
        self._discarded_until = max(self._discarded_until, now) + taken_s
        return self._discarded_until - now
