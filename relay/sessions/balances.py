"""What waits of a source twin or for a destination twin, as a worker knows it."""

from __future__ import annotations

from collections.abc import Callable
from operator import sub
from typing import TYPE_CHECKING

from relay.queues.charging import Held, TwinBounds
from relay.queues.held import SOURCE_SHARE

if TYPE_CHECKING:
    from relay.queues.destination import Destination

Then = Callable[[], object]


class Balance:
    """What waits of a source twin, or for a destination twin.

    Attributes:
        seen_at: loop time of the count in Redis.
        messages, size_bytes, queues, unknown: what Redis counted plus what is in flight; `unknown`
            is the number of queues of sessions that are not known to have existed.
    """

    __slots__ = ("_bounds", "_counted", "_half_bytes", "_half_messages", "messages", "queues",
                 "seen_at", "size_bytes", "unknown")  # fmt: skip

    def __init__(self, bounds: TwinBounds) -> None:
        self.bounds = bounds
        self.seen_at = float("-inf")
        self.messages = self.size_bytes = self.queues = self.unknown = 0
        self._counted = Held()

    @property
    def bounds(self) -> TwinBounds:
        """Bounds of what may wait."""
        return self._bounds

    @bounds.setter
    def bounds(self, bounds: TwinBounds) -> None:
        self._bounds = bounds
        self._half_messages, self._half_bytes = bounds.messages / 2, bounds.size_bytes / 2

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return self.messages == self._counted.messages

    def count(self, held: Held, seen_at: float) -> None:
        """Record the count in Redis, as of a loop time."""
        self.seen_at = seen_at
        counted, self._counted = self._counted, held
        self.add(*map(sub, held, counted))

    def add(self, messages: int, size_bytes: int, queues: int, unknown: int) -> None:
        """Add what is in flight; negative amounts are no longer in flight."""
        self.messages += messages
        self.size_bytes += size_bytes
        self.queues += queues
        self.unknown += unknown

    def is_roomy(self) -> bool:
        """Check whether any message has room, as less than half of each bound is used."""
        bounds = self._bounds
        return (
            self.messages < self._half_messages
            and self.size_bytes < self._half_bytes
            and self.queues < bounds.queues
            and self.unknown < bounds.unknown_queues
        )

    def is_full(self, known: bool, new: bool, coming: bool = True) -> bool:
        """Check whether there is no room for a message.

        Args:
            known: whether its session has signed in once.
            new: whether it creates a queue.
            coming: whether to count what is in flight.
        """
        bounds = self._bounds
        messages, size_bytes, queues, unknown = self._waiting(coming)
        if messages >= bounds.messages or size_bytes >= bounds.size_bytes:
            return True
        if not new:
            return False
        return queues >= bounds.queues or (not known and unknown >= bounds.unknown_queues)

    def is_half_full(self, coming: bool = True) -> bool:
        """Check whether so much waits that no source may exceed its share."""
        return self._fills(2, self._bounds, coming)

    def fills_share(self, bounds: TwinBounds, coming: bool = True) -> bool:
        """Check whether this source has used up its share for a twin that is half full.

        What waits of the source anywhere counts.

        Args:
            bounds: bounds of that twin.
            coming: whether to count what is in flight.
        """
        return self._fills(SOURCE_SHARE, bounds, coming)

    def _fills(self, part: int, bounds: TwinBounds, coming: bool) -> bool:
        messages, size_bytes, *_ = self._waiting(coming)
        return messages * part >= bounds.messages or size_bytes * part >= bounds.size_bytes

    def _waiting(self, coming: bool) -> Held:
        if not coming:
            return self._counted
        return Held(self.messages, self.size_bytes, self.queues, self.unknown)


class Flow:
    """What one batch adds for a source and a queue."""

    __slots__ = ("messages", "queues", "size_bytes", "source", "twin", "unknown")

    def __init__(self, source: Balance, twin: Balance, queues: int, unknown: int) -> None:
        self.source = source
        self.twin = twin
        self.messages = self.size_bytes = 0
        self.queues = queues
        self.unknown = unknown

    def add(self, size_bytes: int) -> None:
        """Count one message."""
        self.messages += 1
        self.size_bytes += size_bytes
        source, twin = self.source, self.twin
        source.messages += 1
        source.size_bytes += size_bytes
        twin.messages += 1
        twin.size_bytes += size_bytes


class Coming:
    """What one batch is going to charge, until it is counted or refused.

    Attributes:
        flows: flows by source twin and queue.
    """

    __slots__ = ("_new", "_waiting", "flows")

    def __init__(self, new: set[Destination]) -> None:
        """
        Args:
            new: the worker's set of queues that are being created.
        """
        self._new = new
        self.flows: dict[tuple[int, Destination], Flow] = {}
        self._waiting: list[Then] = []

    def begin(
        self, source: int, destination: Destination, of_source: Balance, of_twin: Balance
    ) -> Flow:
        """Start to count what a source twin sends to a queue."""
        queues = unknown = 0
        if not destination.queued and destination not in self._new:
            self._new.add(destination)
            queues, unknown = 1, int(not destination.known)
        of_source.add(0, 0, queues, 0)
        of_twin.add(0, 0, queues, unknown)
        flow = self.flows[source, destination] = Flow(of_source, of_twin, queues, unknown)
        return flow

    def when_done(self, then: Then) -> None:
        """Call `then` when the batch is counted or refused."""
        self._waiting.append(then)

    def batch_done(self) -> None:
        """Remove the batch from what is in flight, as it was counted or refused."""
        for (_, destination), flow in self.flows.items():
            flow.source.add(-flow.messages, -flow.size_bytes, -flow.queues, 0)
            flow.twin.add(-flow.messages, -flow.size_bytes, -flow.queues, -flow.unknown)
            if flow.queues:
                self._new.discard(destination)
        self.flows.clear()
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
