"""What each address may send, and how its connections are told.

All connections of an address at a worker share one `ByteRate`; `sharing` keeps those of several
workers together. The time each byte takes is the
address's, times its connections: who signs in is told at once, and the others within `ROUND_S`,
in one round for however many came and left meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proto.limits.addresses import place_of
from proto.sbd.rate import ByteRate, announced_byte_nanos

if TYPE_CHECKING:
    from relay.sbd.connection import Connection
    from relay.sbd.options import SbdOptions

ROUND_S: Final = 0.1


class Place:
    """One address, or one network of IPv6, while connections of it are open.

    Attributes:
        name: of it, the same on all workers.
        rate: what it sent, here and on other workers.
        connections: that are open here.
        elsewhere: boot id of another worker -> open connections there, and until when that holds.
        told_bytes: of what it sent, what other workers know or told themselves.
    """

    __slots__ = ("_loop", "_options", "_round", "connections", "elsewhere", "name", "rate",
                 "told_bytes")  # fmt: skip

    def __init__(self, name: str, options: SbdOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.rate = ByteRate(options.byte_nanos, options.burst_bytes)
        self.connections: set[Connection] = set()
        self.elsewhere: dict[str, tuple[int, float]] = {}
        self.told_bytes = 0
        self._options = options
        self._loop = loop
        self._round: asyncio.TimerHandle | None = None

    @property
    def charge(self) -> Callable[[int, int], bool]:
        """Counts what a connection of it sends; see `ByteRate.charge`."""
        return self.rate.charge if self._options.byte_nanos else _unlimited

    def byte_nanos(self) -> int:
        """What each byte of one connection takes now."""
        elsewhere = sum(count for count, _ in self.elsewhere.values())
        return announced_byte_nanos(
            self._options.byte_nanos, max(1, len(self.connections) + elsewhere)
        )

    def forget_elsewhere(self, now: float) -> None:
        """Forget what workers told that have not told it again; `now` is the loop's time."""
        for boot_id, (_, until) in list(self.elsewhere.items()):
            if until < now:
                del self.elsewhere[boot_id]
                self.changed()

    def changed(self) -> None:
        """Connections came or left: tell the others, all at once."""
        if self._round is None and self._options.byte_nanos:
            self._round = self._loop.call_later(ROUND_S, self._tell)

    def _tell(self) -> None:
        self._round = None
        byte_nanos = self.byte_nanos()
        for connection in self.connections:
            connection.announce(byte_nanos)


class Places:
    """The addresses of this worker's connections, and those that still owe time."""

    def __init__(self, options: SbdOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self._places: dict[str, Place] = {}

    def of(self, address: str) -> Place:
        """The place of an address without a port."""
        name = place_of(address, self._options.ipv6_prefix)
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = Place(name, self._options, self._loop)
        return place

    def get(self, name: str) -> Place | None:
        """The place of that name, if there is one."""
        return self._places.get(name)

    def forget(self, now_ns: int) -> None:
        """Forget places without connections that owe no time."""
        for name, place in list(self._places.items()):
            if not place.connections and place.rate.is_idle(now_ns):
                del self._places[name]


def _unlimited(size_bytes: int, now_ns: int) -> bool:
    return True
