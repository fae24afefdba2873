"""Messages that wait to be opened: in order, in slices, bounded."""

from __future__ import annotations

import asyncio
import time

import pytest

from peer.inbox import MAX_BYTES, MAX_MESSAGES, SLICE_S, Inbox


class Owner:
    """Opens messages, unless it is busy."""

    def __init__(self, each_s: float = 0.0) -> None:
        self.busy = False
        self.opened: list[bytes] = []
        self.floods: list[bool] = []
        self._each_s = each_s
        self.inbox = Inbox(self.open, lambda: self.busy, self.floods.append)

    def open(self, data: bytes) -> None:
        until = time.monotonic() + self._each_s
        while time.monotonic() < until:
            pass
        self.opened.append(data)


async def test_everything_is_looked_at_in_order_and_others_get_their_turn() -> None:
    owner = Owner(each_s=SLICE_S / 4)
    messages = [b"%d" % number for number in range(50)]
    for each in messages:
        owner.inbox.receive(each)
    assert not owner.opened, "not in the turn that brought it"
    turns = 0
    while len(owner.opened) < len(messages):
        await asyncio.sleep(0)
        turns += 1
    assert owner.opened == messages
    assert turns >= 10


async def test_the_relays_are_not_read_while_too_many_wait() -> None:
    owner = Owner()
    owner.busy = True
    for _ in range(MAX_MESSAGES):
        owner.inbox.receive(b"x")
    assert owner.floods == []
    owner.inbox.receive(b"x")
    owner.inbox.receive(b"x")
    await owner.inbox.worked()
    assert (owner.floods, owner.opened) == ([True], [])
    owner.busy = False
    await owner.inbox.worked()
    assert owner.floods == [True, False]
    assert len(owner.opened) == MAX_MESSAGES + 2


async def test_the_relays_are_not_read_while_too_many_bytes_wait() -> None:
    owner = Owner()
    half = bytes(MAX_BYTES // 2)
    owner.inbox.receive(half)
    owner.inbox.receive(half)
    assert owner.floods == []
    owner.inbox.receive(b"x")
    assert owner.floods == [True]
    await owner.inbox.worked()
    assert owner.floods == [True, False]


async def test_a_message_that_can_not_be_taken_holds_up_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened: list[bytes] = []

    def take(data: bytes) -> None:
        if data == b"bad":
            raise ZeroDivisionError
        opened.append(data)

    inbox = Inbox(take, lambda: False, lambda flooded: None)
    for each in (b"bad", b"good"):
        inbox.receive(each)
    await inbox.worked()
    assert opened == [b"good"]
    assert "a message of 3 bytes was dropped" in caplog.text
    inbox.receive(b"next")
    await inbox.worked()
    assert opened == [b"good", b"next"]


async def test_what_is_forgotten_is_not_looked_at() -> None:
    owner = Owner()
    owner.inbox.receive(b"x")
    owner.inbox.clear()
    await owner.inbox.worked()
    owner.inbox.receive(b"y")
    await owner.inbox.worked()
    assert owner.opened == [b"y"]
