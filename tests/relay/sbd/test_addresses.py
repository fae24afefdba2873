"""Which connections share a limit, the limits they are told, and what workers share about them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.sbd import addresses, sharing
from relay.sbd.addresses import Place, Places
from relay.sbd.options import SbdOptions
from relay.sbd.sharing import Sharing

OPTIONS = SbdOptions(byte_nanos=1_000)


class Told:
    """A connection that records the limits it is told."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def announce(self, byte_nanos: int) -> None:
        self.limits.append(byte_nanos)


def places(**options: Any) -> Places:
    return Places(OPTIONS._replace(**options), asyncio.get_running_loop())


async def test_places() -> None:
    found = places()
    assert found.of("127.0.0.1") is found.of("::ffff:127.0.0.1")
    assert found.of("2001:db8::1") is not found.of("2001:db8::2")
    wide = places(ipv6_prefix=64)
    assert wide.of("2001:db8::1") is wide.of("2001:db8::2")
    assert wide.of("2001:db8:0:1::1") is not wide.of("2001:db8::2")
    assert found.of("unix").name == "unix"


async def test_a_place_is_forgotten_when_it_owes_nothing() -> None:
    found = places()
    place = found.of("127.0.0.1")
    place.charge(1_000, 0)
    found.forget(999_999)
    assert found.get("127.0.0.1") is place
    place.connections.add(Told())  # type: ignore[arg-type]
    found.forget(1_000_000)
    assert found.get("127.0.0.1") is place
    place.connections.clear()
    found.forget(1_000_000)
    assert found.get("127.0.0.1") is None


async def test_however_many_come_the_others_are_told_in_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "ROUND_S", 0.0)
    place = places().of("127.0.0.1")
    connections = [Told() for _ in range(100)]
    for connection in connections:
        place.connections.add(connection)  # type: ignore[arg-type]
        place.changed()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(connection.limits == [100_000] for connection in connections)


class Workers:
    """Two workers that receive each other's messages immediately."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sharing, "TELL_S", 0.0)
        monkeypatch.setattr(addresses, "ROUND_S", 0.0)
        self.messages = 0
        self.places = [places(), places()]
        self.sharings = [
            Sharing(name, each, self._publish) for name, each in zip("ab", self.places, strict=True)
        ]

    def _publish(self, channel: bytes, data: bytes) -> None:
        self.messages += 1
        for each in self.sharings:
            each.heard(data)

    def connect(self, worker: int) -> tuple[Place, Told]:
        place, connection = self.places[worker].of("127.0.0.1"), Told()
        place.connections.add(connection)  # type: ignore[arg-type]
        place.changed()
        self.sharings[worker].changed(place)
        return place, connection

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def stop(self) -> None:
        for each in self.sharings:
            each.stop()


async def test_an_address_on_two_workers_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    one, first = workers.connect(0)
    await workers.settle()
    two, second = workers.connect(1)
    await workers.settle()
    assert first.limits[-1] == second.limits[-1] == 2_000
    now = time.monotonic_ns()
    one.charge(500, now)
    await workers.settle()
    two.charge(70, now)
    await workers.settle()
    assert one.rate.charged_bytes == two.rate.charged_bytes == 570
    one.connections.clear()
    workers.sharings[0].changed(one)
    await workers.settle()
    assert second.limits[-1] == 1_000
    workers.stop()


async def test_what_is_not_told_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "BELIEVED_S", 0.0)
    workers = Workers(monkeypatch)
    place, connection = workers.connect(0)
    workers.sharings[0].heard(json.dumps(("dead", [("127.0.0.1", 3, 0)])).encode())
    assert place.byte_nanos() == 4_000
    await workers.settle()
    assert place.byte_nanos() == connection.limits[-1] == 1_000
    workers.stop()


@given(st.one_of(st.binary(max_size=50), st.text(max_size=50).map(str.encode)))
def test_anything_else_on_the_channel_is_refused(data: bytes) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="not a worker's addresses"):
            Sharing("a", places(), lambda channel, data: None).heard(data)

    asyncio.run(main())
