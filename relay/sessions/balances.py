"""What waits of a source or for a twin, as far as a worker knows: counted, and on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from relay.queues.charging import ENTRY_BYTES, Held, TwinBounds
from relay.queues.held import SOURCE_SHARE

if TYPE_CHECKING:
    from relay.queues.destination import Destination

Then = Callable[[], object]


class Balance:
    """What waits of a source twin, or for a destination twin."""

    __slots__ = ("bounds", "coming", "coming_bytes", "coming_queues", "coming_unknown", "held",
                 "seen_at")  # fmt: skip

    def __init__(self, bounds: TwinBounds) -> None:
        self.bounds = bounds
        self.held = Held()  # as Redis counted it
        self.seen_at = float("-inf")  # loop time as of which
        self.coming = self.coming_bytes = 0  # messages that are not counted yet
        self.coming_queues = self.coming_unknown = 0  # new ones; of sessions not known to have been

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self.coming

    def add(self, messages: int, size_bytes: int, queues: int, unknown: int) -> None:
        """Counts what is on its way; negative amounts are not any more."""
        self.coming += messages
        self.coming_bytes += size_bytes
        self.coming_queues += queues
        self.coming_unknown += unknown

    def is_full(self, known: bool, new: bool, coming: bool = True) -> bool:
        """Whether it takes no message.

        Args:
            known: its session has signed in once.
            new: it makes one more queue.
            coming: what is on its way counts.
        """
        bounds = self.bounds
        messages, size_bytes, queues, unknown = self._waiting(coming)
        if messages >= bounds.messages or size_bytes >= bounds.size_bytes:
            return True
        if not new:
            return False
        return queues >= bounds.queues or (not known and unknown >= bounds.unknown_queues)

    def is_half_full(self, coming: bool = True) -> bool:
        """Whether so much waits that no source may have more than its share."""
        return self._fills(2, self.bounds, coming)

    def fills_share(self, bounds: TwinBounds, coming: bool = True) -> bool:
        """Whether as much of this source waits anywhere as may for a twin that is half full.

        Args:
            bounds: of that twin.
            coming: what is on its way counts.
        """
        return self._fills(SOURCE_SHARE, bounds, coming)

    def _fills(self, part: int, bounds: TwinBounds, coming: bool) -> bool:
        messages, size_bytes, *_ = self._waiting(coming)
        return messages * part >= bounds.messages or size_bytes * part >= bounds.size_bytes

    def _waiting(self, coming: bool) -> Held:
        held = self.held
        if not (coming and self.coming):
            return held
        return Held(
            held.messages + self.coming,
            held.size_bytes + self.coming_bytes,
            held.queues + self.coming_queues,
            held.unknown_queues + self.coming_unknown,
        )


class Coming:
    """What one batch is going to charge, until it is counted or refused."""

    __slots__ = ("_added", "_new", "_waiting")

    def __init__(self, new: set[Destination]) -> None:
        """
        Args:
            new: the worker's set of queues that are being made.
        """
        self._new = new
        self._added: list[tuple[Balance, Balance, int, int, int, Destination]] = []
        self._waiting: list[Then] = []

    def add(
        self, source: Balance, twin: Balance, destination: Destination, size_bytes: int
    ) -> None:
        """Counts one message."""
        size_bytes += ENTRY_BYTES
        queues = unknown = 0
        if not destination.queued and destination not in self._new:
            self._new.add(destination)
            queues, unknown = 1, int(not destination.known)
        source.add(1, size_bytes, queues, 0)
        twin.add(1, size_bytes, queues, unknown)
        self._added.append((source, twin, size_bytes, queues, unknown, destination))

    def when_done(self, then: Then) -> None:
        """Tells when it is decided."""
        self._waiting.append(then)

    def batch_done(self) -> None:
        """It is counted, or refused."""
        for source, twin, size_bytes, queues, unknown, destination in self._added:
            source.add(-1, -size_bytes, -queues, 0)
            twin.add(-1, -size_bytes, -queues, -unknown)
            if queues:
                self._new.discard(destination)
        self._added.clear()
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
