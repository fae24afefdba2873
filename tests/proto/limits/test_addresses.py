"""Tests of `proto.limits.addresses`: what the limits of an address cover, and which are banned."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.limits.addresses import (
    REMEMBERED,
    BannedNetworks,
    NetworkError,
    NetworkTable,
    place_of,
    read_network,
    shown_network,
)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::6", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("unix", "unix"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_places(address: str, place: str) -> None:
    assert place_of(address) == place


@given(st.ip_addresses(v=6), st.integers(0, 2**64 - 1))
def test_all_addresses_of_a_network_are_one_place(address, other: int) -> None:
    beside = type(address)(int(address) >> 64 << 64 | other)
    if address.ipv4_mapped is None and beside.ipv4_mapped is None:
        assert place_of(str(address)) == place_of(str(beside))


@given(st.text(max_size=60))
def test_any_text_has_a_place(address: str) -> None:
    assert place_of(place_of(address)) or not address


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" 192.0.2.7 ", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:192.0.2.0/120", "192.0.2.0/24"),
        ("2001:DB8:0::/32", "2001:db8::/32"),
        ("2001:db8::7", "2001:db8::7"),
        ("2000::/16", "2000::/16"),
    ],
)
def test_networks(text: str, shown: str) -> None:
    assert shown_network(read_network(text)) == shown
    assert shown_network(read_network(shown)) == shown


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not an address or network; write"),
        ("7", "is not an address"),
        ("192.0.2", "is not an address"),
        ("192.0.2.7/33", "is not an address"),
        ("relay.example.com", "is not an address"),
        ("fe80::1%eth0", "is not an address"),
        ("192.0.2.7/24", "write 192.0.2.0/24 or 192.0.2.7"),
        ("::ffff:192.0.2.7/120", "write 192.0.2.0/24 or 192.0.2.7"),
        ("0.0.0.0/0", "the shortest prefix of IPv4 is /8"),
        ("10.0.0.0/7", "the shortest prefix of IPv4 is /8"),
        ("2000::/15", "the shortest prefix of IPv6 is /16"),
        ("::ffff:0:0/96", "the shortest prefix of IPv4 is /8"),
        ("::/32", "holds all of IPv4"),
    ],
)
def test_what_cannot_be_banned(text: str, complaint: str) -> None:
    with pytest.raises(NetworkError, match=complaint):
        read_network(text)


def test_addresses_of_banned_networks() -> None:
    texts = ("192.0.2.7", "198.51.100.0/24", "203.0.0.0/8", "2001:db8::/32", "2001:db9::7")
    banned = BannedNetworks(map(read_network, texts))
    assert banned and not BannedNetworks()
    for address in (
        *("192.0.2.7", "::ffff:192.0.2.7", "198.51.100.255", "203.0.113.9"),
        *("2001:db8:ffff::1", "2001:db9::7", "2001:db8::1%eth0"),
    ):
        assert banned.covers(address) and banned.covers(address), address
        assert not BannedNetworks().covers(address)
    for address in (
        "192.0.2.8",
        "198.51.101.0",
        "204.0.0.0",
        "2001:db9::8",
        "unix",
        "",
        "::cb00:7109",
    ):
        assert not banned.covers(address), address


@given(st.lists(st.ip_addresses(), max_size=5), st.integers(16, 32), st.ip_addresses())
def test_look_ups_agree_with_the_library(found, length: int, address) -> None:
    networks = [ipaddress.ip_network((each, length), strict=False) for each in found]
    if getattr(address, "ipv4_mapped", None) is None:
        expected = any(address in network for network in networks)
        assert BannedNetworks(networks).covers(str(address)) == expected


def test_the_smallest_network_around_an_address_holds() -> None:
    texts = {"198.0.0.0/8": 1, "198.51.100.0/24": 2, "198.51.100.3": 3, "2001:db8::/32": 4}
    table = NetworkTable({read_network(text): value for text, value in texts.items()})
    expected = {
        "198.9.9.9": 1, "198.51.100.9": 2, "198.51.100.3": 3, "::ffff:198.51.100.3": 3,
        "2001:db8::": 4, "192.0.2.1": None, "unix": None,
    }  # fmt: skip
    assert {address: table.find(address) for address in expected} == expected


def test_what_is_remembered_is_bounded() -> None:
    banned = BannedNetworks([read_network("10.0.0.0/8")])
    for number in range(REMEMBERED + 10):
        banned.covers(str(ipaddress.IPv4Address(number)))
    assert len(banned._answers) <= REMEMBERED
