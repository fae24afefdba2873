"""`relay.sessions.admission`: what changed while a twin was looked up, and limits of addresses."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from proto.limits.window import Limit
from relay.queues.destination import Destination
from relay.sessions.admission import BURST_S, Admission, Refusal
from relay.sessions.meters import MeterBook
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


async def test_a_twin_has_so_many_sessions_and_may_replace_each() -> None:
    source = ScriptedSource()
    source.twins[7] = TwinRecord(7, twin(7).account, None, ("localhost",), 1)
    held = Destination((7, "held"))
    held.session = SimpleNamespace()  # type: ignore[assignment]
    meters = MeterBook(Limit())
    worker: Any = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        draining=False,
        connections=0,
        options=SimpleNamespace(capacity=9),
        twins=TwinCache(source),
        router=SimpleNamespace(banned=frozenset()),
        now_s=lambda: int(time.time()),
        meters=meters,
        destinations={held.key: held},
    )
    admission = Admission(
        worker,
        handshakes_per_ip_per_s=0,
        max_sid_bytes=128,
        max_token_lifetime_s=0,
        sessions_per_twin=2,
    )

    async def admit(sid: str) -> int:
        try:
            await admission.admit(twin(7).token(sid).encode(), "127.0.0.1")
        except Refusal as refusal:
            return refusal.status
        return 101

    assert await admit("a") == 101
    meters.acquire(7)
    meter = meters.acquire(7)
    assert await admit("a") == 429
    assert await admit("held") == 101
    meters.release(meter)
    assert await admit("a") == 101
