"""Large messages, each of which fills its link: they are sent one by one, and confirmed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Sequence

from peer.unconfirmed import BARRIER_BYTES, Unconfirmed


class FullLane:
    """A link that accepts one message and is full until `drain` is called."""

    connected = True
    sessions = 1
    close_code = 0

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.full = False

    @property
    def links(self) -> Sequence[FullLane]:
        return [self]

    def try_send(self, data: bytes) -> bool:
        if self.full:
            return False
        self.taken.append(data)
        self.full = len(data) > 1000
        return True


class OneLane:
    """Stands in for `peer.links` with one link."""

    def __init__(self, lane: FullLane) -> None:
        self.links: Sequence[FullLane] = [lane]

    def try_send(self, data: bytes, without: Collection[FullLane] = ()) -> FullLane | None:
        lane = self.links[0]
        return lane if lane.try_send(data) else None


async def test_a_link_that_takes_messages_again_is_used_and_pinged_at_once() -> None:
    lane, numbers = FullLane(), itertools.count()
    settled: list[object] = []

    def make_ping() -> tuple[str, bytes]:
        uid = f"ping {next(numbers)}"
        return uid, uid.encode()

    window = Unconfirmed(
        OneLane(lane),
        make_ping,
        settled.append,
        settled.append,
        lambda token, error: None,
    )
    message = bytes(BARRIER_BYTES // 2)
    for number in range(8):
        window.send(message, time.time() + 60, number)
    assert lane.taken == [message]
    for _ in range(20):  # no timer runs meanwhile, as nothing here waits
        lane.full = False
        before = len(lane.taken)
        window.changed(lane)
        for data in lane.taken[before:]:
            if data != message:
                window.pong(data.decode())
    assert lane.taken.count(message) == 8
    # Messages that a pong has confirmed are discarded: a ping follows each two of them.
    assert settled == list(range(8)) and len(window) == 0
    window.close()
