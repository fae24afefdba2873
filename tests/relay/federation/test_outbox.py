"""Accounts of the outbox: two counts packed into one integer, and the bounds of an account."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redispipe import resp
from relay.federation.outbox import (
    ACCOUNT,
    ENVELOPE,
    ORIGIN,
    OutboxBounds,
    account_of,
    account_part,
    put_command,
    source_of,
)
from relay.queues import keys
from relay.queues.held import Held, pack, unpack

COUNTS = st.tuples(st.integers(0, 2**22), st.integers(0, 2**36))


@given(COUNTS)
def test_what_was_packed_is_read_again(counts: tuple[int, int]) -> None:
    assert unpack(pack(*counts)) == counts


@given(COUNTS, COUNTS)
def test_packed_counts_add_up_and_take_off(first: tuple[int, int], second: tuple[int, int]) -> None:
    together = pack(*first) + pack(*second)
    assert unpack(together) == (first[0] + second[0], first[1] + second[1])
    assert together + -pack(*second) == pack(*first)


def test_a_broken_count_holds_nothing() -> None:
    assert unpack(-5) == Held(0, 0)


def test_an_account_is_the_set_of_relays_in_one_order() -> None:
    assert account_of(["b.example", "a.example", "b.example"]) == "a.example_b.example"
    assert account_of(["a.example"]) == "a.example"


def test_an_account_is_full_at_its_bounds() -> None:
    bounds = OutboxBounds(100, 1000)
    assert not bounds.full(pack(99, 999))
    assert bounds.full(pack(100, 0))
    assert bounds.full(pack(0, 1000))


def test_a_source_is_full_at_a_quarter() -> None:
    bounds = OutboxBounds(100, 1000)
    assert not bounds.share_full(pack(24, 249))
    assert bounds.share_full(pack(25, 0))
    assert bounds.share_full(pack(0, 250))


def test_the_source_of_an_entry_is_the_twin_of_its_sender() -> None:
    assert source_of("7") == source_of("7:") == source_of("7:a:b") == "7"
    assert source_of("") == "0"


@given(st.integers(0, 2**32), st.binary(max_size=4000), st.text(max_size=20))
def test_the_command_of_an_entry_is_as_a_general_encoder_writes_it(
    twin: int, payload: bytes, origin: str
) -> None:
    account = "a.example_b.example"
    fields = (ENVELOPE, payload, ORIGIN, origin, ACCOUNT, account)
    command = resp.command("XADD", keys.outbox(twin), "*", *fields)
    assert put_command(twin, payload, origin, account_part(account)) == command
