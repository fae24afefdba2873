"""What each address may send, or a key with a limit of its own, and how connections are told.

All connections of an address at a worker share one `ByteRate`; `sharing` keeps those of several
workers together. The time each byte takes is the
address's, times its connections: who signs in is told at once, and the others within `ROUND_S`,
in one round for however many came and left meanwhile. A client that has proven a key with a limit
of its own is counted under the key instead.
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
    """One address, network of IPv6 or key, while connections of it are open.

    Attributes:
        name: of it, the same on all workers.
        rate: what it sent, here and on other workers.
        connections: that are open here.
        elsewhere: boot id of another worker -> open connections there, and until when that holds.
        told_bytes: of what it sent, what other workers know or told themselves.
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
        """Counts what a connection of it sends; see `ByteRate.charge`."""
        return self.rate.charge if self.rate.byte_nanos else _unlimited

    def byte_nanos(self) -> int:
        """What each byte of one connection takes now."""
        elsewhere = sum(count for count, _ in self.elsewhere.values())
        return announced_byte_nanos(self.rate.byte_nanos, max(1, len(self.connections) + elsewhere))

    def forget_elsewhere(self, now: float) -> None:
        """Forget what workers told that have not told it again; `now` is the loop's time."""
        for boot_id, (_, until) in list(self.elsewhere.items()):
            if until < now:
                del self.elsewhere[boot_id]
                self.changed()

    def changed(self) -> None:
        """Connections came or left: tell the others, all at once."""
        if self._round is None and self.rate.byte_nanos:
            self._round = self._loop.call_later(ROUND_S, self._tell)

    def limit(self, byte_nanos: int) -> None:
        """Let each byte take another time, and tell its connections at once."""
        self.rate.change(byte_nanos, time.monotonic_ns())
        for connection in self.connections:
            connection.place = self  # counts by the new rate
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
        decisions: what operators decided; call `apply_limits` when they are others.
    """

    def __init__(self, options: SbdOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self.decisions = Decisions()
        self._places: dict[str, Place] = {}

    def of(self, address: str) -> Place:
        """The place of an address without a port."""
        return self._named(place_of(address, self._options.ipv6_prefix))

    def of_key(self, key: bytes) -> Place | None:
        """The place of a key; None where the limit of its address holds."""
        name = path_of_key(key)
        return self._named(name) if name in self.decisions.keys else None

    def get(self, name: str) -> Place | None:
        """The place of that name, if there is one."""
        return self._places.get(name)

    def apply_limits(self) -> list[Place]:
        """Give each place the limit that was decided.

        Returns:
            The places whose limit is another one now.
        """
        changed = []
        for name, place in self._places.items():
            byte_nanos = self._byte_nanos(name)
            if byte_nanos != place.rate.byte_nanos:
                place.limit(byte_nanos)
                changed.append(place)
        return changed

    def forget(self, now_ns: int) -> None:
        """Forget places without connections that owe no time."""
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
        """What the limit of a place is."""
        own = self.decisions.keys.get(name)
        if own is None:
            own = self.decisions.networks.find(name.partition("/")[0])
        return self._options.byte_nanos if own is None else own


def _unlimited(size_bytes: int, now_ns: int) -> bool:
    return True
