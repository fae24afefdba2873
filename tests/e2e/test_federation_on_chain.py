"""Relays whose twins come from one chain: messages between their twins, and twins that move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from proto.rmb.notices import REMOTE_REFUSED
from relay.federation import outbox
from relay.queues import keys
from relay.queues.held import unpack
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import Twin, twin
from tests.support.on_chain import ALIVE, chain_relay, height, sign_in, wait_for_follower
from tests.support.redis_servers import hold_port, start_valkey
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import signing_session
from tests.support.waiting import eventually

BLOCK_S = 0.25
FIRST, EACH = 30_001, 10
RELAYS = ("a", "b", "c")


class Network(NamedTuple):
    """A chain, relays by name, and twins of each that no test has used."""

    chain: Devchain
    relays: dict[str, RelayProcess]
    domains: dict[str, str]
    twins: dict[str, Iterator[Twin]]

    def held_for(self, name: str, other: str) -> int:
        """Return the number of messages in a relay's outbox for another relay."""
        server = self.relays[name].redis
        assert server is not None
        account = outbox.account_of([self.domains[other]])
        packed = server.run("HGET", keys.held(account), outbox.TOTAL)
        return unpack(int(packed or 0)).messages


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with contextlib.ExitStack() as holding:
        held = [holding.enter_context(hold_port()) for _ in RELAYS]
        ports = {name: each.getsockname()[1] for name, each in zip(RELAYS, held, strict=True)}
    domains = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    twins = {
        name: [twin(first + number, domains[name]) for number in range(EACH)]
        for name, first in zip(RELAYS, range(FIRST, FIRST + 1000, EACH), strict=False)
    }
    everyone = [each for some in twins.values() for each in some]
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("chain")
        chain = stack.enter_context(running_devchain(folder, everyone, block_time_s=BLOCK_S))
        relays = {}
        for name, port in ports.items():
            folder = tmp_path_factory.mktemp(name)
            server = start_valkey(folder / "redis", append_fsync="no")
            stack.callback(server.remove)
            relays[name] = chain_relay(
                folder,
                server,
                chain,
                domains=(domains[name],),
                port=port,
                federation__scheme="http",
                federation__allow_private="1",
            )
            stack.callback(relays[name].stop)
            relays[name].start(wait=False)
        for relay in relays.values():
            relay.wait_ready()
            wait_for_follower(relay)
        yield Network(chain, relays, domains, {name: iter(some) for name, some in twins.items()})


async def test_both_ways_and_what_cannot_be_delivered(network: Network) -> None:
    a, b = network.relays["a"], network.relays["b"]
    one, two, away = (next(network.twins[name]) for name in "abb")
    async with signing_session(a.url, one, "x") as here, signing_session(b.url, two) as there:
        for number in range(50):
            await here.request(there.key, b"%d" % number)
        for number, request in enumerate(await there.receive_many(50)):
            assert request.plain == b"%d" % number
            await there.respond(request, request.plain)
        assert [each.plain for each in await here.receive_many(50)] == [
            b"%d" % number for number in range(50)
        ]
        sent = await here.request((away.id, None), tags="fail-fast")
        notice = await here.receive()
        assert (notice.uid, notice.error.message) == (sent.uid, REMOTE_REFUSED)
        await here.request((FIRST + 5000, None))
        assert (await here.receive()).error.message == "unknown twin destination"


async def test_a_twin_that_moves_takes_its_mail_along(network: Network) -> None:
    """Messages for a twin of an unavailable relay go, in order, to the relay that it lists next."""
    a, b, c = (network.relays[name] for name in "abc")
    one, moving, coming = (next(network.twins[name]) for name in "abb")
    async with signing_session(a.url, one) as here:
        b.kill()
        for number in range(20):
            for there in (moving, coming):
                await here.request((there.id, None), b"%d" % number, expiration=600)
        await eventually(lambda: network.held_for("a", "b") == 40)
        network.chain.put_twin(moving, network.domains["c"])
        block = network.chain.put_twin(coming, network.domains["a"])
        await eventually(lambda: height(a) >= block <= height(c))
        for twin_there, relay in ((moving, c), (coming, a)):
            async with signing_session(relay.url, twin_there) as client:
                got = [each.plain for each in await client.receive_many(20)]
                assert got == [b"%d" % number for number in range(20)]
        await eventually(lambda: network.held_for("a", "b") == 0)
        b.start()
        wait_for_follower(b)
        async with signing_session(c.url, moving) as client:
            await here.request(client.key, b"and on")
            assert (await client.receive()).plain == b"and on"


async def test_the_chain_is_away(network: Network) -> None:
    """While the chain is unavailable, known twins keep working, also between relays."""
    a, b = network.relays["a"], network.relays["b"]
    one, two = next(network.twins["a"]), next(network.twins["b"])
    assert (await sign_in(b, two))[0] == ALIVE
    async with signing_session(a.url, one) as here, signing_session(b.url, two) as there:
        await here.request(there.key, b"before")
        assert (await there.receive()).plain == b"before"
        network.chain.stop()
        try:
            for number in range(20):
                await here.request(there.key, b"%d" % number)
            got = [each.plain for each in await there.receive_many(20)]
            assert got == [b"%d" % number for number in range(20)]
        finally:
            network.chain.start()
