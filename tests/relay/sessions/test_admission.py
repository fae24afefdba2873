"""`relay.sessions.admission`: what changed while a twin was looked up, and limits of addresses."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from relay.sessions.admission import BURST_S, Admission, Refusal
from relay.sessions.meters import UNLIMITED, MeterBook
from relay.sessions.pacing import END_COST, VAIN_PER_S
from relay.twins.cache import TwinCache
from relay.twins.source import TwinRecord
from tests.relay.twins.test_cache import ScriptedSource
from tests.support.identities import twin


@pytest.mark.parametrize(
    ("change", "status"), [({"connections": 3}, 503), ({"draining": True}, 503)]
)
async def test_who_is_looked_up_when_it_closes_is_refused(
    change: dict[str, Any], status: int
) -> None:
    source = ScriptedSource()
    source.twins[7] = TwinRecord(7, twin(7).account, None, ("localhost",), 1)
    source.open.clear()
    worker: Any = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        draining=False,
        connections=0,
        options=SimpleNamespace(capacity=3),
        twins=TwinCache(source),
        router=SimpleNamespace(banned=frozenset()),
        meters=MeterBook(UNLIMITED),
        now_s=lambda: int(time.time()),
    )
    admission = Admission(
        worker, handshakes_per_ip_per_s=0, max_sid_bytes=128, max_token_lifetime_s=0
    )
    admitted = asyncio.create_task(admission.admit(twin(7).token(None).encode(), "127.0.0.1"))
    await source.asked.wait()
    vars(worker).update(change)
    source.open.set()
    with pytest.raises(Refusal) as refused:
        await admitted
    assert refused.value.status == status


async def test_a_twin_whose_input_ended_its_sessions_waits() -> None:
    """Else signing in again would be the way around the rate of what is sent in vain."""
    source = ScriptedSource()
    source.twins[7] = TwinRecord(7, twin(7).account, None, ("localhost",), 1)
    loop = asyncio.get_running_loop()
    meters = MeterBook(UNLIMITED)
    worker: Any = SimpleNamespace(
        loop=loop,
        draining=False,
        connections=0,
        options=SimpleNamespace(capacity=3),
        twins=TwinCache(source),
        router=SimpleNamespace(banned=frozenset()),
        meters=meters,
        now_s=lambda: int(time.time()),
    )
    admission = Admission(
        worker, handshakes_per_ip_per_s=0, max_sid_bytes=128, max_token_lifetime_s=0
    )
    statuses = []
    for _ in range(3):
        try:
            admitted = await admission.admit(twin(7).token(None).encode(), "127.0.0.1")
            statuses.append(101)
        except Refusal as refusal:
            statuses.append(refusal.status)
            break
        meter = meters.acquire(admitted.key[0])
        meter.pace.charge(END_COST / VAIN_PER_S, loop.time())
        meters.release(meter)
        meters.report_all(time.time(), loop.time())
    assert statuses == [101, 101, 429]
    meters.report_all(time.time(), loop.time() + 60)
    assert (await admission.admit(twin(7).token(None).encode(), "127.0.0.1")).key == (7, None)


@pytest.mark.parametrize("network", ["192.0.2.{}", "2001:db8:0:{}::1"])
async def test_addresses_of_their_own_have_limits_of_their_own(network: str) -> None:
    assert await refusals([network.format(number) for number in range(20)]) == {400}


async def test_a_network_of_ipv6_has_one_limit() -> None:
    addresses = [f"2001:db8::{number:x}" for number in range(20)]
    assert await refusals(addresses[:BURST_S]) == {400}
    assert await refusals(addresses) == {400, 429}


async def refusals(addresses: list[str]) -> set[int]:
    """How clients without a token are refused that come from these, one after the other."""
    worker: Any = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        draining=False,
        connections=0,
        options=SimpleNamespace(capacity=1),
    )
    admission = Admission(
        worker, handshakes_per_ip_per_s=1, max_sid_bytes=128, max_token_lifetime_s=0
    )
    statuses = set()
    for address in addresses:
        with pytest.raises(Refusal) as caught:
            await admission.admit(None, address)
        statuses.add(caught.value.status)
    return statuses
