"""Bounds of the alarms: each a constant, its unit and its reason."""

from __future__ import annotations

from typing import Final

PERIOD_S: Final = 5.0
"""From one evaluation to the next."""
LONGEST_STEP_S: Final = 3 * PERIOD_S
"""One evaluation counts as so much time at most: nobody looked meanwhile, or the clock was set."""
LATE_S: Final = 30.0
"""Without an evaluation for so long the operator site begins to do it, and says so."""
EVALUATION_S: Final = 60.0
"""An evaluation that lasts longer was left by its process: another may begin."""

MAX_SUBJECTS: Final = 50
"""Subjects of one rule, the worst first: twins name relays and queues as they like."""
MAX_SUBJECT_CHARS: Final = 300
MAX_DETAIL_CHARS: Final = 500
MAX_NOTE_CHARS: Final = 500
MAX_ACTOR_CHARS: Final = 200
MAX_ERROR_CHARS: Final = 200

REPEAT_S: Final = 3600.0
"""An alarm that fires again within so long of its end is the same trouble coming back."""
MAX_REPEATS: Final = 5
"""Each return doubles the time it has to be quiet, so often at most: 32 times as long."""

MAX_RECEIVERS: Final = 50
MAX_SILENCES: Final = 500
MAX_SILENCE_DAYS: Final = 366
MAX_WAITING: Final = 1000
"""Deliveries that wait for one receiver; beyond, the oldest is given up."""
GIVE_UP_S: Final = 24 * 3600.0
"""A delivery that was tried for so long is given up and shown as such."""
DELIVERY_S: Final = 10.0
"""For one webhook or e-mail, its connection included."""
ANSWER_BYTES: Final = 1024
"""Of a webhook's answer, for the test's report."""
DELIVERING_S: Final = 3 * DELIVERY_S
"""Who delivers to a receiver says so before each try, for so long; then it was left."""
DELIVERIES_AT_ONCE: Final = 50
"""Delivered to one receiver before others get their turn."""
KEEP_DAYS: Final = 90
"""History and deliveries are kept so long."""
KEEP_EVENTS: Final = 100_000
"""And no more than so many of each."""
