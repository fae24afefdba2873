"""One limit for an address with connections on several workers.

A worker says on `sbd:places` which of its addresses have come, gone or changed their number of
connections. Who has connections of the same address answers with its own number, and from then on
both tell each other each `TELL_S` what the address sent: every worker charges that as well. So an
address may send its rate, and at a burst what its other workers took within about `TELL_S`.

What was told is believed for `BELIEVED_S`, and told again in half of that: a worker that died is
forgotten then.
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
    """What one worker tells of its addresses, and hears of those of others."""

    def __init__(
        self, boot_id: str, places: Places, publish: Callable[[bytes, bytes], None]
    ) -> None:
        """
        Args:
            publish: sends a message on a channel.
        """
        self._boot_id = boot_id
        self._places = places
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._news: set[Place] = set()  # to be told, whether shared or not
        self._shared: set[Place] = set()
        self._told_at: dict[Place, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, place: Place) -> None:
        """Connections of an address came or left."""
        self._news.add(place)
        self._arm()

    def heard(self, data: bytes) -> None:
        """Take what another worker told.

        Raises:
            ValueError: something else sent it.
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
                place.told_bytes += size_bytes  # it is not ours to tell
            if boot_id not in place.elsewhere and place.connections:
                self.changed(place)  # it does not know of ours
            former = place.elsewhere.pop(boot_id, (0, 0.0))[0]
            if count:
                place.elsewhere[boot_id] = (count, until)
                self._shared.add(place)
                self._arm()
            if count != former:
                place.changed()

    def stop(self) -> None:
        """Tell nothing more."""
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
