"""Sizes and times of the lattice (sheet sections 2, 4 and 7)."""

from __future__ import annotations

from typing import Final

CHUNK_THRESHOLD_BYTES: Final = 900 * 1024
"""A payload of strictly more is moved to the object store. Hosts decide from the length alone, so
both sides must use exactly this number."""
MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""The largest payload, moved or not, that is fetched for a call; callers may set less."""
MAX_MESSAGE_BYTES: Final = 2 * CHUNK_THRESHOLD_BYTES + 64 * 1024
"""A whole msgpack message: a payload may be an array of integers, two bytes each."""

MAX_NAME_CHARS: Final = 256
"""A key, a link name or a contract id in a message."""
MAX_OPERATION_CHARS: Final = 512
MAX_ID_CHARS: Final = 128
MAX_TOKEN_CHARS: Final = 8 * 1024
MAX_ERROR_CHARS: Final = 64 * 1024
"""The error text of a response as read; what we send is shorter."""
MAX_SENT_ERROR_CHARS: Final = 4 * 1024
MAX_TRACE_ENTRIES: Final = 64
MAX_TRACE_CHARS: Final = 4 * 1024
"""A key or a value of the trace context."""
MAX_LINK_VALUES: Final = 1_000
MAX_LINK_VALUE_CHARS: Final = 64 * 1024
MAX_FIELDS: Final = 64
"""Fields of one message, unknown ones included."""
MAX_LATTICE_ID_CHARS: Final = 64
"""A lattice id names a bucket of the object store and a stream."""

MAX_UINT: Final = 2**64 - 1
IAT_WINDOW_S: Final = 300
"""How far from now a token may be issued: clocks differ, and real senders allow for nothing."""

JTI_CHARS: Final = 22
"""A NUID in base62."""
WASCAP_REVISION: Final = 3

CACHED_KEYS: Final = 4_096
"""Decoded public keys and entities kept: a lattice has few, a flood of forgeries has many."""

MAX_HOST_DATA_BYTES: Final = 8 * 1024 * 1024
"""The line on a provider's standard input."""
MAX_ISSUERS: Final = 1_000
MAX_LINKS: Final = 10_000
"""Links in one message."""
MAX_CONTROL_BYTES: Final = 8 * 1024 * 1024
"""An answer of the control interface."""
MAX_EVENT_BYTES: Final = 1024 * 1024
MAX_REGISTRY_BYTES: Final = 1024 * 1024
"""A value in the registry of links and claims."""
MAX_ITEMS: Final = 10_000
"""Actors, providers, claims, instances or tags in one message."""
MAX_REF_CHARS: Final = 4 * 1024
"""A reference to an image, a version, or another text of the control interface."""
