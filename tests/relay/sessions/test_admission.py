"""`relay.sessions.admission`: changes during the look-up of a twin, and limits of addresses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from proto.identity import tokens
from proto.limits.addresses import BannedNetworks, read_network
from relay.queues.destination import Destination
from relay.sessions.admission import BURST_S, Admission, Refusal
from relay.sessions.meters import UNLIMITED, MeterBook
from relay.sessions.pacing import END_COST, VAIN_PER_S
from relay.twins import look_ups
from relay.twins.cache import TwinCache
from relay.twins.look_ups import LookUps
from relay.twins.source import TwinRecord
from tests.relay.twins.test_cache import ScriptedSource
from tests.support.identities import twin


def worker_of(source: ScriptedSource) -> Any:
    return SimpleNamespace(
        loop=asyncio.get_running_loop(),
        draining=False,
        connections=0,
        options=SimpleNamespace(capacity=3),
        twins=TwinCache(source),
        router=SimpleNamespace(banned=frozenset(), banned_addresses=BannedNetworks()),
        meters=MeterBook(UNLIMITED),
        now_s=lambda: int(time.time()),
    )


def admission_of(
    worker: Any,
    *,
    on_chain: bool = False,
    per_ip_per_s: int = 0,
    handshakes_per_ip_per_s: int = 0,
    sessions_per_twin: int = 0,
) -> Admission:
    bounded = LookUps(getattr(worker, "twins", None), on_chain=on_chain, per_ip_per_s=per_ip_per_s)
    return Admission(
        worker,
        bounded,
        handshakes_per_ip_per_s=handshakes_per_ip_per_s,
        max_sid_bytes=128,
        max_token_lifetime_s=0,
        sessions_per_twin=sessions_per_twin,
    )


def sign_ins(source: ScriptedSource, count: int) -> list[bytes]:
    """Return tokens of `count` twins that share one key."""
    key, now = twin(7).signing_key, int(time.time())
    for number in range(1, count + 1):
        source.twins[number] = TwinRecord(number, key.account, None, ("localhost",), 1)
    return [tokens.issue(key, number, None, now).encode() for number in source.twins]


async def statuses_of(admission: Admission, queries: list[bytes], address: str) -> Counter[int]:
    """Return the statuses of simultaneous handshakes; 101 for those that are admitted."""
    admitted = (admission.admit(query, address) for query in queries)
    answers = await asyncio.gather(*admitted, return_exceptions=True)
    return Counter(each.status if isinstance(each, Refusal) else 101 for each in answers)


async def test_twins_of_the_registry_sign_in_from_one_address_at_once() -> None:
    source = ScriptedSource()
    queries = sign_ins(source, 3000)
    admission = admission_of(worker_of(source), per_ip_per_s=1)
    assert await statuses_of(admission, queries, "192.0.2.1") == {101: 3000}


async def test_what_reaches_the_chain_is_bounded_for_each_address() -> None:
    source = ScriptedSource()
    queries = sign_ins(source, 3 * BURST_S)
    worker = worker_of(source)
    admission = admission_of(worker, on_chain=True, per_ip_per_s=1)
    assert await statuses_of(admission, queries, "192.0.2.1") == {101: BURST_S, 429: 2 * BURST_S}
    assert await statuses_of(admission, queries[:BURST_S], "192.0.2.1") == {101: BURST_S}, "known"
    assert await statuses_of(admission, queries[BURST_S:][:BURST_S], "192.0.2.2") == {101: BURST_S}
    unbounded = admission_of(worker, on_chain=True)
    assert await statuses_of(unbounded, queries, "192.0.2.1") == {101: 3 * BURST_S}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"connections": 3}, 503),
        ({"draining": True}, 503),
        (
            {
                "router": SimpleNamespace(
                    banned={}, banned_addresses=BannedNetworks([read_network("127.0.0.0/24")])
                )
            },
            403,
        ),
    ],
)
async def test_who_is_looked_up_when_it_closes_is_refused(
    change: dict[str, Any], status: int
) -> None:
    source = ScriptedSource()
    source.twins[7] = TwinRecord(7, twin(7).account, None, ("localhost",), 1)
    source.open.clear()
    worker = worker_of(source)
    admission = admission_of(worker)
    admitted = asyncio.create_task(admission.admit(twin(7).token(None).encode(), "127.0.0.1"))
    await source.asked.wait()
    vars(worker).update(change)
    source.open.set()
    with pytest.raises(Refusal) as refused:
        await admitted
    assert refused.value.status == status


async def test_a_twin_whose_input_ended_its_sessions_waits() -> None:
    """A twin cannot avoid its rate of refused messages by signing in again."""
    source = ScriptedSource()
    source.twins[7] = TwinRecord(7, twin(7).account, None, ("localhost",), 1)
    worker = worker_of(source)
    loop, meters = worker.loop, worker.meters
    admission = admission_of(worker)
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
    """Return how clients without a token are refused that connect from these addresses in turn."""
    worker: Any = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        draining=False,
        connections=0,
        options=SimpleNamespace(capacity=1),
        router=SimpleNamespace(banned_addresses=BannedNetworks()),
    )
    admission = admission_of(worker, handshakes_per_ip_per_s=1)
    statuses = set()
    for address in addresses:
        with pytest.raises(Refusal) as caught:
            await admission.admit(None, address)
        statuses.add(caught.value.status)
    return statuses


async def test_a_chain_that_is_slow_is_no_fault_of_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look_ups, "UNDER_WAY", 2)
    source = ScriptedSource()
    queries = sign_ins(source, 3)
    source.open.clear()
    admission = admission_of(worker_of(source), on_chain=True)
    waiting = asyncio.create_task(statuses_of(admission, queries[:2], "192.0.2.1"))
    await source.asked.wait()
    assert await statuses_of(admission, queries[2:], "192.0.2.2") == {500: 1}
    source.open.set()
    assert await waiting == {101: 2}


async def test_a_twin_has_so_many_sessions_and_may_replace_each() -> None:
    source = ScriptedSource()
    source.twins[7] = TwinRecord(7, twin(7).account, None, ("localhost",), 1)
    held = Destination((7, "held"))
    held.session = SimpleNamespace()  # type: ignore[assignment]
    worker = worker_of(source)
    worker.destinations = {held.key: held}
    admission = admission_of(worker, sessions_per_twin=2)

    async def admit(sid: str) -> int:
        try:
            await admission.admit(twin(7).token(sid).encode(), "127.0.0.1")
        except Refusal as refusal:
            return refusal.status
        return 101

    assert await admit("a") == 101
    worker.meters.acquire(7)
    meter = worker.meters.acquire(7)
    assert await admit("a") == 429
    assert await admit("held") == 101
    worker.meters.release(meter)
    assert await admit("a") == 101
