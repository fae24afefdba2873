"""Tests of SS58 addresses: recorded ones, every prefix, and everything that must be refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.identity import ss58
from proto.identity.errors import AddressError
from tests.interop.recorded import recorded

KEYS = recorded("keys")
ADDRESS = KEYS[0]["sr25519_account"]
ACCOUNT = bytes.fromhex(KEYS[0]["sr25519"])

accounts = st.binary(min_size=32, max_size=32)
prefixes = st.integers(0, ss58.MAX_PREFIX).filter(lambda prefix: prefix not in (46, 47))


@pytest.mark.parametrize("scheme", ["sr25519", "ed25519"])
def test_recorded_addresses(scheme: str) -> None:
    assert len(KEYS) == 28
    for key in KEYS:
        account, address = bytes.fromhex(key[scheme]), key[f"{scheme}_account"]
        assert ss58.encode(account) == address
        assert ss58.decode(address, ss58.GENERIC_PREFIX) == account


@pytest.mark.parametrize(
    ("prefix", "address"),
    [
        # The well-known development account Alice, as public tools show it on three networks.
        (42, "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"),
        (0, "15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5"),
        (2, "HNZata7iMYWmk5RvZRTiAsSDhV8366zq2YGb3tLH5Upf74F"),
    ],
)
def test_addresses_of_other_networks(prefix: int, address: str) -> None:
    alice = bytes.fromhex("d43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d")
    assert ss58.encode(alice, prefix) == address
    assert ss58.decode(address) == alice


@given(accounts, prefixes)
def test_round_trip(account: bytes, prefix: int) -> None:
    address = ss58.encode(account, prefix)
    assert ss58.decode(address) == account
    assert ss58.decode(address, prefix) == account
    with pytest.raises(AddressError, match="network prefix"):
        ss58.decode(address, prefix + 1)


def test_every_prefix_is_told_apart() -> None:
    addresses = {
        ss58.encode(bytes(32), prefix)
        for prefix in range(ss58.MAX_PREFIX + 1)
        if prefix not in (46, 47)
    }
    assert len(addresses) == ss58.MAX_PREFIX - 1


@given(st.integers(0, len(ADDRESS) - 1), st.sampled_from(ss58._ALPHABET))
def test_a_changed_character_is_noticed(position: int, character: str) -> None:
    changed = ADDRESS[:position] + character + ADDRESS[position + 1 :]
    if changed != ADDRESS:
        with pytest.raises(AddressError):
            ss58.decode(changed)


@given(st.text(max_size=60))
def test_any_text_is_an_account_or_refused(text: str) -> None:
    with suppress(AddressError):
        assert len(ss58.decode(text)) == 32


def _with_checksum(body: bytes) -> str:
    return ss58._to_base58(body + ss58._checksum(body))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "too short"),
        ("1", "too short"),
        (ADDRESS[:-1] + "0", "not base58"),
        (ADDRESS + " ", "not base58"),
        (ADDRESS + "1" * 10, "at most 50 characters"),
        ("1" + ADDRESS, "not hold an account"),
        (_with_checksum(b"\x2a" + ACCOUNT[:31]), "not hold an account"),
        (_with_checksum(b"\x2a" + ACCOUNT + b"\0"), "not hold an account"),
        (ss58._to_base58(b"\x2a" + ACCOUNT + b"\0\0"), "wrong checksum"),
        (_with_checksum(b"\x4a\x80" + ACCOUNT), "short network prefix in two bytes"),
        (_with_checksum(b"\x80" + ACCOUNT), "reserved"),
        (_with_checksum(b"\x2e" + ACCOUNT), "reserved"),
    ],
)
def test_refused_texts(text: str, problem: str) -> None:
    with pytest.raises(AddressError, match=problem):
        ss58.decode(text)


@pytest.mark.parametrize(
    ("account", "prefix", "problem"),
    [
        (bytes(31), 42, "32 bytes, not 31"),
        (bytes(33), 42, "32 bytes, not 33"),
        (bytes(32), -1, "no such network prefix"),
        (bytes(32), 46, "no such network prefix"),
        (bytes(32), ss58.MAX_PREFIX + 1, "no such network prefix"),
    ],
)
def test_what_has_no_address(account: bytes, prefix: int, problem: str) -> None:
    with pytest.raises(AddressError, match=problem):
        ss58.encode(account, prefix)
