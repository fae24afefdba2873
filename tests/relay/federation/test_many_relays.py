"""More relays than memory keeps: relays in use and figures are not forgotten."""

from __future__ import annotations

import contextlib

import pytest

from relay.federation import partners
from relay.queues import keys
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.waiting import eventually


async def test_relays_that_are_not_used_are_forgotten(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partners, "MAX_PARTNERS", 2)
    async with contextlib.AsyncExitStack() as stack:
        busy, *others = [await stack.enter_async_context(partner(offers=True)) for _ in range(5)]
        twins = [out.twin(8 * number, each.domain) for number, each in enumerate(others, 1)]
        stuck = [out.twin(8 * number, busy.domain) for number in range(11, 15)]
        await out.start(0)
        out.put(stuck[0], "opens")
        await eventually(lambda: busy.uids == ["opens"])
        busy.gate.clear()
        for number, twin in enumerate(stuck):
            out.put(twin, f"{number}")
            await eventually(lambda number=number: len(busy.requests) > min(number + 1, 2))
        first = out.sender.destination(busy.domain)
        for turn in range(3):
            for twin, other in zip(twins, others, strict=True):
                out.put(twin, f"{turn}")
                await eventually(lambda other=other, turn=turn: len(other.taken) == turn + 1)
        assert out.sender.destination(busy.domain) is first, "its requests are counted together"
        assert len(out.sender._destinations) <= 3
        assert len(busy.requests) == 3, "no more requests at a time than there may be"
        busy.gate.set()
        await eventually(out.empty)
        assert sorted(busy.uids) == ["0", "1", "2", "3", "opens"]
        domains = [each.domain for each in others]
        await eventually(lambda: all(out.partner(one).get("sent") == "3" for one in domains))


async def test_a_relay_that_was_forgotten_is_asked_for_anew(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later decision about a forgotten relay takes effect, though the relay's lane stays."""
    monkeypatch.setattr(partners, "MAX_PARTNERS", 1)
    async with partner() as one, partner() as two:
        first, second = out.twin(8, one.domain), out.twin(16, two.domain)
        await out.start(0)
        out.put(first)
        await eventually(lambda: len(one.taken) == 1)
        out.put(second)
        await eventually(lambda: len(two.taken) == 1)
        out.client.hset(keys.CONTROL, f"relay:{one.domain}", "paused")
        out.client.hincrby(keys.CONTROL, "version", 1)
        out.put(first)
        out.put(second)
        await eventually(lambda: len(two.taken) == 2)
        assert len(one.taken) == 1


async def test_relays_that_fail_hold_up_nobody(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refresh reads the state of a few relays only: twins may name any number of relays."""
    monkeypatch.setattr(partners, "READ_EACH_TIME", 8)
    monkeypatch.setattr(partners, "READ_AT_ONCE", 3)
    ports = range(1, 41)
    for port in ports:
        out.put(out.twin(8 * port, f"127.0.0.1:{port}"))
    await out.start(0)
    everyone = [f"127.0.0.1:{port}" for port in ports]
    await eventually(lambda: all("failures" in out.partner(one) for one in everyone))
    known = [out.sender.partners.get(one) for one in everyone]
    asked = out.client.info("commandstats")["cmdstat_hgetall"]["calls"]
    await out.sender.partners.refresh()
    asked_in = out.client.info("commandstats")["cmdstat_hgetall"]["calls"] - asked
    assert asked_in <= 24, "one refresh, and those of the sender's own meanwhile"
    for each in known:
        out.client.hset(keys.CONTROL, f"relay:{each.domain}", "paused")

    async def all_paused() -> bool:
        await out.sender.partners.refresh()
        return all(each.paused for each in known)

    await eventually(all_paused, what="a turn of each; those that are being tried come later")
