"""Rate limits by address, or by key for keys with a limit of their own, and their announcements.

All connections of an address at a worker share one `ByteRate`; `sharing` coordinates those of
several workers. The time that a connection must take for each byte is that of the address, times
the number of its connections. A new connection gets it at once; the others get a change within
`ROUND_S`, in one round for all connections that were opened or closed meanwhile. A client that has
proved a key with a limit of its own counts for the key instead of the address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proto.limits.addresses import place_of
from proto.sbd.frames import path_of_key
from proto.sbd.rate import ByteRate, announced_byte_nanos
from relay.sbd.decisions import Decisions

if TYPE_CHECKING:
    from relay.sbd.connection import Connection
    from relay.sbd.options import SbdOptions

ROUND_S: Final = 0.1


class Place:
    """An address, IPv6 network or key with open connections.

    Attributes:
        name: its name, which is the same on all workers.
        rate: what it sent, at this worker and at others.
        connections: its open connections at this worker.
        elsewhere: open connections at other workers, by boot id: their number, and the loop time
            until which it is valid.
        told_bytes: the part of `rate.charged_bytes` that other workers know already.
    """

    __slots__ = ("_loop", "_round", "connections", "elsewhere", "name", "rate",
                 "told_bytes")  # fmt: skip

    def __init__(self, name: str, rate: ByteRate, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.rate = rate
        self.connections: set[Connection] = set()
        self.elsewhere: dict[str, tuple[int, float]] = {}
        self.told_bytes = 0
        self._loop = loop
        self._round: asyncio.TimerHandle | None = None

    @property
    def charge(self) -> Callable[[int, int], bool]:
        """Function that counts what its connections send; see `ByteRate.charge`."""
        return self.rate.charge if self.rate.byte_nanos else _unlimited

    def byte_nanos(self) -> int:
        """Return the nanoseconds that each byte of one connection takes now."""
        elsewhere = sum(count for count, _ in self.elsewhere.values())
        return announced_byte_nanos(self.rate.byte_nanos, max(1, len(self.connections) + elsewhere))

    def forget_elsewhere(self, now: float) -> None:
        """Forget numbers of other workers that have expired at the loop time `now`."""
        for boot_id, (_, until) in list(self.elsewhere.items()):
            if until < now:
                del self.elsewhere[boot_id]
                self.changed()

    def changed(self) -> None:
        """Schedule an announcement after connections were opened or closed, one for all of them."""
        if self._round is None and self.rate.byte_nanos:
            self._round = self._loop.call_later(ROUND_S, self._tell)

    def limit(self, byte_nanos: int) -> None:
        """Change the time that each byte takes, and announce it to its connections at once."""
        self.rate.change(byte_nanos, time.monotonic_ns())
        for connection in self.connections:
            connection.place = self  # sets `charge` for the new rate
        self._announce()

    def _tell(self) -> None:
        self._round = None
        self._announce()

    def _announce(self) -> None:
        byte_nanos = self.byte_nanos()
        for connection in self.connections:
            connection.announce(byte_nanos)


class Places:
    """The addresses and keys of this worker's connections, and those that still owe time.

    Attributes:
        decisions: decisions of operators; call `apply_limits` after changing them.
    """

    def __init__(self, options: SbdOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self.decisions = Decisions()
        self._places: dict[str, Place] = {}

    def of(self, address: str) -> Place:
        """Return the place of an address without a port."""
        return self._named(place_of(address, self._options.ipv6_prefix))

    def of_key(self, key: bytes) -> Place | None:
        """Return the place of a key, or None if the limit of its address applies."""
        name = path_of_key(key)
        return self._named(name) if name in self.decisions.keys else None

    def get(self, name: str) -> Place | None:
        """Return the place with a name, or None."""
        return self._places.get(name)

    def apply_limits(self) -> list[Place]:
        """Apply the limits of the decisions to all places.

        Returns:
            The places whose limit has changed.
        """
        changed = []
        for name, place in self._places.items():
            byte_nanos = self._byte_nanos(name)
            if byte_nanos != place.rate.byte_nanos:
                place.limit(byte_nanos)
                changed.append(place)
        return changed

    def forget(self, now_ns: int) -> None:
        """Forget places that have no connections and owe no time."""
        for name, place in list(self._places.items()):
            if not place.connections and place.rate.is_idle(now_ns):
                del self._places[name]

    def _named(self, name: str) -> Place:
        place = self._places.get(name)
        if place is None:
            rate = ByteRate(self._byte_nanos(name), self._options.burst_bytes)
            place = self._places[name] = Place(name, rate, self._loop)
        return place

    def _byte_nanos(self, name: str) -> int:
        """Return the limit of a place, as nanoseconds for each byte."""
        own = self.decisions.keys.get(name)
        if own is None:
            own = self.decisions.networks.find(name.partition("/")[0])
        return self._options.byte_nanos if own is None else own


def _unlimited(size_bytes: int, now_ns: int) -> bool:
    return True
