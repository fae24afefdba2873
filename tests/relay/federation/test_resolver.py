"""Which addresses requests may go to: only public ones, and exactly the one that was checked."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from relay.federation.http_client import HttpClient, Unanswered
from relay.federation.resolver import (
    THREADS,
    TWIN_LOOK_UPS,
    Asker,
    PublicResolver,
    ResolverFull,
    is_public,
)
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.waiting import eventually

# Networks; the test tries one address of each.
PRIVATE = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "0.0.0.0/8",
    "192.0.2.0/24",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::1/128",
    "::/128",
    "fe80::/10",
    "fc00::/7",
    "fec0::/10",
    "ff02::/16",
    "2001:db8::/32",
    "::ffff:127.0.0.0/104",
    "::ffff:10.0.0.0/104",
    "::ffff:169.254.0.0/112",
    "2002:7f00::/24",  # 6to4 of 127.0.0.0/8
    "64:ff9b::7f00:0/104",  # NAT64 of 127.0.0.0/8
    "2001:0::/32",  # Teredo
    "2606:4700::5efe:7f00:0/104",  # ISATAP of 127.0.0.0/8
    "2606:4700::200:5efe:808:0/112",  # ISATAP, with a globally unique address
    "64:ff9b:1::/48",  # NAT64 with a local prefix
    "::127.0.0.0/104",  # IPv4-compatible
    "::ffff:0:127.0.0.0/104",  # IPv4-translated
    "192.0.0.0/24",
    "192.88.99.0/24",
    "3fff::/20",
    "5f00::/16",
    "4000::/3",  # unassigned
]


@pytest.mark.parametrize("network", PRIVATE)
def test_private_addresses_are_refused(network: str) -> None:
    found = ipaddress.ip_network(network)
    assert not is_public(found[0]) and not is_public(found[-1])
    assert not is_public(found[found.num_addresses // 2])


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::5eff:7f00:1"],
)
def test_public_addresses_are_not(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def answering(*addresses: str) -> Any:
    """Return a name server that gives these addresses in turn, one entry for each query."""
    questions = iter(addresses)

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        kind = socket.AF_INET
        return [
            (kind, socket.SOCK_STREAM, 6, "", (address, port))
            for address in next(questions).split()
        ]

    return look_up


def client(resolver: PublicResolver) -> HttpClient:
    return HttpClient(resolver, scheme="http", connect_timeout_s=0.2)


@pytest.mark.parametrize(
    "domain",
    ["127.0.0.1", "127.0.0.1:80", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0"],
)
async def test_literal_private_addresses_are_never_asked(domain: str) -> None:
    http = client(PublicResolver(False))
    with pytest.raises(Unanswered, match="not a public address") as raised:
        await http.post(domain, "/", {}, b"", 1.0)
    assert not raised.value.sent
    await http.close()


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost"])
async def test_other_spellings_of_this_host_are_never_asked(host: str) -> None:
    async with partner() as other:
        http = client(PublicResolver(False))
        with pytest.raises(Unanswered) as raised:
            await http.post(f"{host}:{other.port}", "/", {}, b"", 1.0)
        assert not raised.value.sent
        await http.close()
    assert not other.requests


async def test_a_name_of_a_private_address_is_never_asked() -> None:
    async with partner() as other:
        http = client(PublicResolver(False, answering("127.0.0.1 ::ffff:127.0.0.1")))
        with pytest.raises(Unanswered, match="no public address"):
            await http.post(f"inside.example:{other.port}", "/", {}, b"", 1.0)
        await http.close()
    assert not other.requests


async def test_only_the_public_addresses_of_a_name_are_used() -> None:
    resolver = PublicResolver(False, answering("127.0.0.1 8.8.8.8 ::1"))
    assert await resolver.resolve("mixed.example", 80) == ["8.8.8.8"]
    await resolver.close()


async def test_a_name_is_asked_once_for_a_connection() -> None:
    """The resolver makes no second query, so a name cannot be rebound to another address."""
    async with partner() as other:
        http = client(PublicResolver(True, answering("127.0.0.1")))
        for _ in range(3):
            reply = await http.post(f"rebound.example:{other.port}", "/", {}, _envelope(), 1.0)
            assert reply.status == 202
        await http.close()
    assert len(other.requests) == 3


async def test_private_addresses_may_be_allowed() -> None:
    async with partner() as other:
        http = client(PublicResolver(True))
        assert (await http.post(other.domain, "/", {}, _envelope(), 1.0)).status == 202
        await http.close()


async def test_a_name_without_an_address() -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    http = client(PublicResolver(False, fails))
    with pytest.raises(Unanswered, match="not known") as raised:
        await http.post("nowhere.example", "/", {}, b"", 1.0)
    assert not raised.value.sent
    await http.close()


async def test_a_name_that_no_host_can_have() -> None:
    http = client(PublicResolver(False))
    with pytest.raises(Unanswered, match="not a host name") as raised:
        await http.post("a" * 64 + ".example", "/", {}, b"", 1.0)
    assert not raised.value.sent
    await http.close()


class NameServers:
    """Name servers that do not answer for the names in `silent` until `answers` is set.

    Attributes:
        asked: Names that were looked up, in order.
    """

    def __init__(self, *silent: str) -> None:
        self.silent = set(silent)
        self.answers = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        if host in self.silent:
            self.answers.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@pytest.fixture
def servers() -> Iterator[NameServers]:
    """Return name servers that do not answer for the names `0.slow` to `99.slow`."""
    found = NameServers(*(f"{number}.slow" for number in range(100)))
    yield found
    found.answers.set()


async def begin(resolver: PublicResolver, names: Iterable[tuple[str, int]]) -> None:
    """Start look-ups of names for twins, without waiting for an answer."""
    for name, twin in names:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await resolver.resolve(name, 443, Asker(twin, False))


async def test_silent_names_leave_room_for_those_of_relays_that_work(servers: NameServers) -> None:
    resolver = PublicResolver(True, servers)
    await begin(resolver, ((f"{number}.slow", number) for number in range(THREADS)))
    with pytest.raises(ResolverFull):
        await resolver.resolve("new.example", 443, Asker(99, False))
    assert await resolver.resolve("good.example", 443, Asker(1, True)) == ["127.0.0.1"]
    servers.answers.set()
    assert await resolver.resolve("31.slow", 443, Asker(31, False)) == ["127.0.0.1"]
    await resolver.resolve("new.example", 443, Asker(99, False))
    await resolver.close()


async def test_a_silent_name_is_asked_for_once(servers: NameServers) -> None:
    resolver = PublicResolver(True, servers)
    await begin(resolver, (("0.slow", twin) for twin in range(20)))
    assert servers.asked == ["0.slow"]
    servers.answers.set()
    assert await resolver.resolve("0.slow", 443, Asker(1, False)) == ["127.0.0.1"]
    await resolver.close()


async def test_a_twin_has_few_new_names_looked_up_at_a_time(servers: NameServers) -> None:
    resolver = PublicResolver(True, servers)
    await begin(resolver, ((f"{number}.slow", 1) for number in range(TWIN_LOOK_UPS)))
    with pytest.raises(ResolverFull):
        await resolver.resolve("99.slow", 443, Asker(1, False))
    await resolver.resolve("new.example", 443, Asker(2, False))
    await resolver.resolve("known.example", 443, Asker(1, True))
    await resolver.close()


async def test_an_answer_is_used_again_where_none_comes(servers: NameServers) -> None:
    resolver = PublicResolver(True, servers)
    await resolver.resolve("good.example", 443)
    servers.silent.add("good.example")
    assert await resolver.resolve("good.example", 443) == ["127.0.0.1"]
    assert servers.asked == ["good.example"] * 2
    resolver._remembered["good.example"] = (0.0, [])  # as after a minute
    await begin(resolver, [("good.example", 1)])
    await resolver.close()


async def test_a_name_that_cannot_be_looked_up_now_is_no_failure(
    out: Outgoing, servers: NameServers
) -> None:
    resolver = PublicResolver(True, servers)
    async with partner() as other:
        twin = out.twin(9, f"good.example:{other.port}")
        await begin(resolver, ((f"{number}.slow", number) for number in range(THREADS)))
        await out.start(1, resolver=resolver)
        out.put(twin, "waits")
        found = out.sender.partners.get(f"good.example:{other.port}")
        await eventually(lambda: found.put_off_until)
        servers.answers.set()
        await eventually(lambda: other.uids == ["waits"])
        await eventually(out.empty)
        assert not found.put_off_until
        assert "last_failure" not in out.partner(found.domain)
        await out.stop()


def _envelope() -> bytes:
    from tests.support.envelopes import request

    return request((1, None), (2, None)).SerializeToString()
