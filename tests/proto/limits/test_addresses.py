"""`proto.limits.addresses`: whom the limits of an address are for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.limits.addresses import place_of


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
