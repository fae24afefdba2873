"""Who runs into limits: counted in the worker that refuses, told with its heartbeat.

Nothing happens while nobody does. A refusal costs one addition in a dictionary; each second what
came together is added to sorted sets in Redis, one for each minute, in which only the heaviest
stay (`lua/hits.lua`). `relay.limits.hits` reads them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import hiredis

from redispipe.errors import LinkLost
from relay.queues import keys
from relay.sessions import scripts

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

MAX_NOTED: Final = 1000
"""Names counted between two heartbeats; further ones are in the metrics only."""
KEPT: Final = 500
"""Names in the set of one minute. Of a minute's refusals, whoever had more than a five-hundredth is
among them, and is told at most by that part too high."""
KEPT_S: Final = 2 * 3600


def host_of(address: str) -> str:
    """The host in `host:port` or `[host]:port`; an address without a port is all host."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        return address
    return host.removeprefix("[").removesuffix("]")


class Hits:
    """What a worker counts between two heartbeats, by kind (`keys.HIT_KINDS`) and name."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str | int]] = {kind: Counter() for kind in keys.HIT_KINDS}

    def message(self, twin: int, address: str) -> None:
        """A message of a twin was over its limit.

        Args:
            address: of the connection it came by, with its port; empty where another relay
                brought it.
        """
        self._note("twin", twin, 1)
        if address:
            self._note("address", host_of(address), 1)

    def handshake(self, address: str) -> None:
        """An address had too many handshakes, or is banned."""
        self._note("handshake", address, 1)

    def _note(self, kind: str, name: str | int, count: int) -> None:
        counts = self._counts[kind]
        if name in counts or len(counts) < MAX_NOTED:
            counts[name] += count

    async def publish(self, worker: Worker) -> None:
        """Adds what there is to the sets of this minute.

        Raises:
            LinkLost: Redis went away; it is told with the next heartbeat.
        """
        minute = int(worker.wall_s()) // 60
        for kind, counts in self._counts.items():
            if not counts:
                continue
            self._counts[kind] = Counter()
            try:
                await worker.request(scripts.hits(kind, minute, KEPT, KEPT_S, counts))
            except (LinkLost, hiredis.ReplyError):
                for name, count in counts.items():
                    self._note(kind, name, count)
                raise
