"""Limits of the REST API: a constant, its unit, its reason."""

from __future__ import annotations

from typing import Final

DEFAULT_ITEMS: Final = 50
"""Items of one page where the request does not say."""

MAX_ITEMS: Final = 500
"""Items of one page: what is made and sent within the time a list may take."""

MAX_CURSOR_CHARS: Final = 2048
"""A cursor holds the values the next page begins after; the longest is a session id."""

MAX_BODY_BYTES: Final = 1 << 20
"""Body of a request, where an operation does not allow more."""

MAX_IMPORT_BYTES: Final = 16 << 20
"""Body of an import, which is in memory: over a hundred thousand twins. The command takes more."""

MAX_JSON_DEPTH: Final = 16
"""Nesting of a body; no operation takes more than three."""

MAX_KEY_CHARS: Final = 128
"""An `Idempotency-Key`; clients send a UUID."""

KEY_LIFE_S: Final = 24 * 3600
"""How long a repeat gets the stored answer."""

KEPT_LONG: Final = 10_000
"""Answers of one token or session that are kept so long, of those of a day; Redis has messages to
hold. A program that sends more is served by the shorter life."""

SHORT_LIFE_S: Final = 600
"""How long further ones are kept."""

KEY_LEASE_S: Final = 120
"""How long a request that never ended (its process died) holds its key."""

MAX_STORED_BYTES: Final = 16 * 1024
"""A stored answer. Actions answer with a few lines; what is longer is not kept, and the repeat is
told so."""

WINDOW_S: Final = 60
"""Window of the rate limits."""

MAX_TOKEN_CHARS: Final = 512
"""A token as sent; ours are shorter."""

HEARTBEAT_S: Final = 15.0
"""Pause after which a stream of events says that it lives; proxies cut silent ones after 30 s."""

MAX_STREAM_S: Final = 3600.0
"""A stream ends after so long; clients come back with `Last-Event-ID`."""

MAX_STREAMS: Final = 64
"""Streams one process of the operator site serves at once."""

MAX_STREAMS_OF_ONE: Final = 8
"""Streams of one token or session in one process."""
