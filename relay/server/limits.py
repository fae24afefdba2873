"""Bounds of the public listener, and how often each one bit.

One object serves all connections of a worker: `http_protocol` binds it to the protocol classes.
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
"""Path and query string; the token is the query string and has some 300 bytes."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Request line and all headers."""
MAX_PIPELINED: Final = 64
"""Requests of one connection that wait for the answer to one before them: whole scopes with their
headers. Clients that pipeline send a dozen."""
KEEP_ALIVE_S: Final = 75
"""Between two requests of one connection. Relays keep theirs for 15 s (ours) or 90 s (the
reference), and what they send while it is being closed here costs them another try."""
FULL_READ_BYTES: Final = 256_000
"""A read of that size leaves more in the kernel. uvloop reads up to 32 such pieces in one turn of
the loop, which may take seconds; others are let in after each."""
MAX_TURN_PINGS: Final = 64
"""A connection that sends so many pings without a pause is read no further..."""
PINGS_PAUSE_S: Final = 0.064
"""... for this long: 128 are one read, so 2,000 a second."""
DISCARDED_BYTES_PER_S: Final = 16 << 20
"""What a worker reads of connections that are being closed, all together. It is thrown away but the
peer's close frame: one peer gets rid of a message that was too large, many slow down nobody."""
CLOSE_TIMEOUT_S: Final = 2.0
"""For the peer's close frame, and for the kernel to drain."""


@dataclass(slots=True)
class ServerLimits:
    """What one worker's listener bears.

    Attributes:
        handshake_timeout_s: from the connection, or the first byte of a later request, to the end
            of the request's headers.
        answer_timeout_s: for a client to read some of an answer.
        max_message_bytes: of one websocket message.
        partial_bytes: of incomplete messages of all connections together.
        max_request_line_bytes: of path and query string; beyond it 414.
        max_head_bytes: of request line and headers; beyond it 431.
        keep_alive_s: between two requests of one connection.
        rules: of a websocket that sets none of its own.
        refused: count by reason of what was refused before a websocket began.
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
        """Count a full read of a connection that is being closed; how long it is not read then."""
        taken_s = FULL_READ_BYTES / DISCARDED_BYTES_PER_S
        self._discarded_until = max(self._discarded_until, now) + taken_s
        return self._discarded_until - now
