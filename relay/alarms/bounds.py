"""Bounds of the alarms: each is a constant with its unit and its reason."""

from __future__ import annotations

from typing import Final

PERIOD_S: Final = 5.0
"""Seconds from one evaluation to the next."""
LONGEST_STEP_S: Final = 3 * PERIOD_S
"""Most seconds that one evaluation counts, if evaluation paused before it or the clock was set."""
LATE_S: Final = 30.0
"""Seconds without an evaluation after which the operator site takes over, and reports it."""
EVALUATION_S: Final = 60.0
"""Seconds after which an evaluation counts as abandoned by its process, and another may begin."""

MAX_SUBJECTS: Final = 50
"""Subjects of one rule, at most, the worst first: twins choose the names of relays and queues."""
MAX_SUBJECT_CHARS: Final = 300
MAX_DETAIL_CHARS: Final = 500
MAX_NOTE_CHARS: Final = 500
MAX_ACTOR_CHARS: Final = 200
MAX_ERROR_CHARS: Final = 200

REPEAT_S: Final = 3600.0
"""Seconds after its end within which an alarm that fires again counts as a repeat."""
MAX_REPEATS: Final = 5
"""Most repeats that count: each doubles the time an alarm must be quiet, up to 32 times as long."""

MAX_RECEIVERS: Final = 50
MAX_SILENCES: Final = 500
MAX_SILENCE_DAYS: Final = 366
MAX_WAITING: Final = 1000
"""Most deliveries that wait for one receiver; beyond it, the relay gives up the oldest."""
GIVE_UP_S: Final = 24 * 3600.0
"""Seconds after which the relay gives up a delivery, and shows that it did."""
DELIVERY_S: Final = 10.0
"""Time-out of one webhook or e-mail in seconds, its connection included."""
ANSWER_BYTES: Final = 1024
"""Most bytes read of a webhook's answer, which the result of a test shows."""
DELIVERING_S: Final = 3 * DELIVERY_S
"""Seconds for which a process reserves a receiver before each try; then it counts as abandoned."""
DELIVERIES_AT_ONCE: Final = 50
"""Most notices delivered to one receiver before others get their turn."""
KEEP_DAYS: Final = 90
"""Days for which history and deliveries are kept."""
KEEP_EVENTS: Final = 100_000
"""Most events of the history that are kept, and most deliveries."""
