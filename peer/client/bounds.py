"""Limits of the client: each is a constant with its unit and the reason for it."""

from __future__ import annotations

from typing import Final

TIMEOUT_S: Final = 60.0
"""Default time-out for an answer, in seconds."""

QUIET_S: Final = 1.0
"""Seconds after which a client that is being opened logs what it waits for."""

CONNECT_TIMEOUT_S: Final = 10.0
"""Seconds that the first relay may take to accept a new client."""

CLOSE_TIMEOUT_S: Final = 5.0
"""Seconds that a closing client waits for a relay to accept sent messages."""

HANDLERS_TIMEOUT_S: Final = 2.0
"""Seconds that handlers may take when their client is closed, including those of requests that
arrive meanwhile."""

MAX_CALLS: Final = 10_000
"""Maximum number of calls in progress; one more waits until another one is done."""

MAX_KEPT_ANSWERS: Final = 1_000
"""Number of answers kept for requests that are repeated because their connection broke."""

MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of these answers, in bytes."""

MAX_RUNNING: Final = 1_000
"""Maximum number of running handlers; further requests wait."""

MAX_HELD: Final = 1_000
"""Maximum number of requests that wait for a handler. Above it nothing is read, and further
messages wait in the relay."""

MAX_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""Maximum size of running and waiting requests, in bytes: any twin may send 16 MiB at a time, in
the payload or in other texts."""

MAX_ASKED_AGAIN: Final = 1_000
"""Number of twins for which the time of a repeated look-up is remembered, see AGAIN_S."""

MAX_ANSWERS: Final = 1_000
"""Maximum number of unread answers to one request to several twins; the oldest are dropped."""

AGAIN_S: Final = 5.0
"""Minimum interval between repeated look-ups of a twin whose messages cannot be verified, in
seconds: invalid messages must not cause a query of the chain each time."""
