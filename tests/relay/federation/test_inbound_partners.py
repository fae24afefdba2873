"""Identification of calling relays: current trust decisions, and addresses of trusted relays."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from proto.limits.addresses import BannedNetworks
from relay.federation import inbound_partners
from relay.federation.inbound_partners import BLOCKED, TRUSTED, InboundPartners
from tests.support.waiting import eventually

ADDRESSES = {"good.example": "192.0.2.1", "slow.example": "192.0.2.9"}


class Names:
    """Name servers; the answer for `slow.example` waits for `answers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = asyncio.Event()
        self.asked: list[str] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._find, raising=False)

    async def _find(self, host: str, port: Any, **kind: Any) -> list[Any]:
        self.asked.append(host)
        if host == "slow.example":
            await self.answers.wait()
        return [(socket.AF_INET, kind["type"], 6, "", (ADDRESSES[host], 0))]


@pytest.fixture
async def control() -> SimpleNamespace:
    trusted = frozenset({TRUSTED})
    return SimpleNamespace(known=True, relays=dict.fromkeys(ADDRESSES, trusted))


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    monkeypatch.setattr(inbound_partners, "FLUSH_S", 0.01)
    return Names(monkeypatch)


@pytest.fixture
async def partners(control: SimpleNamespace, names: Names) -> AsyncIterator[InboundPartners]:
    worker = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        upkeep=SimpleNamespace(control=control),
        router=SimpleNamespace(banned_addresses=BannedNetworks()),
        domains=frozenset(),
        commit=SimpleNamespace(add_extra=lambda *_: None),
        wall_s=time.time,
    )
    partners = InboundPartners(worker)  # type: ignore[arg-type]
    partners.start()
    yield partners
    await partners.stop()


async def test_before_names_are_looked_up_only_trust_waits_for_them(
    partners: InboundPartners, control: SimpleNamespace
) -> None:
    """A caller is unsettled only if some relay may be trusted.

    `partners` has not begun its look-ups: that takes a turn of the loop.
    """
    assert partners.identify("192.0.2.1", "").unsettled
    control.relays = {"good.example": frozenset({BLOCKED})}
    assert not partners.identify("192.0.2.1", "").unsettled, "nobody is trusted"
    control.known = False
    assert partners.identify("192.0.2.1", "").unsettled, "that may be"


async def test_a_network_of_ipv6_has_one_share(partners: InboundPartners) -> None:
    """An IPv6 network has one share of the waiting signatures, the rates and the look-ups."""
    first, second, other = (
        partners.identify(address, "").place
        for address in ("2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1")
    )
    assert first == second != other


async def test_trust_ends_at_once_while_names_are_looked_up(
    partners: InboundPartners, control: SimpleNamespace, names: Names
) -> None:
    names.answers.set()
    await eventually(lambda: partners.identify("192.0.2.1", "").trusted)
    names.answers.clear()
    control.relays = {"slow.example": control.relays["slow.example"]}
    await eventually(lambda: names.asked.count("slow.example") == 2)
    assert not partners.identify("192.0.2.1", "good.example").trusted
    assert not partners.identify("192.0.2.1", "").trusted, "without a name as well"
    assert partners.identify("192.0.2.9", "").trusted, "the address is the last one known"


async def test_a_name_without_an_answer_holds_up_the_others_for_a_while_only(
    partners: InboundPartners, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbound_partners, "RESOLVING_S", 0.1)
    assert partners.identify("192.0.2.1", "good.example").unsettled
    await eventually(lambda: partners.identify("192.0.2.1", "good.example").trusted)
    assert partners.identify("192.0.2.9", "slow.example").unsettled


async def test_a_blocked_relay_stays_so_beside_what_is_no_relay(
    partners: InboundPartners, control: SimpleNamespace
) -> None:
    control.relays = {"bad.example": frozenset({BLOCKED})}
    assert partners.blocks(("bad.example",))
    assert partners.blocks(("bad.example", "wss://bad.example"))
    assert not partners.blocks(("bad.example", "good.example"))
    assert not partners.blocks(("wss://bad.example",))
