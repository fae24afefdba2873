"""Limits of what we take from nodes and how long we wait: a constant, its unit, its reason."""

from __future__ import annotations

from typing import Final

from proto.chain.bounds import MAX_EVENTS_BYTES

ATTEMPT_S: Final = 4.0
"""One attempt at a look-up: connecting, or all its calls. Leaves time for two more nodes."""

LOOK_UP_S: Final = 12.0
"""A look-up with all its attempts; the reference waits as long for a single one."""

AWAY_PAUSE_S: Final = 1.0
"""After all nodes failed, look-ups fail at once for this long, instead of each trying them all."""

STILL_S: Final = 60.0
"""Look-ups have seen no newer block for this long: another node is asked whether it has one."""

STALL_S: Final = 7.0
"""No head for this long: another node is tried. A block comes each 6 s (reference relay)."""

CALL_S: Final = 12.0
"""One call of the follower or a writer, metadata included; the reference's limit."""

INCLUSION_S: Final = 60.0
"""From sending a transaction to seeing it in a block; normally up to 6 s."""

FINALIZATION_S: Final = 180.0
"""The same until its block is final; normally 12 to 18 s."""

MAX_MESSAGE_BYTES: Final = 2 * MAX_EVENTS_BYTES + 1024 * 1024
"""One message of a node: the longest value we take, as hex."""

MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
"""One storage value: more than a twin with 10,000 entities has."""

MAX_URL_CHARS: Final = 500
MAX_URLS: Final = 32
"""Each may cost an attempt before a look-up fails."""

MAX_KEPT_NOTIFICATIONS: Final = 64
"""Of one subscription; the oldest go first. A head that went is back-filled."""

MAX_SUBSCRIPTIONS: Final = 8
"""On one connection; nobody needs more than one."""

MAX_IN_FLIGHT: Final = 40
"""Calls sent before the first answer is read; below the 64 that nodes buffer."""

PAGE_TWINS: Final = 500
"""Twins in one page of an import, keys in one query; nodes give at most 1,000 keys."""

CATCH_UP_BLOCKS: Final = 20
"""Blocks whose events are asked for at once (reference relay)."""

CATCHUP_THRESHOLD: Final = 600
"""Blocks missed; beyond, everything is marked stale instead (reference relay)."""

BEHIND_S: Final = 30.0
"""All nodes have been far behind the last block told of for this long: the chain began anew."""

RECENT_BLOCKS: Final = 64
"""Blocks the follower remembers to find where a fork began; finality lags by two or three."""
