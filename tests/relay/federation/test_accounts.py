"""A worker's view of the outbox accounts, with a simulated Redis."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hiredis

from redispipe.errors import LinkLost
from relay.federation.accounts import LOOK_S, Account, Accounts, Charge
from relay.federation.outbox import OutboxBounds
from relay.queues import keys
from relay.queues.batch import FRESH_S
from relay.queues.held import unpack
from tests.support.sim.redis import SimRedis

BOUNDS = OutboxBounds(max_messages=100, max_bytes=100_000)


class Store:
    """A simulated Redis that answers immediately."""

    def __init__(self) -> None:
        self.redis = SimRedis(lambda: 1_700_000_000.0, random.Random(1))
        self.asked = 0
        self.now = 0.0

    def ask(self, payload: bytes, then: Callable[[Any], None]) -> None:
        self.asked += 1
        reader = hiredis.Reader()
        reader.feed(payload)
        then(self.redis.run(*reader.gets()))

    def commit(self, charge: Charge) -> int:
        """Run the commands of a batch, and return their number."""
        commands: list[bytes] = []
        handlers: list[Callable[[Any], None]] = []
        charge.encode(commands.append, handlers, self.now)
        assert len(commands) == len(handlers)
        for payload, handler in zip(commands, handlers, strict=True):
            self.ask(payload, handler)
        return len(commands)


def charged(account: Account, messages: int, source: int = 7, size_bytes: int = 10) -> Charge:
    charge = Charge(lambda shard: None)
    for _ in range(messages):
        charge.add(account, source, 3, size_bytes)
    return charge


def test_a_batch_adds_up_before_it_asks() -> None:
    store, account = Store(), Accounts(BOUNDS).get("b.example")
    assert store.commit(charged(account, 20)) == 3
    held = store.redis.run("HGET", "federation:held:b.example", "total")
    assert unpack(int(held)) == (20, 200)
    assert store.redis.run("HGET", "federation:held:b.example", "7") == held


def test_a_source_has_a_quarter_and_the_rest_is_for_others() -> None:
    store, account = Store(), Accounts(BOUNDS).get("b.example")
    store.commit(charged(account, 25))
    assert not account.takes(7) and account.takes(8)
    for source in (8, 9):
        store.commit(charged(account, 24, source))
        assert account.takes(source)
    store.commit(charged(account, 1, 10, size_bytes=90_000))
    assert not account.takes(10) and account.takes(8)
    store.commit(charged(account, 24, 11))
    store.commit(charged(account, 2, 12))
    assert not account.takes(13), "the account is full"


def test_a_full_account_is_asked_for_and_takes_again() -> None:
    store, account = Store(), Accounts(BOUNDS).get("b.example")
    store.commit(charged(account, 25))
    before = store.asked
    assert account.holds(7, LOOK_S / 2, store.ask) and store.asked == before
    assert account.holds(7, LOOK_S, store.ask)
    assert store.asked == before + 1 and not account.takes(7)
    store.redis.run("HINCRBY", account.key, "total", -(10 << 24 | 1))
    store.redis.run("HINCRBY", account.key, "7", -(10 << 24 | 1))
    assert account.holds(7, 2 * LOOK_S, store.ask)
    assert account.takes(7)


def test_nobody_is_refused_by_an_old_reply() -> None:
    store, account = Store(), Accounts(BOUNDS).get("b.example")
    store.commit(charged(account, 25))
    store.redis.run("DEL", account.key)
    before = store.asked
    assert not account.holds(7, FRESH_S, store.ask)
    assert store.asked == before, "who has to wait for the answer asks"
    told: list[bool] = []
    account.look(FRESH_S, store.ask, lambda: told.append(account.takes(7)))
    assert told == [True]


def test_an_account_that_cannot_be_asked_for_takes_all() -> None:
    store, account = Store(), Accounts(BOUNDS).get("b.example")
    store.commit(charged(account, 25))
    account.look(9.0, lambda payload, then: then(LinkLost("away")))
    assert account.takes(7)


def test_a_shard_without_a_lease_is_told() -> None:
    store, account = Store(), Accounts(BOUNDS).get("b.example")
    idle: list[int] = []
    charge = Charge(idle.append)
    for shard in (1, 2, 1):
        charge.add(account, 7, shard, 10)
    store.redis.run("SET", keys.lease(1), "token")
    store.commit(charge)
    assert idle == [2]


def test_a_batch_whose_replies_were_lost_is_told_for_all_its_shards() -> None:
    account = Accounts(BOUNDS).get("b.example")
    idle: list[int] = []
    charge = Charge(idle.append)
    charge.add(account, 7, 4, 10)
    handlers: list[Callable[[Any], None]] = []
    charge.encode(lambda payload: None, handlers, 0.0)
    for handler in handlers:
        handler(None)
    assert idle == [4] and account.takes(7)
