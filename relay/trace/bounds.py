"""How much traces may cost, and how long they last."""

from __future__ import annotations

from typing import Final

LIFETIME_S: Final = 600
"""How long an order is in force unless it says otherwise."""
MIN_LIFETIME_S: Final = 5
MAX_LIFETIME_S: Final = 3600
"""A trace that was forgotten ends by itself."""

EVENTS_PER_S: Final = 500
"""Of one order and process, unless it says otherwise: less than a hundredth of a core."""
MAX_EVENTS_PER_S: Final = 2000
"""At most. An event costs some 3 us of CPU in the process, and 10 us in Redis."""
MIN_SAMPLE: Final = 0.0001

MAX_ORDERS: Final = 8
"""In force at a time."""
MAX_ENDED_ROWS: Final = 200
"""Ended orders that are kept to be looked at."""

KEPT_S: Final = 3600
"""How long the events of an order outlive the last one of them."""
KEPT_EVENTS: Final = 20_000
"""Of one order, about: with 350 bytes each some 7 MB of Redis' memory."""

FLUSH_S: Final = 0.1
"""Events go to Redis so long after the first one of them."""
MAX_BUFFERED: Final = 4000
"""Events of one order that wait for Redis in one process; further ones are lost, and counted."""
MAX_OPEN: Final = 10_000
"""Messages of one process that were delivered, and whose acknowledgement is waited for."""

MAX_TEXT_CHARS: Final = 256
"""Of a uid, an address or a reason; of a longer one, so much is shown."""
MAX_PAGE: Final = 1000
"""Events read at a time."""
