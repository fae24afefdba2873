"""Limits of the client: a constant, its unit, its reason."""

from __future__ import annotations

from typing import Final

TIMEOUT_S: Final = 60.0
"""How long an answer is waited for unless told otherwise."""

QUIET_S: Final = 1.0
"""Opening a client says what it waits for after this."""

CONNECT_TIMEOUT_S: Final = 10.0
"""How long the first relay may take to let a new client in."""

CLOSE_TIMEOUT_S: Final = 5.0
"""How long a client that is closed waits for a relay to take what was sent."""

HANDLERS_TIMEOUT_S: Final = 2.0
"""How long handlers may take when their client is closed, those of requests that come meanwhile
too."""

MAX_CALLS: Final = 10_000
"""Calls under way; one more waits until another one is through."""

MAX_KEPT_ANSWERS: Final = 1_000
"""Answers kept for requests that come again: those of a connection that broke shortly before."""

MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""The same in bytes."""

MAX_RUNNING: Final = 1_000
"""Handlers at work; the requests after them wait."""

MAX_HELD: Final = 1_000
"""Requests that wait for a handler to end. With more than that nothing is read any more, and what
comes waits in the relay."""

MAX_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""Both, all in all: any twin may send 16 MiB at a time, in the payload or in texts beside it."""

MAX_ASKED_AGAIN: Final = 1_000
"""Twins of which is kept when they were looked up again, see AGAIN_S."""

MAX_ANSWERS: Final = 1_000
"""Answers to one request to several twins that nobody has taken yet; the oldest are dropped."""

AGAIN_S: Final = 5.0
"""How often a twin is looked up again because its message does not fit what is known of it:
somebody who sends nonsense must not cost a question to the chain each time."""
