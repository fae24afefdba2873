"""What waits in the queues, charged to its source and to the twin it is for.

A queue whose session is connected is empty again at once and costs no counting. What waits for one
that is not, or that does not read, is counted inside the group commit that stores it (`held.lua`):
in the hash of the queue what each source has in it (`keys.share`), in those of the twins what they
have waiting in all queues, as a source (`keys.sent`) and as a destination (`keys.received`). A
queue is charged what it takes of Redis' memory: a new one takes kilobytes, however short its
message. When a session has read its queue, all that was charged for it is given back at once; the
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
"""Memory of a queue with one short message: Redis 7 and Valkey reserve 4 KiB for the first entries,
and there are the key and what is counted about it."""
ENTRY_BYTES: Final = 32
"""Memory of an entry beside its message."""
LIFE_MORE_S: Final = 120
"""How much longer than its queue a count may live: a sweep comes meanwhile and gives it back."""


class TwinBounds(NamedTuple):
    """What may wait in all queues: of one source, and the same for one destination twin."""

    messages: int = 100_000
    size_bytes: int = 128 << 20
    queues: int = 10_000
    unknown_queues: int = 1_000  # of sessions that have never signed in


class Held(NamedTuple):
    """What waits in the queues of a twin, or from it."""

    messages: int = 0
    size_bytes: int = 0
    queues: int = 0
    unknown_queues: int = 0

    @classmethod
    def parse(cls, counts: Iterable[Any]) -> Held:
        """Read what HMGET returns for `FIELDS` of a twin's hash; without the hash nothing waits."""
        return cls(*(int(count or 0) for count in counts))

    def filled_percent(self, bounds: TwinBounds) -> float:
        """How much is filled of the bound that is filled most."""
        return round(100 * max(held / bound for held, bound in zip(self, bounds, strict=True)), 1)


FIELDS: Final = ("messages", "bytes", "queues", "unknown")
"""Of a twin's hash, in the order of `Held`."""

Told = Callable[[str, Held, float], None]
"""Told what waits of a twin: name of its hash, counts, loop time as of which."""


class QueueCharge:
    """What one batch adds to queues that are not read at once."""

    def __init__(self, life_s: int) -> None:
        self._life_s = life_s
        self._arguments: list[resp.Argument] = []
        self._charged: list[tuple[Destination, int]] = []

    def add(self, destination: Destination, sources: dict[int, int], always: bool) -> None:
        """Counts what sources put into a queue.

        Args:
            sources: twin -> packed count (`relay.queues.held`).
            always: also if its session is connected.
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
        """Writes the command into a MULTI, and who gets its reply into `handlers`."""
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
    """Passes on what a reply of `held.lua` says of twins."""
    if isinstance(reply, list):
        for name, *counts in reply[1]:
            told(name.decode(), Held(*counts), now)


def command(what: str, life_s: int, arguments: Iterable[resp.Argument]) -> bytes:
    """The command that runs `held.lua`; see there."""
    return resp.command("EVAL", *script(what, life_s, arguments))


def script(what: str, life_s: int, arguments: Iterable[resp.Argument]) -> tuple[Any, ...]:
    """What EVAL takes to run `held.lua`.

    Args:
        life_s: of the queues.
    """
    names = (keys.SESSIONS, keys.UNUSED)
    life_s += LIFE_MORE_S
    return (scripts.source("held"), 2, *names, what, life_s, QUEUE_BYTES, *arguments)
