"""The operator's decisions about partner relays, and what is recorded about these relays."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from tests.support import envelopes
from tests.support.federation_client import decide, federation, record, signed
from tests.support.identities import TEST_DOMAIN
from tests.support.real_worker import real_worker
from tests.support.waiting import eventually
from tests.support.world import (
    BOTH_TWIN,
    PORT_DOMAIN_TWIN,
    UNKNOWN_TWIN,
    fresh_twins,
)
from tests.support.world import ELSEWHERE_DOMAIN as FAR_DOMAIN
from tests.support.world import ELSEWHERE_TWIN as FAR


async def test_trust_needs_name_and_address(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    unsigned = envelopes.request((FAR.id, None), (one.id, None))
    near, far = "127.0.0.1:9", "192.0.2.1"
    async with federation(relay.port) as other:
        assert (await other.deliver(unsigned, relay=near)).status == 403
        decide(server, near, "trusted")
        decide(server, far, "trusted paused")

        async def trusted() -> bool:
            return (await other.deliver(unsigned, relay=near)).status == 202

        await eventually(trusted)
        assert (await other.deliver(unsigned)).status == 202, "the reference kind has no name"
        more = envelopes.request((FAR.id, None), (one.id, None))
        assert await other.deliver_batch([record(1, more)], relay=near) == (202,)
        assert (await other.deliver(unsigned, relay=far)).status == 403, "calls from elsewhere"
        assert (await other.deliver(unsigned, relay="127.0.0.1:10")).status == 403
        unsigned.source.twin = UNKNOWN_TWIN.id
        assert (await other.deliver(unsigned, relay=near)).status == 403
        unsigned.source.twin = FAR.id
        decide(server, near, "")

        async def not_trusted() -> bool:
            return (await other.deliver(unsigned, relay=near)).status == 403

        await eventually(not_trusted)


async def test_nothing_is_refused_for_good_before_decisions_are_known(
    start_server, data_template: Path, tmp_path: Path
) -> None:
    """Nothing is refused for good before the worker has read the control state.

    A worker accepts connections before it has read this state and found trusted relays' addresses.
    """
    server = start_server()
    near = "127.0.0.1:9"
    decide(server, near, "trusted")
    shutil.copytree(data_template, tmp_path / "site")
    settings = {"relay.domains": TEST_DOMAIN, "data.dir": str(tmp_path / "site")}
    (one,) = fresh_twins(1)
    unsigned = envelopes.request((FAR.id, None), (one.id, None))
    statuses = []
    async with real_worker("only", server, settings) as worker:

        async def deliver() -> bool:
            async with federation(worker.port) as other:
                statuses.append((await other.deliver(unsigned, relay=near)).status)
            return statuses[-1] == 202

        # The first request arrives before the worker accepts connections.
        first = asyncio.create_task(deliver())
        await asyncio.gather(first, worker.start())
        await eventually(deliver)
    assert set(statuses) <= {202, 503}, statuses


async def test_blocked_relays_are_refused(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, local = fresh_twins(2)
    decide(server, FAR_DOMAIN, "blocked")
    here = (one.id, None)
    async with federation(relay.port) as other:

        async def refused() -> bool:
            return (await other.post(signed(FAR, here))).status == 403

        await eventually(refused)
        assert (await other.post(signed(BOTH_TWIN, here))).status == 403
        assert (await other.post(signed(PORT_DOMAIN_TWIN, here))).status == 202, "has another"
        assert (await other.post(signed(local, here))).status == 202
        assert (await other.deliver_batch([record(1, signed(FAR, here))])) == (403,)
    async with federation(relay.port) as other:
        for spelling in (FAR_DOMAIN, FAR_DOMAIN.upper(), f"{FAR_DOMAIN}.:443"):
            answer = await other.deliver(signed(local, here), relay=spelling)
            assert (answer.status, answer.body) == (403, b"relay is blocked")


async def test_a_banned_twin_is_refused(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    server.run("HSET", "relay:control", f"ban:{one.id}", "spam")
    server.run("HINCRBY", "relay:control", "version", 1)
    async with federation(relay.port) as other:

        async def refused() -> bool:
            return (await other.post(signed(one, (two.id, None)))).status == 403

        await eventually(refused)
        answer = await other.post(signed(FAR, (one.id, None)))
        assert (answer.status, answer.body) == (403, b"twin is banned")


async def test_partners_are_heard_and_counted(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, local = fresh_twins(2)
    here = (one.id, None)
    now = server.run("TIME")[0]
    async with federation(relay.port) as other:
        for number in range(3):
            assert (await other.post(signed(FAR, here, b"%d" % number))).status == 202
        for relay_name in ("127.0.0.1:8080", FAR_DOMAIN, "liar.example"):
            sent = signed(PORT_DOMAIN_TWIN, here)
            assert (await other.deliver(sent, relay=relay_name)).status == 202
        assert (await other.deliver(signed(local, here), relay="liar.example")).status == 202
        forged = envelopes.request((FAR.id, None), here)
        assert (await other.deliver(forged, relay=FAR_DOMAIN)).status == 403
    first = PORT_DOMAIN_TWIN.relays.split("_")[0]
    await eventually(lambda: server.run("HGET", f"federation:relay:{FAR_DOMAIN}", "received"))
    await eventually(
        lambda: server.run("HGET", f"federation:relay:{FAR_DOMAIN}", "received") == b"4"
    )
    assert server.run("HGET", f"federation:relay:{first}", "received") == b"2"
    assert float(server.run("HGET", f"federation:relay:{FAR_DOMAIN}", "heard")) >= now
    assert server.run("SMEMBERS", "federation:relays") == {FAR_DOMAIN.encode(), first.encode()}
