"""Addresses requests may go to: public ones, and the very one that was judged."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from relay.federation.http_client import HttpClient, Unanswered
from relay.federation.resolver import PublicResolver, is_public
from tests.support.partner_server import partner

# Names of networks: an address of each is tried.
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
    "64:ff9b:1::/48",  # NAT64 with a prefix of the network's own
    "::127.0.0.0/104",  # IPv4-compatible
    "::ffff:0:127.0.0.0/104",  # IPv4-translated
    "192.0.0.0/24",
    "192.88.99.0/24",
    "3fff::/20",
    "5f00::/16",
    "4000::/3",  # not given to anybody
]


@pytest.mark.parametrize("network", PRIVATE)
def test_private_addresses_are_refused(network: str) -> None:
    found = ipaddress.ip_network(network)
    assert not is_public(found[0]) and not is_public(found[-1])
    assert not is_public(found[found.num_addresses // 2])


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_not(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def answering(*addresses: str) -> Any:
    """A name server that gives these addresses in turn, one for each question."""
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
    """Rebinding: a second question would get another address; there is none."""
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


def _envelope() -> bytes:
    from tests.support.envelopes import request

    return request((1, None), (2, None)).SerializeToString()
