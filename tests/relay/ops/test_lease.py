"""Leases on a real Redis: one holder, renewed, lost, released."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from redis import Redis

from relay.ops import lease as lease_module
from relay.ops.lease import LIFE_S, MARGIN_S, Lease
from tests.support.redis_servers import RedisServer, start_valkey

KEY = "relay:test:lease"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_holder_at_a_time(any_redis: RedisServer) -> None:
    with any_redis.client() as client:
        one, two = Lease(client, KEY), Lease(client, KEY)
        assert one.take() and one.held
        assert not two.take() and not two.held
        assert not one.take(), "not twice either"
        two.release()
        assert client.get(KEY) == one.token.encode(), "only the holder gives it back"
        assert 0 < client.pttl(KEY) <= LIFE_S * 1000
        one.release()
        assert not one.held and two.take()


def test_a_renewal_prolongs_it_unless_somebody_else_has_it(valkey: RedisServer) -> None:
    clock = Clock()
    with valkey.client() as client:
        lease = Lease(client, KEY, clock=clock)
        assert lease.take()
        client.pexpire(KEY, 50)
        clock.now += 5
        assert lease.renew() and client.pttl(KEY) > 50
        clock.now += LIFE_S - MARGIN_S
        assert not lease.held, "by our own clock it is over before Redis says so"
        assert lease.renew() and lease.held
        client.set(KEY, "somebody else")
        assert not lease.renew() and not lease.held
        client.delete(KEY)
        assert not lease.renew(), "what ended is not taken again in passing"


def test_a_successor_frees_what_its_predecessor_held(
    any_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{KEY}:{number}" for number in range(4)]
    with any_redis.client() as client:
        assert lease_module.free_former(client, names) == 0, "who has no name has no predecessor"
        for name, holder in zip(names, ("one", "one", "one more", ""), strict=True):
            monkeypatch.setattr(lease_module, "_holder", holder)
            assert Lease(client, name).take()
        lease_module.be("one")
        assert lease_module.free_former(client, names) == 2
        assert [client.exists(name) for name in names] == [0, 0, 1, 1]
        assert lease_module.free_former(client, []) == 0


def test_without_redis_it_lasts_to_its_end(tmp_path: Path) -> None:
    clock = Clock()
    server = start_valkey(tmp_path)
    try:
        with Redis(unix_socket_path=server.socket_path, retry=None) as client:
            lease = Lease(client, KEY, clock=clock)
            assert lease.take()
            server.kill()
            assert lease.renew()
            clock.now += LIFE_S
            assert not lease.renew()
            lease.release()
    finally:
        server.remove()


def test_it_is_kept_from_a_thread(valkey: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.02)
    lost = threading.Event()
    with valkey.client() as client:
        lease = Lease(client, KEY)
        assert lease.take()
        client.pexpire(KEY, 1000)
        lease.keep(lost.set)
        while client.pttl(KEY) <= 1000:
            assert not lost.is_set()
        client.set(KEY, "somebody else")
        assert lost.wait(10)
        lease.release()
        assert client.get(KEY) == b"somebody else"
