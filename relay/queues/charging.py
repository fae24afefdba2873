"""Messages that wait in queues, charged to their source twin and to their destination twin.

A queue whose session is connected is emptied at once and costs no counting. Messages for a session
that is not connected, or does not read, are counted inside the group commit that stores them
(`held.lua`): per source in a hash of the queue (`keys.share`), and per twin in hashes of what waits
in all queues, from it as a source (`keys.sent`) and for it as a destination (`keys.received`). A
queue is charged for the memory that it takes in Redis: a new queue takes kilobytes, however short
its message. When a session has read its queue, everything charged for it is given back at once; the
sweep gives back what expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redispipe import resp
from relay.queues import keys, scripts
from relay.queues.destination import Share
from relay.queues.held import MESSAGE_BITS, MESSAGE_MASK

if TYPE_CHECKING:
    from relay.queues.destination import Destination

QUEUE_BYTES: Final = 4_608
"""Memory of a queue with one short message, in bytes: Redis 7 and Valkey reserve 4 KiB for the
first entries; the rest is the key and its counts."""
ENTRY_BYTES: Final = 32
"""Memory of an entry in addition to its message, in bytes."""
LIFE_MORE_S: Final = 120
"""Seconds by which a count may outlive its queue, in which a sweep gives it back."""


class TwinBounds(NamedTuple):
    """Bounds of what may wait in all queues from one source twin, and for one destination twin."""

    messages: int = 100_000
    size_bytes: int = 128 << 20
    queues: int = 10_000
    unknown_queues: int = 1_000  # of sessions that have never signed in


class Held(NamedTuple):
    """What waits in the queues of a twin, or from it in all queues."""

    messages: int = 0
    size_bytes: int = 0
    queues: int = 0
    unknown_queues: int = 0

    @classmethod
    def parse(cls, counts: Iterable[Any]) -> Held:
        """Read the HMGET reply for `FIELDS` of a twin's hash; without the hash, nothing waits."""
        return cls(*(int(count or 0) for count in counts))

    def filled_percent(self, bounds: TwinBounds) -> float:
        """Return the percentage used of the bound that is closest to being reached."""
        return round(100 * max(held / bound for held, bound in zip(self, bounds, strict=True)), 1)


FIELDS: Final = ("messages", "bytes", "queues", "unknown")
"""Fields of a twin's hash, in the order of `Held`."""

Told = Callable[[str, Held, float], None]
"""Called with what waits of a twin: name of its hash, counts, and the loop time of the counts."""


class QueueCharge:
    """What one batch adds to the accounts of queues that are not read at once."""

    def __init__(self, life_s: int) -> None:
        self._life_s = life_s
        self._arguments: list[resp.Argument] = []
        self._charged: list[tuple[Destination, int]] = []

    def add(self, destination: Destination, sources: dict[int, int], always: bool) -> None:
        """Count the messages that sources put into a queue.

        Args:
            sources: Packed count (`relay.queues.held`) by source twin.
            always: Whether they are charged even if the session is connected.
        """
        for twin, packed in sources.items():
            messages = packed & MESSAGE_MASK
            size_bytes = (packed >> MESSAGE_BITS) + ENTRY_BYTES * messages
            self._arguments += (destination.text, int(always), twin, messages, size_bytes)
            self._charged.append((destination, twin))

    def encode(
        self,
        append: Callable[[bytes], None],
        handlers: list[Callable[[Any], None]],
        told: Told,
        now: float,
    ) -> None:
        """Append the command to a MULTI, and the handler of its reply to `handlers`."""
        if not self._charged:
            return
        append(command("charge", self._life_s, self._arguments))

        def charged(reply: Any) -> None:
            if not isinstance(reply, list):
                return
            answers = reply[0]
            for place, (destination, twin) in enumerate(self._charged):
                destination.present = answers[place] == 1
                packed = int(answers[len(self._charged) + place])
                if packed or destination.shares:
                    if destination.shares is None:
                        destination.shares = {}
                    destination.shares[twin] = Share(packed, now)
            tell(reply, told, now)

        handlers.append(charged)


def tell(reply: Any, told: Told, now: float) -> None:
    """Pass the counts of twins in a reply of `held.lua` to `told`."""
    if isinstance(reply, list):
        for name, *counts in reply[1]:
            told(name.decode(), Held(*counts), now)


def command(what: str, life_s: int, arguments: Iterable[resp.Argument]) -> bytes:
    """Encode the command that runs `held.lua` (see the arguments there)."""
    return resp.command("EVAL", *script(what, life_s, arguments))


def script(what: str, life_s: int, arguments: Iterable[resp.Argument]) -> tuple[Any, ...]:
    """Return the arguments with which EVAL runs `held.lua`.

    Args:
        life_s: Lifetime of the queues, in seconds.
    """
    names = (keys.SESSIONS, keys.UNUSED)
    life_s += LIFE_MORE_S
    return (scripts.source("held"), 2, *names, what, life_s, QUEUE_BYTES, *arguments)
