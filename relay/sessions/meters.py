"""Rate limits of the twins that are signed in at this worker.

One meter serves all connections of a twin here. What it counts is added to the shared counter of
the twin's window inside a group commit, and the reply is the sum over all workers. The first
message of a connection or window is reported at once, then each `SHARE`th part of the limit, and
the rest within a second. So a limit is exact for one worker. With several, each additional worker
may exceed it by that part and by what it admits within one commit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from proto.limits.window import WINDOW_S, Excess, Increment, Limit, WindowCount, window_index
from proto.rmb.reasons import MessageReason
from redispipe import resp
from relay.queues import keys
from relay.sessions.pacing import BURST_S, Pace

if TYPE_CHECKING:
    from relay.queues.commit import CommitLog

COUNT_BITS: Final = 24
"""Bits of the message counter. One Redis integer holds both counters: messages in the low bits (16
million per window), bytes above them (512 GiB per window)."""
_COUNT_MASK: Final = (1 << COUNT_BITS) - 1
UNLIMITED: Final = Limit()

SHARE: Final = 128
"""Divisor: a worker may admit this part of a limit without a report. A report for each message of a
thousand busy twins would take the worker and Redis a tenth of their time."""
_NEVER: Final = 1 << 62


class Meter:
    """The limit of one twin, and its use."""

    __slots__ = (
        "_book",
        "_step_bytes",
        "_step_messages",
        "connections",
        "expiring",
        "hit_window",
        "limit",
        "limited",
        "pace",
        "twin",
        "users",
        "window",
    )

    def __init__(self, book: MeterBook, twin: int, limit: Limit) -> None:
        self._book = book
        self.twin = twin
        self.window = WindowCount()
        self.change(limit)
        self.connections = 0  # of the twin here
        self.users = 0  # connections, and counters of what it sends by other relays
        self.pace = Pace()  # for its messages that are refused
        self.expiring = -1  # the window whose counter has a time to live
        self.hit_window = -1  # the window whose first refusal was logged

    def change(self, limit: Limit) -> None:
        """Apply a limit."""
        self.limit = limit
        self.limited = limit != UNLIMITED
        self._step_messages = limit.messages // SHARE if limit.messages else _NEVER
        self._step_bytes = limit.size_bytes // SHARE if limit.size_bytes else _NEVER

    def count(self, size_bytes: int, now_s: float) -> MessageReason | None:
        """Count a message; return the reason if it is refused."""
        excess = self.window.admit(size_bytes, self.limit, now_s)
        self._counted()
        if excess is None:
            return None
        if excess is Excess.COUNT:
            return MessageReason.LIMIT_COUNT
        return MessageReason.LIMIT_SIZE

    def count_all(self, messages: int, size_bytes: int, now_s: float) -> bool:
        """Count messages if all of them are within the limit; otherwise count none.

        Returns:
            Whether they were counted.
        """
        if not self.window.admit_all(messages, size_bytes, self.limit, now_s):
            return False
        self._counted()
        return True

    def uncount(self, size_bytes: int, window: int) -> None:
        """Take back a message that was counted in a window and was not stored."""
        self.window.uncount(size_bytes, window)
        self._counted()

    def is_roomy(self, messages: int, size_bytes: int, now_s: float) -> bool:
        """Check whether this many more messages leave half of the limit free, as far as known."""
        return not self.limited or self.window.is_roomy(messages, size_bytes, self.limit, now_s)

    def _counted(self) -> None:
        window = self.window
        if (
            window.new_messages >= self._step_messages
            or window.new_bytes >= self._step_bytes
            or not window.merged
        ):
            self._book.due[self] = None
        else:
            self._book.later[self] = None

    def forgotten(self, window: int, monotonic_s: float) -> bool:
        """Check whether nothing that the meter holds matters any more."""
        return self.window.window != window and self.pace.due_s <= monotonic_s

    def first_hit(self) -> bool:
        """Check whether this is the first refusal of the window, which gets the only log line."""
        first = self.hit_window != self.window.window
        self.hit_window = self.window.window
        return first


class MeterBook:
    """All meters of a worker."""

    def __init__(self, default: Limit) -> None:
        self.default = default
        self.overrides: dict[int, Limit] = {}
        self.due: dict[Meter, None] = {}  # to be reported with the next batch
        self.later: dict[Meter, None] = {}  # with less to report, which is done within a second
        self._meters: dict[int, Meter] = {}
        self._unused: dict[Meter, None] = {}  # kept until their window is over

    def acquire(self, twin: int, *, connection: bool = True) -> Meter:
        """Return the meter of a twin, for one more connection of it or for another user."""
        meter = self._meters.get(twin)
        if meter is None:
            meter = self._meters[twin] = Meter(self, twin, self._limit(twin))
        meter.users += 1
        meter.connections += connection
        self._unused.pop(meter, None)
        return meter

    def connections(self, twin: int) -> int:
        """Return the number of connections of a twin here."""
        meter = self._meters.get(twin)
        return 0 if meter is None else meter.connections

    def release(self, meter: Meter, *, connection: bool = True) -> None:
        """Release a meter, as a connection has ended or another user is done.

        What the twin used is kept until its window is over, so reconnecting does not reset it.
        """
        meter.users -= 1
        meter.connections -= connection
        if meter.users:
            return
        if (meter.limited and meter.window.messages) or meter.pace.due_s:
            self._unused[meter] = None
        else:
            self._meters.pop(meter.twin, None)

    def knows(self, twin: int) -> bool:
        """Check whether the twin has a connection here, or had one a moment ago."""
        return twin in self._meters

    def limits(self, twin: int) -> bool:
        """Check whether a twin has a limit."""
        return self._limit(twin) != UNLIMITED

    def is_roomy(self, twin: int, messages: int, size_bytes: int, now_s: float) -> bool:
        """Check whether this many more messages of a twin leave half of its limit free."""
        meter = self._meters.get(twin)
        if meter is None:
            return not self.limits(twin)
        return meter.is_roomy(messages, size_bytes, now_s)

    def change(self, default: Limit, overrides: dict[int, Limit]) -> None:
        """Apply changed limits, to existing connections as well."""
        self.default = default
        self.overrides = overrides
        for twin, meter in self._meters.items():
            meter.change(self._limit(twin))

    def may_sign_in(self, twin: int, monotonic_s: float) -> bool:
        """Check whether a twin may open a connection.

        It may not while it is too far ahead of its rate because of input that ended other sessions.
        """
        meter = self._meters.get(twin)
        return meter is None or meter.pace.ahead_s(monotonic_s) <= BURST_S

    def report_all(self, now_s: float, monotonic_s: float = math.inf) -> None:
        """Schedule everything to be reported with the next batch; called every second.

        Args:
            now_s: unix time.
            monotonic_s: time of the loop's clock.
        """
        self.due.update(self.later)
        self.later.clear()
        window = window_index(now_s)
        for meter in [each for each in self._unused if each.forgotten(window, monotonic_s)]:
            del self._unused[meter]
            self._meters.pop(meter.twin, None)

    def commit(self, log: CommitLog) -> None:
        """Add the reports that are due to the batch that is being filled."""
        for meter in list(self.due):
            increment = meter.window.take()
            if increment is not None or not meter.window.new_messages:
                del self.due[meter]
            if increment is None:
                continue  # the previous report is not answered yet
            window = increment.window
            name = keys.limit(meter.twin, window)
            amount = (increment.size_bytes << COUNT_BITS) + increment.messages

            def counted(reply: Any, meter: Meter = meter, increment: Increment = increment) -> None:
                window = increment.window
                if type(reply) is int:
                    meter.window.merge(window, reply & _COUNT_MASK, reply >> COUNT_BITS)
                elif reply is None:
                    meter.window.settle(window)
                else:  # Redis refused it
                    meter.window.give_back(increment)
                    self.later[meter] = None

            log.filling.extras.append((resp.command("INCRBY", name, amount), counted))
            if meter.expiring != window:
                meter.expiring = window
                expire = resp.command("EXPIRE", name, 2 * WINDOW_S)
                log.filling.extras.append((expire, lambda reply: None))

    def _limit(self, twin: int) -> Limit:
        return self.overrides.get(twin, self.default)
