"""Messages that wait in a sender for a fact, and the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from relay.queues.destination import Destination


class Fact(NamedTuple):
    """The answer to what was asked for a destination.

    Attributes:
        failed: whether its twin could not be looked up.
        present: whether a worker holds it; only for the fail-fast message that asked, otherwise
            None.
        room: whether the state of its queue, or of the outbox, was read just now.
    """

    failed: bool = False
    present: bool | None = None
    room: bool = False


UNASKED: Final = Fact()


class Parked:
    """A message (or ping) that waits, in the order of arrival.

    It has no parsed envelope: the existing one would keep a block of others in memory, another one
    would cost as much as everything else done with the message, and it is rarely needed.
    """

    __slots__ = ("destination", "fail_fast", "payload")

    def __init__(self, destination: Destination | None, payload: bytes, fail_fast: bool) -> None:
        self.destination = destination  # None: a ping, which waits for everything before it
        self.payload = payload
        self.fail_fast = fail_fast
