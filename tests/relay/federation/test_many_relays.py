"""More relays than are kept in memory: none that is in use is forgotten, and no figures are."""

from __future__ import annotations

import contextlib

import pytest

from relay.federation import partners
from relay.queues import keys
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.relay_process import eventually


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
    """What an operator decides about it later is known, though its lane stays."""
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
