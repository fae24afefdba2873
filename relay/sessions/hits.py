"""Twins and addresses that exceed limits, counted by the worker that refuses them.

While there are no refusals nothing is done. A refusal costs one addition in a dictionary. With each
heartbeat, once a second, the counts are added to sorted sets in Redis, one for each minute, in
which only the heaviest stay (`lua/hits.lua`). `relay.limits.hits` reads them.
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
"""Maximum number of names counted between two heartbeats; further ones are in the metrics only."""
KEPT: Final = 500
"""Maximum number of names in the set of one minute. It contains every name with more than a
five-hundredth of the minute's refusals, and overstates a count by at most that fraction."""
KEPT_S: Final = 2 * 3600


def host_of(address: str) -> str:
    """Return the host in `host:port` or `[host]:port`; an address without a port is all host."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        return address
    return host.removeprefix("[").removesuffix("]")


class Hits:
    """Counts of a worker between two heartbeats, by kind (`keys.HIT_KINDS`) and name."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str | int]] = {kind: Counter() for kind in keys.HIT_KINDS}

    def message(self, twin: int, address: str) -> None:
        """Count a message of a twin that was over its limit.

        Args:
            address: address of the connection it came by, with its port; empty if a partner relay
                brought it.
        """
        self._note("twin", twin, 1)
        if address:
            self._note("address", host_of(address), 1)

    def handshake(self, address: str) -> None:
        """Count a handshake from an address that had too many of them, or is banned."""
        self._note("handshake", address, 1)

    def _note(self, kind: str, name: str | int, count: int) -> None:
        counts = self._counts[kind]
        if name in counts or len(counts) < MAX_NOTED:
            counts[name] += count

    async def publish(self, worker: Worker) -> None:
        """Add the counts to the sets of this minute.

        Raises:
            LinkLost: Redis went away; the counts are kept for the next heartbeat.
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
