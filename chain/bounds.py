"""Limits on data accepted from nodes, and time-outs, each with its unit and reason."""

from __future__ import annotations

from typing import Final

from proto.chain.bounds import MAX_EVENTS_BYTES

ATTEMPT_S: Final = 4.0
"""Time-out of one attempt at a look-up: connecting, or all its calls. Leaves time for two more
nodes."""

LOOK_UP_S: Final = 12.0
"""Time-out of a look-up with all its attempts; the reference waits as long for a single one."""

AWAY_PAUSE_S: Final = 1.0
"""Seconds for which look-ups fail at once after all nodes failed, without trying them again."""

STILL_S: Final = 60.0
"""Seconds without a newer block in look-ups after which another node is asked for one."""

STALL_S: Final = 7.0
"""Seconds without a new head after which another node is tried. A block comes every 6 s (reference
relay)."""

CALL_S: Final = 12.0
"""Time-out of one call of the follower or a writer, metadata included; the reference's limit."""

INCLUSION_S: Final = 60.0
"""Time-out from sending a transaction to its inclusion in a block; normally up to 6 s."""

FINALIZATION_S: Final = 180.0
"""Time-out from sending a transaction until its block is final; normally 12 to 18 s."""

MAX_MESSAGE_BYTES: Final = 2 * MAX_EVENTS_BYTES + 1024 * 1024
"""Maximum size of one message from a node: the longest accepted value, as hex."""

MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of one storage value: more than a twin with 10,000 entities has."""

MAX_URL_CHARS: Final = 500
MAX_URLS: Final = 32
"""Maximum number of nodes: each may cost an attempt before a look-up fails."""

MAX_KEPT_NOTIFICATIONS: Final = 64
"""Maximum number of unread notifications of one subscription. The oldest are discarded first; the
blocks of discarded heads are back-filled."""

MAX_SUBSCRIPTIONS: Final = 8
"""Maximum number of subscriptions on one connection; no caller needs more than one."""

MAX_IN_FLIGHT: Final = 40
"""Maximum number of calls sent before the first answer is read; below the 64 that nodes buffer."""

PAGE_TWINS: Final = 500
"""Number of twins in one page of an import, and of keys in one query; nodes return at most 1,000
keys."""

CATCH_UP_BLOCKS: Final = 20
"""Number of blocks whose events are requested at once (reference relay)."""

CATCHUP_THRESHOLD: Final = 600
"""Number of missed blocks above which everything is marked stale instead (reference relay)."""

BEHIND_S: Final = 30.0
"""Seconds for which all nodes have been far behind the last reported block before the chain is
considered restarted."""

RECENT_BLOCKS: Final = 64
"""Number of blocks that the follower remembers to find where a fork began; finality lags by two or
three."""
