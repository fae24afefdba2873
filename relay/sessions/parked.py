"""What waits in a sender for a fact, and the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from relay.queues.destination import Destination


class Fact(NamedTuple):
    """What was asked for a destination.

    Attributes:
        failed: its twin could not be looked up.
        present: some worker holds it; for the one fail-fast message that asked, None otherwise.
        room: what is known of its queue, or of the outbox, was found out just now.
    """

    failed: bool = False
    present: bool | None = None
    room: bool = False


UNASKED: Final = Fact()


class Parked:
    """A message (or ping) that waits, in the order of arrival.

    It has no parsed envelope: the one at hand would keep a block of others, another one would cost
    as much as all else that is done with the message, and few are asked for it.
    """

    __slots__ = ("destination", "fail_fast", "payload")

    def __init__(self, destination: Destination | None, payload: bytes, fail_fast: bool) -> None:
        self.destination = destination  # None: a ping, which waits for all before it
        self.payload = payload
        self.fail_fast = fail_fast
