"""Bounds of the REST API: each is a constant with its unit and its reason."""

from __future__ import annotations

from typing import Final

DEFAULT_ITEMS: Final = 50
"""Items of one page, if the request does not say how many."""

MAX_ITEMS: Final = 500
"""Items of one page, at most: as many as can be made and sent in the time a list may take."""

MAX_CURSOR_CHARS: Final = 2048
"""Maximum length of a cursor, which contains the values after which the next page begins; the
longest of them is a session id."""

MAX_BODY_BYTES: Final = 1 << 20
"""Maximum size of a request body, unless an operation allows more."""

MAX_IMPORT_BYTES: Final = 16 << 20
"""Maximum size of an import, which is held in memory: over a hundred thousand twins. The command
accepts more."""

MAX_JSON_DEPTH: Final = 16
"""Maximum nesting of a body; no operation needs more than three levels."""

MAX_KEY_CHARS: Final = 128
"""Maximum length of an `Idempotency-Key`; clients send a UUID."""

KEY_LIFE_S: Final = 24 * 3600
"""Seconds for which a repeat gets the stored answer."""

KEPT_LONG: Final = 10_000
"""Answers of one token or session in a day that are kept for `KEY_LIFE_S`, at most: Redis needs its
memory for messages. For a program that sends more, `SHORT_LIFE_S` is enough."""

SHORT_LIFE_S: Final = 600
"""Seconds for which further answers are kept."""

KEY_LEASE_S: Final = 120
"""Seconds for which a request that never ended (its process died) holds its key."""

MAX_STORED_BYTES: Final = 16 * 1024
"""Maximum size of a stored answer. Actions answer with a few lines; a longer answer is not kept,
and a repeat is refused with that reason."""

WINDOW_S: Final = 60
"""Window of the rate limits, in seconds."""

MAX_TOKEN_CHARS: Final = 512
"""Maximum length of a token in a request; the relay's tokens are shorter."""

HEARTBEAT_S: Final = 15.0
"""Seconds without an event after which a stream sends a comment; proxies close silent streams after
30 s."""

MAX_STREAM_S: Final = 3600.0
"""Seconds after which a stream ends; clients reconnect with `Last-Event-ID`."""

MAX_STREAMS: Final = 64
"""Streams that one process of the operator site serves at once, at most."""

MAX_STREAMS_OF_ONE: Final = 8
"""Streams of one token or session in one process, at most."""
