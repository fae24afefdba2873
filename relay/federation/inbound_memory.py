"""Which deliveries of other relays were accepted lately: a repeat of one is not taken twice.

A relay of our kind names each of its deliveries, and says of one whose answer it did not get that
it may have been accepted before. What is accepted is noted in the same MULTI as its XADD, in one
set for each sending relay and minute of unix time; only messages with that flag are looked up.

What is kept is a hash of 8 bytes of the name *and* the head of the envelope: small, and a relay
whose Redis went back in time may use a name for another message, which must not be taken for the
first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from redispipe import resp
from relay.queues import keys

MEMORY_MINUTES: Final = 10
"""A sender's longest back-off is a minute."""
MEMORY_TTL_S: Final = 60 * (MEMORY_MINUTES + 1)
HASH_BYTES: Final = 8
"""Of ten minutes at 10,000 messages a second one is mistaken for another once in 10^12 repeats."""
MARKED_BYTES: Final = 4096
"""Of an envelope: its uid, times, addresses and signature are among them."""
REMEMBERED_PER_MINUTE: Final = 500_000
"""By one worker: 40 to 64 bytes each in Redis. Above it a repeat may be taken twice."""

Mark = tuple[str, bytes]
"""Id of the sending relay, and the hash."""


def mark(relay_id: str, delivery_id: bytes, envelope: bytes) -> Mark:
    """What is remembered of one delivery."""
    marked = b"%b/%b" % (delivery_id, envelope[:MARKED_BYTES])
    return relay_id, hashlib.blake2b(marked, digest_size=HASH_BYTES).digest()


class Memory:
    """One worker's part in it.

    Attributes:
        under_way: of deliveries that are being taken by this worker now.
        forgotten: how many were not noted, as there were too many.
    """

    def __init__(self) -> None:
        self.under_way: set[Mark] = set()
        self.forgotten = 0
        self._minute = 0
        self._noted = 0  # in this minute

    def note(self, marks: list[Mark], now_s: float) -> list[bytes]:
        """The commands that remember deliveries, for the MULTI that stores them."""
        minute = int(now_s // 60)
        if minute != self._minute:
            self._minute = minute
            self._noted = 0
        room = max(0, REMEMBERED_PER_MINUTE - self._noted)
        self.forgotten += max(0, len(marks) - room)
        noted = marks[:room]
        self._noted += len(noted)
        by_relay: dict[str, list[bytes]] = {}
        for relay_id, digest in noted:
            by_relay.setdefault(relay_id, []).append(digest)
        commands = []
        for relay_id, digests in by_relay.items():
            name = keys.seen(relay_id, minute)
            commands.append(resp.command("SADD", name, *digests))
            commands.append(resp.command("EXPIRE", name, MEMORY_TTL_S))
        return commands

    def look(
        self,
        marks: list[Mark],
        now_s: float,
        submit: Callable[[bytes, Callable[[Any], None], int], None],
        then: Callable[[set[Mark] | None], None],
    ) -> None:
        """Asks which of these were accepted, in one round trip.

        Args:
            marks: what to look for.
            now_s: unix time.
            submit: sends commands, of whose replies so many are skipped.
            then: called with those that were; with None when it cannot be known now.
        """
        by_relay: dict[str, list[bytes]] = {}
        for relay_id, digest in marks:
            by_relay.setdefault(relay_id, []).append(digest)
        minute = int(now_s // 60)
        # One more, as the clocks of two hosts of this relay may differ.
        minutes = range(minute - MEMORY_MINUTES, minute + 2)
        commands = [
            resp.command("SMISMEMBER", keys.seen(relay_id, each), *digests)
            for relay_id, digests in by_relay.items()
            for each in minutes
        ]

        def answered(reply: Any) -> None:
            if not isinstance(reply, list):
                then(None)
                return
            found: set[Mark] = set()
            replies = iter(reply)
            for relay_id, digests in by_relay.items():
                for _ in minutes:
                    there = next(replies)
                    if not isinstance(there, list):
                        then(None)
                        return
                    found.update(
                        (relay_id, digest)
                        for digest, yes in zip(digests, there, strict=True)
                        if yes
                    )
            then(found)

        submit(b"".join([resp.MULTI, *commands, resp.EXEC]), answered, 1 + len(commands))
