"""Decisions of operators: what a worker reads of them, and how its places apply them."""

from __future__ import annotations

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest

from proto.sbd.frames import path_of_key
from relay.sbd import decisions
from relay.sbd.addresses import Place, Places
from relay.sbd.decisions import Decisions
from relay.sbd.options import SbdOptions
from relay.sbd.server import SbdServer
from relay.sessions.history import SessionHistory
from rmbsite.config import Config
from tests.relay.sbd.test_addresses import OPTIONS, Told

KEY = bytes(range(32))
NAME = path_of_key(KEY)


def test_what_is_read(caplog: pytest.LogCaptureFixture) -> None:
    fields = {
        f"ban_key:{NAME}": "flood",
        f"limit_key:{NAME}": "800",
        "limit_address:192.0.2.0/24": "0",
        "limit_address:2001:db8::/64": "8000",
        "limit_address:2001:db8:1::7": "8000",
        "ban:7": "of a twin",
    }
    with caplog.at_level(logging.ERROR):
        found = decisions.read(fields, 64)
        assert not caplog.messages
    assert found.banned == {KEY} and found.keys == {NAME: 10_000}
    assert found.networks.find("192.0.2.9") == 0
    assert found.networks.find("2001:db8::") == 1_000
    assert found.networks.find("2001:db8:1::7") is None, "a /64 is one address"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ban_key:short", "flood"),
        ("limit_key:short", "800"),
        (f"limit_key:{NAME}", "many"),
        (f"limit_key:{NAME}", "-1"),
        ("limit_address:nowhere", "800"),
    ],
)
def test_what_is_malformed_is_ignored(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = decisions.read({name: value, "limit_address:192.0.2.7": "800"}, 128)
    assert not found.banned and not found.keys
    assert found.networks.find("192.0.2.7") == 10_000
    assert f"control state: {name} = '{value}' is malformed" in caplog.text


def decided(**fields: str) -> Decisions:
    return decisions.read(fields, 128)


def decide(places: Places, decisions: Decisions) -> list[Place]:
    places.decisions = decisions
    return places.apply_limits()


def connect(place: Place) -> Told:
    connection = Told()
    place.connections.add(connection)  # type: ignore[arg-type]
    return connection


async def test_a_limit_of_a_network_holds_at_once_and_until_it_is_removed() -> None:
    places = Places(OPTIONS, asyncio.get_running_loop())
    near, far = places.of("192.0.2.7"), places.of("198.51.100.7")
    connections = [connect(near), connect(near), connect(far)]
    slow = decided(**{"limit_address:192.0.2.0/24": "4000"})
    assert decide(places, slow) == [near]
    assert [each.limits for each in connections] == [[4_000], [4_000], []]
    assert places.of("192.0.2.8").rate.byte_nanos == 2_000, "of each address, also of new ones"
    assert decide(places, Decisions())[0] is near
    assert [each.limits for each in connections] == [[4_000, 2_000], [4_000, 2_000], []]


async def test_a_place_without_a_limit_gets_one_and_loses_it() -> None:
    places = Places(SbdOptions(byte_nanos=0), asyncio.get_running_loop())
    place = places.of("192.0.2.7")
    connection = connect(place)
    assert place.charge(10**9, 0)
    decide(places, decided(**{"limit_address:192.0.2.7": "8"}))
    assert connection.limits == [1_000_000]
    now_ns = time.monotonic_ns()
    assert place.charge(262_144, now_ns) and not place.charge(1, now_ns)
    decide(places, Decisions())
    assert connection.limits == [1_000_000, 1]
    assert place.charge(10**9, now_ns)


async def test_the_place_of_a_key() -> None:
    places = Places(OPTIONS, asyncio.get_running_loop())
    assert places.of_key(KEY) is None
    decide(places, decided(**{f"limit_key:{NAME}": "0"}))
    place = places.of_key(KEY)
    assert place is places.get(NAME) and place.byte_nanos() == 1
    assert places.of_key(bytes(32)) is None
    connection = connect(place)
    assert decide(places, decided(**{f"limit_key:{NAME}": "8000"})) == [place]
    assert connection.limits == [1_000]


async def test_every_figure_is_documented() -> None:
    from relay.ops.metric_names import BY_NAME
    from relay.sbd.options import AuthReason, EndReason, LossReason

    worker: Any = SimpleNamespace(upkeep=SimpleNamespace(rates=SimpleNamespace()))
    server = SbdServer(Config(), "boot", SessionHistory("boot", 0), worker)
    server.switch.counts.ended.update(EndReason)
    server.switch.counts.lost.update(LossReason)
    server.tokens.counts.update(AuthReason)
    assert set(server.figures()) <= set(BY_NAME)
