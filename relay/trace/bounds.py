"""Bounds of traces: what they may cost, and how long they last."""

from __future__ import annotations

from typing import Final

LIFETIME_S: Final = 600
"""Seconds for which an order is in force by default."""
MIN_LIFETIME_S: Final = 5
MAX_LIFETIME_S: Final = 3600
"""Most seconds for which an order is in force, so that a forgotten trace ends by itself."""

EVENTS_PER_S: Final = 500
"""Default rate of one order in one process: it costs less than a hundredth of a core."""
MAX_EVENTS_PER_S: Final = 2000
"""Maximum rate. An event costs some 3 us of CPU in the process, and 10 us in Redis."""
MIN_SAMPLE: Final = 0.0001

MAX_ORDERS: Final = 8
"""Most orders in force at a time."""
MAX_ENDED_ROWS: Final = 200
"""Most ended orders that are kept."""

KEPT_S: Final = 3600
"""Seconds for which the events of an order are kept after the last one."""
KEPT_EVENTS: Final = 20_000
"""Events of one order that are kept, about: some 7 MB of Redis' memory, with 350 bytes each."""

FLUSH_S: Final = 0.1
"""Seconds from the first buffered event until the buffer is sent to Redis."""
MAX_BUFFERED: Final = 4000
"""Events of one order buffered in one process, at most; further ones are lost, and counted."""
MAX_OPEN: Final = 10_000
"""Delivered messages for whose acknowledgement one process waits, at most."""

MAX_TEXT_CHARS: Final = 256
"""Maximum length of a uid, an address or a reason; longer ones are cut."""
MAX_PAGE: Final = 1000
"""Events read at once, at most."""
