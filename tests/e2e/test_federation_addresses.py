"""Domains of relays that lead into the relay's own network, as any twin may list them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.federation.domains import fold
from tests.e2e.conftest import Trio
from tests.support.federated import PUBLIC_ONLY, FederatedRelay, World
from tests.support.partner import partner
from tests.support.redis_servers import start_valkey
from tests.support.rmb_client import signing_session
from tests.support.waiting import eventually

LIFE_S = 8
"""Life of the messages, in seconds: a busy disk may delay the first tries by seconds."""
LOOPBACK = ("127.0.0.1", "::1")


@pytest.fixture
def public_only(tmp_path: Path, world: World) -> Iterator[FederatedRelay]:
    """Start a relay that sends to public addresses only, which is the default."""
    with contextlib.ExitStack() as cleanup:
        server = start_valkey(tmp_path / "redis")
        cleanup.callback(server.remove)
        relay = FederatedRelay(
            world, PUBLIC_ONLY, tmp_path, server, settings={"federation.allow_private": "0"}
        )
        cleanup.callback(relay.stop)
        relay.start()
        relay.wait_federating()
        yield relay


async def test_nothing_is_sent_into_the_own_network(
    public_only: FederatedRelay, trio: Trio, world: World
) -> None:
    (sender,), (allowed,) = world.twins(PUBLIC_ONLY, 1), world.twins("a", 1)
    domains = world.hostile_domains()
    twins = [world.twins(domain, 1)[0] for domain in domains]

    def last_error(domain: str) -> str:
        return public_only.partner_state(fold(domain)).get("last_error", "")

    async with partner(world.hostile_port, hosts=LOOPBACK) as inside:
        async with signing_session(public_only.url, sender) as client:
            sent = [await client.request((each.id, None), expiration=LIFE_S) for each in twins]
            await eventually(lambda: all(map(last_error, domains[:2])), LIFE_S)
            notices = await client.receive_many(len(sent), LIFE_S + 10)
        assert {notice.uid for notice in notices} == {envelope.uid for envelope in sent}
        told = {notice.uid: notice.error.message for notice in notices}
        for domain, envelope in zip(domains, sent, strict=True):
            names_a_relay = "@" not in domain and "/" not in domain
            text = "message has expired" if names_a_relay else "twin lists no usable relay"
            assert told[envelope.uid] == text, domain
        assert inside.accepted == 0, "not even a connection"
        # The address that was not reached does work: a relay that is allowed to sends to it.
        async with signing_session(trio["a"].url, allowed) as client:
            await client.request((twins[domains.index(inside.domain)].id, None), b"allowed")
            await eventually(lambda: inside.payloads() == [b"allowed"])
