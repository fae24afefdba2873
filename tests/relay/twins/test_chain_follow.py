"""The task that follows the chain, with a test node, Redis and a database, but no runner."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from chain.client import Head
from proto.chain.twin import Twin as ChainTwin
from relay.ops import background
from relay.ops import lease as lease_module
from relay.ops.lease import Lease
from relay.ops.redis_client import client
from relay.queues import keys
from relay.twins import chain_events, chain_follow, chain_import, chain_state, mirror
from relay.twins.chain_state import ChainState
from relay.twins.models import Twin
from tests.relay.twins.conftest import UseChain
from tests.support.devchain import Devchain
from tests.support.identities import twin
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

WAIT_S = 60.0
Following = Callable[[], AbstractContextManager[threading.Thread]]


until = functools.partial(wait_until, timeout_s=WAIT_S)


def state() -> ChainState:
    return chain_state.read(client())


def tip() -> int:
    found = state().following.tip
    return found.height if found else 0


def relays(number: int = 7) -> str:
    return Twin.objects.get(id=number).relays


@pytest.fixture
def following(started: list[str]) -> Iterator[Following]:
    """Return a context manager that follows the chain in a thread, as a Celery worker does."""

    @contextmanager
    def follow() -> Iterator[threading.Thread]:
        def run() -> None:
            try:
                chain_follow.follow()
            finally:
                connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield thread
        finally:
            background.stopping.set()
            thread.join(WAIT_S)
            background.stopping.clear()
            assert not thread.is_alive()

    yield follow


def test_a_change_reaches_mirror_and_workers(
    chain: Devchain, following: Following, started: list[str]
) -> None:
    client().hset(keys.TWINS, mapping={"7": "old", "8": "other"})
    with following(), client().pubsub(ignore_subscribe_messages=True) as news:
        news.subscribe(keys.TWINS_CHANNEL)
        assert news.get_message(timeout=WAIT_S) is None, "subscribed"
        until(tip)
        assert state().imported.needed and started == [chain_import.TASK]
        assert client().hlen(keys.TWINS) == 0, "all stale at the beginning"
        client().hset(keys.TWINS, mapping={"7": "old", "8": "other"})
        height = chain.put_twin(twin(7), "b1.example_a1.example")
        until(lambda: tip() == height)
        assert relays() == "a1.example_b1.example"
        assert Twin.objects.get(id=7).height == height
        assert client().hkeys(keys.TWINS) == [b"8"]
        told = [until(lambda: news.get_message(timeout=1))["data"] for _ in range(2)]
        assert [each.split()[1] for each in told] == [b"*", b"7"]
        chain.put_twin(twin(9))
        chain.put_twin(twin(9), "c1.example")
        until(lambda: relays(9) == "c1.example" if Twin.objects.filter(id=9).exists() else False)
        until(lambda: state().following.url == chain.url)
        assert state().following.complaint(time.time()) == ""
    counts = state().following.counts
    assert (counts["stored"], counts["updated"], counts["flushes"]) == (2, 1, 1)
    events = [(each.kind, each.twin) for each in chain_events.latest(client(), 10)]
    assert events == [("changed", 9), ("changed", 9), ("changed", 7), ("missed", 0)]
    assert not state().following.leased, "given back at the end"
    figures = chain_state.figures(state())
    assert figures["events_listener_twin_stored_total"] == 2
    assert figures["events_listener_last_processed_block_number"] == tip()
    assert figures["events_listener_reconnecting"] == 1, "nobody follows now"


def test_the_next_one_goes_on_where_the_last_one_was(chain: Devchain, following: Following) -> None:
    with following():
        until(tip)
    chain.put_twin(twin(7), "missed.example")
    height = chain.new_blocks(30)
    with following():
        until(lambda: tip() == height)
        assert relays() == "missed.example"
    assert state().following.counts["flushes"] == 1


def test_who_missed_too_much_calls_all_stale(
    chain: Devchain, following: Following, use_chain: UseChain
) -> None:
    use_chain(chain.url, threshold=5)
    with following():
        until(tip)
        chain.put_twin(twin(7), "here.example")
        until(lambda: Twin.objects.filter(id=7).exists())
    chain.put_twin(twin(7), "missed.example")
    height = chain.new_blocks(10)
    with following():
        until(lambda: tip() == height)
    assert Twin.objects.get(id=7).stale_since == height
    assert state().following.counts["flushes"] == 2
    assert state().imported.wanted == 2


def test_a_fork_takes_its_changes_back(chain: Devchain, following: Following) -> None:
    with following():
        until(tip)
        height = chain.put_twin(twin(7), "stays.example")
        until(lambda: tip() == height)
        chain.put_twin(twin(7), "fork.example")
        height = chain.put_twin(twin(9))
        until(lambda: tip() == height)
        assert relays() == "fork.example"
        head = chain.fork(2, reinclude=False)["number"]
        until(lambda: tip() == head)
        assert relays() == "stays.example"
        taken_back = {each.twin for each in chain_events.latest(client(), 2)}
        assert taken_back == {7, 9}
        assert not Twin.objects.filter(id=9).exists()


def test_two_followers_and_one_lease(chain: Devchain, following: Following) -> None:
    with following():
        until(lambda: state().following.leased)
        assert chain_follow.follow() is False
        until(tip)
    with following() as second:
        until(lambda: state().following.leased)
        assert second.is_alive()


def test_who_lost_the_lease_writes_nothing_more(
    chain: Devchain, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.05)
    with following() as thread:
        until(tip)
        client().set(keys.CHAIN_LEASE, "somebody else", px=60_000)
        thread.join(WAIT_S)
        assert not thread.is_alive()
    before = tip()
    chain.put_twin(twin(7), "later.example")
    assert tip() == before
    assert client().get(keys.CHAIN_LEASE) == b"somebody else"


def test_it_ends_after_its_life(chain: Devchain, started: list[str]) -> None:
    assert chain_follow.follow(life_s=0) is True
    assert not state().following.leased
    assert started[-1] == chain_follow.TASK, "its successor"


def test_what_the_database_does_not_take_is_told_again(
    chain: Devchain,
    following: Following,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with following() as thread:
        until(tip)
        with monkeypatch.context() as patched:

            def broken(_: object) -> int:
                raise OperationalError("disk full")

            patched.setattr(mirror, "keep_changed", broken)
            height = chain.put_twin(twin(7), "later.example")
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert tip() < height
    assert "could not store what it heard: disk full" in caplog.text
    assert state().following.counts["store_errors"] == 1
    with following():
        until(lambda: tip() == height)
        assert relays() == "later.example"


def test_what_the_workers_were_not_told_is_told_again(
    chain: Devchain, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following() as thread:
        until(tip)
        with monkeypatch.context() as patched:
            patched.setattr(chain_follow.services, "announce", lambda _: False)
            height = chain.put_twin(twin(7), "later.example")
            thread.join(WAIT_S)
    version = client().get(keys.TWINS_VERSION)
    assert tip() < height
    with following():
        until(lambda: tip() == height)
    assert int(client().get(keys.TWINS_VERSION)) == int(version) + 1


def test_redis_goes_and_comes_back(
    chain: Devchain,
    following: Following,
    settings: Any,
    tmp_path: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tests.relay.conftest import use_redis

    own: RedisServer = start_valkey(tmp_path / "own", append_fsync="no")
    try:
        use_redis(settings, own.url)
        with following() as thread:
            until(tip)
            own.kill()
            chain.put_twin(twin(7), "later.example")
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert "could not store what it heard" in caplog.text
        own.start()
        client().delete(keys.CHAIN_LEASE)  # the lease would also expire
        with following():
            until(lambda: Twin.objects.filter(id=7, relays="later.example").exists())
        assert state().following.counts["flushes"] == 1
    finally:
        own.remove()


def test_a_node_that_stops_is_left(
    chain: Devchain, following: Following, use_chain: UseChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_chain("ws://127.0.0.1:1", chain.url)
    with following():
        until(tip)
        until(lambda: state().following.counts["node_errors"] == 1)
        assert "127.0.0.1:1" in state().following.error
        chain.stop()
        until(lambda: "no node of the chain" in state().following.complaint(time.time()))
        chain.start()
        height = chain.put_twin(twin(7), "later.example")
        until(lambda: tip() >= height)
        assert relays() == "later.example"
    assert state().following.counts["reconnects"] >= 1


def test_who_lost_the_lease_stores_nothing(site_redis: RedisServer) -> None:
    """A follower that lost its lease writes nothing: its successor may be at a later block."""
    lease = Lease(client(), keys.CHAIN_LEASE)
    assert lease.take()
    sink = chain_follow.MirrorSink(client(), lease)
    sink.twin_changed(ChainTwin(7, bytes(range(32)), b"old.example"), 5)
    client().set(keys.CHAIN_LEASE, "somebody else")
    assert not lease.renew()
    with pytest.raises(chain_follow.LeaseLostError):
        sink.at(Head(5, bytes(32)))
    with pytest.raises(chain_follow.LeaseLostError):
        sink.flush(6)
    assert not Twin.objects.exists()
    assert tip() == 0 and not state().imported.needed


def test_silence_is_a_complaint() -> None:
    following = chain_state.Following(None, 0, "ws://node", 5, 1000.0, "", True, "", {})
    assert following.complaint(1030) == ""
    assert following.complaint(1031) == "no new block for 31 s"
    assert following.lag_blocks == 0
