"""Sent messages are kept until a relay has them, and are sent again when their link ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Hashable

import pytest

from peer import unconfirmed
from peer.unconfirmed import Unconfirmed

FAR = time.time() + 3600


class Lane:
    """A link that records what it is given."""

    def __init__(self) -> None:
        self.connected = True
        self.sessions = 1
        self.close_code = 0
        self.takes = True
        self.got: list[bytes] = []

    def try_send(self, data: bytes) -> bool:
        if self.connected and self.takes:
            self.got.append(data)
            return True
        return False


class Lanes:
    """Two links; the first that accepts a message gets it."""

    def __init__(self) -> None:
        self.links = (Lane(), Lane())

    def try_send(self, data: bytes, without: Collection[Lane] = ()) -> Lane | None:
        usable = (link for link in self.links if link not in without)
        return next((link for link in usable if link.try_send(data)), None)


class World:
    """A window, and the events that it reported."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.first, self.second = self.lanes.links
        self.settled: list[Hashable] = []
        self.expired: list[Hashable] = []
        self.refused: list[tuple[Hashable, int, int]] = []
        self.room = 0
        self.pings = 0
        self.window = Unconfirmed(
            self.lanes,
            self._ping,
            self.settled.append,
            self.expired.append,
            lambda token, error: self.refused.append((token, error.size_bytes, error.limit_bytes)),
            self._has_room,
        )

    def _ping(self) -> tuple[str, bytes]:
        self.pings += 1
        return f"ping-{self.pings}", b"ping %d" % self.pings

    def _has_room(self) -> None:
        self.room += 1

    def lose(self, lane: Lane, close_code: int = 0) -> None:
        lane.connected, lane.close_code = False, close_code
        self.window.changed(lane)

    def answer_pings(self) -> None:
        """Answer the pings that were sent so far."""
        for number in range(1, self.pings + 1):
            self.window.pong(f"ping-{number}")

    def regain(self, lane: Lane) -> None:
        lane.connected, lane.sessions = True, lane.sessions + 1
        self.window.changed(lane)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_pong_settles_what_was_sent_before_its_ping(world: World) -> None:
    for number in range(unconfirmed.BARRIER_MESSAGES + 3):
        world.window.send(b"m%d" % number, FAR, number)
    assert world.pings == 1
    assert world.settled == []
    assert world.window.pong("ping-1")
    assert world.settled == list(range(unconfirmed.BARRIER_MESSAGES))
    assert not world.window.pong("ping-1")
    world.window.close()


async def test_little_traffic_is_confirmed_after_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "BARRIER_S", 0.01)
    world.window.send(b"m", FAR, "token")
    async with asyncio.timeout(5):
        while not world.pings:
            await asyncio.sleep(0)
    assert world.first.got == [b"m", b"ping 1"]
    world.window.pong("ping-1")
    assert world.settled == ["token"]
    assert len(world.window) == 0
    world.window.close()


async def test_what_a_lost_link_did_not_confirm_goes_over_the_other_in_order(
    world: World,
) -> None:
    for number in range(5):
        world.window.send(b"m%d" % number, FAR, number)
    world.window.settle(2)  # its answer has arrived
    world.lose(world.first)
    assert world.second.got == [b"m0", b"m1", b"m3", b"m4"]
    assert world.window.resent == 4
    world.window.close()


async def test_without_a_link_messages_wait_behind_those_that_come_back(world: World) -> None:
    world.lose(world.second)
    world.window.send(b"old", FAR, "old")
    world.lose(world.first)
    world.window.send(b"new", FAR, "new")
    assert world.window.waiting == 2
    world.regain(world.second)
    assert world.second.got == [b"old", b"new"]
    assert world.window.waiting == 0
    world.window.close()


async def test_a_reconnect_that_nobody_saw_break_resends(world: World) -> None:
    world.window.send(b"before", FAR, "before")
    world.first.sessions += 1
    world.window.send(b"after", FAR, "after")
    assert world.first.got.count(b"before") == 2
    world.window.close()


async def test_what_no_link_takes_expires(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "BARRIER_S", 0.01)
    world.window.send(b"sent", time.time() + 0.05, "sent")
    world.lose(world.first)
    world.lose(world.second)
    world.window.send(b"late", time.time() + 0.05, "late")
    async with asyncio.timeout(5):
        while len(world.expired) < 2:
            await asyncio.sleep(0)
    assert set(world.expired) == {"sent", "late"}
    assert len(world.window) == 0
    world.window.close()


async def test_the_window_tells_when_it_is_full_and_when_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "WINDOW_MESSAGES", 4)
    for number in range(4):
        assert not world.window.full
        world.window.send(b"m", FAR, number)
    assert world.window.full
    for number in range(4):
        world.window.settle(number)
    assert world.room == 1
    assert not world.window.full
    world.window.close()


@pytest.mark.parametrize("unit", ["MESSAGES", "BYTES"])
async def test_answers_find_room_beyond_the_window(
    world: World, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    monkeypatch.setattr(unconfirmed, f"WINDOW_{unit}", 2)
    monkeypatch.setattr(unconfirmed, f"ANSWER_{unit}", 2)
    for number in range(4):
        assert world.window.full == (number >= 2)
        assert not world.window.overfull
        world.window.send(b"m", FAR, number)
    assert world.window.overfull
    for number in range(4):
        world.window.settle(number)
    assert world.room == 1
    world.window.close()


async def test_a_token_is_in_use_once(world: World) -> None:
    world.window.send(b"m", FAR, "token")
    with pytest.raises(ValueError, match="in use"):
        world.window.send(b"m", FAR, "token")
    world.window.close()


async def test_what_is_too_large_for_a_relay_goes_over_another(world: World) -> None:
    world.window.send(b"small", FAR, "small")
    world.window.send(bytes(2000), FAR, "large")
    world.lose(world.first, 1009)
    assert world.second.got == [b"small", bytes(2000)]
    world.regain(world.first)
    world.first.got.clear()
    world.window.send(bytes(2000), FAR, "as large")
    world.window.send(b"another", FAR, "another")
    assert world.second.got[2:] == [bytes(2000)]
    assert world.first.got == [b"another"]
    assert world.refused == []
    world.window.close()


async def test_what_is_too_large_for_all_relays_is_refused(world: World) -> None:
    world.window.send(b"small", FAR, "small")
    world.window.send(bytes(2000), FAR, "large")
    world.lose(world.first, 1009)
    world.lose(world.second, 1009)
    assert world.refused == [("large", 2000, 1999)]
    world.regain(world.first)
    assert world.first.got[2:] == [b"small"]
    world.window.send(bytes(3000), FAR, "larger")
    assert world.refused[1:] == [("larger", 3000, 1999)]
    assert len(world.window) == 1
    world.window.close()


async def test_a_relay_that_comes_back_may_take_more(world: World) -> None:
    world.lose(world.second)
    world.window.send(bytes(2000), FAR, "large")
    world.lose(world.first, 1009)
    world.regain(world.first)
    assert world.first.got == [bytes(2000)]
    world.window.send(b"small", FAR, "small")
    world.lose(world.first, 1012)
    world.regain(world.first)
    world.window._tick()
    world.answer_pings()
    assert bytes(2000) in world.first.got[1:]
    world.window.close()


async def test_what_ended_two_sessions_goes_behind_everything_else(world: World) -> None:
    world.lose(world.second)
    world.window.send(b"bad", FAR, "bad")
    for _ in range(unconfirmed.MANY_LOSSES):
        world.lose(world.first)
        world.window.send(b"m%d" % world.first.sessions, FAR, world.first.sessions)
        world.first.got.clear()
        world.regain(world.first)
    assert world.first.got == [b"m1", b"m2"]
    assert world.window.waiting == 1
    world.window._tick()
    world.answer_pings()
    assert world.settled == [1, 2]
    assert world.first.got[-2:-1] == [b"bad"]
    world.lose(world.first)
    world.first.got.clear()
    world.regain(world.first)
    assert world.first.got == []
    assert world.window.waiting == 1
    world.window.close()


async def test_what_was_put_aside_goes_out_in_growing_portions(world: World) -> None:
    world.lose(world.second)
    for number in range(10):
        world.window.send(b"m%d" % number, FAR, number)
    for _ in range(unconfirmed.MANY_LOSSES):
        world.lose(world.first)
        world.first.got.clear()
        world.regain(world.first)
    portions = []
    while world.first.got:
        portions.append([data for data in world.first.got if data.startswith(b"m")])
        world.first.got.clear()
        world.answer_pings()
    assert portions == [
        [b"m0"],
        [b"m1", b"m2"],
        [b"m3", b"m4", b"m5", b"m6"],
        [b"m7", b"m8", b"m9"],
    ]
    assert world.settled == list(range(10))
    world.window.close()


async def test_a_relay_that_answers_no_ping_is_passed_over_until_it_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "BARRIER_TIMEOUT_S", 0.0)
    world.window.send(b"old", FAR, "old")
    world.window._tick()
    assert world.first.got == [b"old", b"ping 1"]
    world.window._tick()
    world.window.send(b"new", FAR, "new")
    assert world.second.got == [b"old", b"new"]
    assert world.settled == []
    world.window.pong("ping-1")
    assert world.settled == ["old"], "it was there already"
    world.window.send(b"next", FAR, "next")
    assert world.first.got[-1] == b"next"
    world.window.close()


async def test_a_silent_relay_is_used_when_there_is_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "BARRIER_TIMEOUT_S", 0.0)
    world.window.send(b"old", FAR, "old")
    world.window._tick()
    world.window._tick()
    world.lose(world.second)
    world.window.send(b"new", FAR, "new")
    assert [data for data in world.first.got if b"ping" not in data] == [b"old", b"old", b"new"]
    world.lose(world.first)
    world.regain(world.second)
    assert world.second.got[-2:] == [b"old", b"new"]
    world.window.close()


async def test_what_a_relay_did_not_confirm_until_the_deadline_expires(world: World) -> None:
    world.window.send(b"asked", time.time() + 0.05, "asked for")
    world.window._tick()
    world.window.send(b"unasked", time.time() + 0.05, "not asked for")
    async with asyncio.timeout(5):
        while len(world.window):
            world.window._tick()
            await asyncio.sleep(0.01)
    assert world.expired == ["asked for"]
    assert world.settled == ["not asked for"]
    world.window.close()


async def test_pongs_that_are_slow_confirm_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "BARRIER_TIMEOUT_S", 0.0)
    world.lose(world.second)
    world.window.send(b"first", FAR, "first")
    world.window._tick()
    world.window.send(b"second", FAR, "second")
    world.window._tick()
    world.window._tick()
    assert world.pings == 3
    world.window.pong("ping-1")
    assert world.settled == ["first"]
    world.window.pong("ping-3")
    assert world.settled == ["first", "second"]
    assert not world.window.pong("ping-2")
    world.window.close()
