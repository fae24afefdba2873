"""One rate limit for an address with connections on several workers.

A worker announces on `sbd:places` for which of its addresses connections were opened or closed. A
worker that has connections of the same address answers with its own number. From then on, both
report to each other, every `TELL_S`, what the address sent, and every worker charges that as well.
An address may therefore send at its rate, plus, in a burst, what its other workers accepted within
about `TELL_S`.

Reported numbers are valid for `BELIEVED_S` and are repeated after half of it, so that a dead worker
is forgotten.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from relay.sbd.addresses import Place, Places

CHANNEL: Final = b"sbd:places"
TELL_S: Final = 0.1
BELIEVED_S: Final = 10.0


class Sharing:
    """Exchanges figures of a worker's addresses with other workers."""

    def __init__(
        self, boot_id: str, places: Places, publish: Callable[[bytes, bytes], None]
    ) -> None:
        """Create the exchange of a worker.

        Args:
            publish: function that sends a message on a channel.
        """
        self._boot_id = boot_id
        self._places = places
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._news: set[Place] = set()  # to be announced, whether shared or not
        self._shared: set[Place] = set()
        self._told_at: dict[Place, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, place: Place) -> None:
        """Announce soon that connections of an address were opened or closed."""
        self._news.add(place)
        self._arm()

    def heard(self, data: bytes) -> None:
        """Handle a message of another worker.

        Raises:
            ValueError: the message is malformed.
        """
        try:
            found, entries = json.loads(data)
            boot_id = str(found)
            told = [(str(name), int(count), int(size_bytes)) for name, count, size_bytes in entries]
        except (TypeError, ValueError):
            raise ValueError("not a worker's addresses") from None
        if boot_id == self._boot_id:
            return
        now_ns = time.monotonic_ns()
        until = self._loop.time() + BELIEVED_S
        for name, count, size_bytes in told:
            place = self._places.get(name)
            if place is None:
                continue
            if size_bytes:
                place.rate.charge(size_bytes, now_ns)
                place.told_bytes += size_bytes  # not reported again by this worker
            if boot_id not in place.elsewhere and place.connections:
                self.changed(place)  # the other worker does not know our number
            former = place.elsewhere.pop(boot_id, (0, 0.0))[0]
            if count:
                place.elsewhere[boot_id] = (count, until)
                self._shared.add(place)
                self._arm()
            if count != former:
                place.changed()

    def stop(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(TELL_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        now = self._loop.time()
        entries: list[Any] = []
        news, self._news = self._news, set()
        for place in list(self._shared):
            place.forget_elsewhere(now)
            if not place.elsewhere:
                self._shared.discard(place)
        for place in news | self._shared:
            size_bytes = place.rate.charged_bytes - place.told_bytes if place.elsewhere else 0
            again = now - self._told_at.get(place, 0.0) >= BELIEVED_S / 2
            if size_bytes or again or place in news:
                place.told_bytes = place.rate.charged_bytes
                self._told_at[place] = now
                entries.append((place.name, len(place.connections), size_bytes))
            if not place.connections:
                self._told_at.pop(place, None)
        if entries:
            self._publish(CHANNEL, json.dumps((self._boot_id, entries)).encode())
        if self._shared:
            self._arm()
