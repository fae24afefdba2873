"""Limits of sizes and times in the lattice (sheet sections 2, 4 and 7)."""

from __future__ import annotations

from typing import Final

CHUNK_THRESHOLD_BYTES: Final = 900 * 1024
"""Size above which a payload is moved to the object store. Hosts decide from the length alone, so
both sides must use exactly this number."""
MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a payload, moved or not; callers may set a lower limit."""
MAX_MESSAGE_BYTES: Final = 2 * CHUNK_THRESHOLD_BYTES + 64 * 1024
"""Maximum size of a whole msgpack message. A payload may be an array of integers, which takes two
bytes for each."""

MAX_NAME_CHARS: Final = 256
"""Maximum length of a key, a link name or a contract id in a message."""
MAX_OPERATION_CHARS: Final = 512
MAX_ID_CHARS: Final = 128
MAX_TOKEN_CHARS: Final = 8 * 1024
MAX_ERROR_CHARS: Final = 64 * 1024
"""Maximum length of a received error text; sent ones are shorter."""
MAX_SENT_ERROR_CHARS: Final = 4 * 1024
MAX_TRACE_ENTRIES: Final = 64
MAX_TRACE_CHARS: Final = 4 * 1024
"""Maximum length of a key or a value of the trace context."""
MAX_LINK_VALUES: Final = 1_000
MAX_LINK_VALUE_CHARS: Final = 64 * 1024
MAX_FIELDS: Final = 64
"""Maximum number of fields of one message, including unknown ones."""
MAX_LATTICE_ID_CHARS: Final = 64
"""Maximum length of a lattice id, which names a bucket of the object store and a stream."""

MAX_UINT: Final = 2**64 - 1
IAT_WINDOW_S: Final = 300
"""Seconds by which the time of a token may differ from now: clocks differ, and real senders make no
allowance for that."""

JTI_CHARS: Final = 22
"""Length of a token's `jti`: a NUID in base62."""
WASCAP_REVISION: Final = 3

CACHED_KEYS: Final = 4_096
"""Number of decoded public keys and entities that are cached: a lattice has few, but a flood of
forgeries has many."""

MAX_HOST_DATA_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of the line on a provider's standard input."""
MAX_ISSUERS: Final = 1_000
MAX_LINKS: Final = 10_000
"""Maximum number of links in one message."""
MAX_CONTROL_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of an answer of the control interface."""
MAX_EVENT_BYTES: Final = 1024 * 1024
MAX_REGISTRY_BYTES: Final = 1024 * 1024
"""Maximum size of a value in the registry of links and claims."""
MAX_ITEMS: Final = 10_000
"""Maximum number of actors, providers, claims, instances or tags in one message."""
MAX_REF_CHARS: Final = 4 * 1024
"""Maximum length of an image reference, a version, or another text of the control interface."""
