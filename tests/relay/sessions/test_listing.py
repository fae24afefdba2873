"""Pages of live sessions: in any order, as the directory says, and fast with 20,000 sessions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from proto.sbd.frames import path_of_key
from relay.access.errors import Away, Invalid
from relay.ops import keyset, paging
from relay.queues import keys
from relay.sessions import listing, ranking
from relay.sessions.models import Session
from relay.sessions.rates import Rates, pack
from tests.proto.sbd.pairs import Identity
from tests.support.published import publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Add = Callable[..., Session]


@pytest.fixture
def add(site_redis: RedisServer) -> Add:
    """Return a function that adds a session's row and, unless `held` is False, its entry."""

    def add(twin: int, sid: str | None = None, *, held: bool = True, **fields: object) -> Session:
        number = Session.objects.count() + 1
        row = Session.objects.create(
            twin=twin, sid_present=sid is not None, sid=sid or "", epoch=number,
            opened_at=BEGAN + timedelta(seconds=number, microseconds=number),
            **{"worker": "boot", **fields},
        )  # fmt: skip
        if held:
            entry = f"{row.epoch} boot {row.opened_at.timestamp():.3f} 127.0.0.1"
            site_redis.run("HSET", keys.SESSIONS, row.key_text, entry)
        return row

    return add


@pytest.fixture
def add_peer(site_redis: RedisServer) -> Callable[..., Session]:
    """Return a function that adds a session of the SBD client whose key has a number."""

    def add(number: int, *, held: bool = True, **fields: object) -> Session:
        count = Session.objects.count() + 1
        row = Session.objects.create(
            protocol="sbd", twin=None, peer=path_of_key(key_of(number)), epoch=count,
            opened_at=BEGAN + timedelta(seconds=count), **{"worker": "boot", **fields},
        )  # fmt: skip
        if held:
            site_redis.run("HSET", keys.SBD_KEYS, key_of(number), f"boot {row.epoch}")
        return row

    return add


def key_of(number: int) -> bytes:
    return Identity(number).key


def listed(**options: object) -> list[str]:
    return [each.key for each in listing.live(**options).items]  # type: ignore[arg-type]


def test_the_directory_is_the_truth(add: Add, site_redis: RedisServer) -> None:
    add(1, "ended", held=False)
    add(2, "taken over")
    site_redis.run("HSET", keys.SESSIONS, "2:taken over", "99 other 1.0 127.0.0.1")
    add(3, closed_at=BEGAN)
    add(4, "")
    assert listed() == ["4:"]
    assert listing.total() == 3  # includes sessions whose rows are not written yet
    (found,) = listing.live().items
    assert (found.twin, found.sid, found.epoch, found.worker) == (4, "", 4, "boot")


def test_filters(add: Add) -> None:
    add(1, "a", remote="192.0.2.1:5000")
    add(1, "b", remote="192.0.2.2:5000")
    add(2, "a", remote="192.0.2.2:5001")
    add(3, None, remote="[2001:db8::1]:5000", worker="other")
    add(4, None, remote="unix", worker="other")
    assert listed(twin=1) == ["1:b", "1:a"]
    assert listed(sid="a") == ["2:a", "1:a"] and listed(sid="") == []
    assert listed(address="192.0.2.2", twin=2) == ["2:a"]
    assert listed(address="192.0.2.2") == ["2:a", "1:b"] and listed(address="192.0.2") == []
    assert listed(address="192.0.2.2:5000") == ["1:b"]
    assert (listed(address="2001:db8::1"), listed(address="unix")) == (["3"], ["4"])
    assert listed(worker="boot", order="opened") == ["1:a", "1:b", "2:a"]
    assert listed(worker="third") == []
    assert listing.history(twin=1, sid="b").count() == 1
    assert listing.history(since=BEGAN + timedelta(seconds=2), address="192.0.2.2").count() == 2


def test_by_what_carries_them(add: Add, add_peer: Callable[..., Session]) -> None:
    add(1, connection=3, stream=0)
    add(2)
    peer = add_peer(4)
    assert listed(carrier="streams") == ["1"]
    assert listed(carrier="websocket") == [peer.key_text, "2"]
    (found,) = listing.live(twin=1).items
    assert (found.connection, found.stream) == (3, 0)
    assert listing.history(carrier="streams").count() == 1
    for of in (listing.live, listing.history):
        with pytest.raises(Invalid, match="carrier: must be one of websocket, streams"):
            of(carrier="pigeon")


@pytest.mark.parametrize("order", ["opened", "-opened", "twin", "-messages_in", "backlog"])
def test_pages_come_to_everything_once(add: Add, order: str) -> None:
    for number in range(9):
        add(number % 4 + 1, f"s{number}", messages_in=number % 3, held=number != 4)
    found: list[str] = []
    cursor = ""
    while True:
        page = listing.live(order=order, limit=3, cursor=cursor)
        assert len(page.items) <= 3
        found += [each.key for each in page.items]
        cursor = page.next
        if not cursor:
            break
    assert len(found) == 8 and found == listed(order=order)


@pytest.mark.parametrize("order", ["-rate_in", "rate_in", "-byte_rate_out"])
def test_pages_by_rate_come_to_everything_once(
    add: Add, site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Pages by rate show each live session once.

    The sessions include equal rates, idle and ended sessions, and one that another worker took
    over.
    """
    monkeypatch.setattr(ranking, "NAMES", 2)
    expected = []
    for number in range(12):
        row = add(number % 4 + 1, f"s{number}", held=number != 4)
        if number % 3:
            rate = float(number // 4 + 1)
            worker = ("boot", "other")[number % 2]
            publish(site_redis, row.key_text, row.epoch, worker, messages_in=rate, bytes_out=rate)
        expected += [(rate if number % 3 else 0.0, row.key_text)] * (number != 4)
    stale = add(9, "taken over")
    publish(site_redis, "9:taken over", stale.epoch - 1, messages_in=99, bytes_out=99)
    expected.append((0.0, "9:taken over"))
    found: list[str] = []
    cursor = ""
    while True:
        page = listing.live(order=order, limit=3, cursor=cursor)
        found += [each.key for each in page.items]
        cursor = page.next
        if not cursor:
            break
    assert found == listed(order=order)
    rates = dict((key, rate) for rate, key in expected)
    assert sorted(found) == sorted(rates) and len(found) == 12
    in_order = [rates[key] for key in found]
    assert in_order == sorted(in_order, reverse=order.startswith("-"))


def test_sbd_clients_are_listed_among_twins(
    add: Add, add_peer: Add, site_redis: RedisServer
) -> None:
    one = add_peer(1, remote="192.0.2.1:5000")
    add_peer(2, held=False)
    add_peer(3, closed_at=BEGAN)
    taken_over = add_peer(4)
    site_redis.run("HSET", keys.SBD_KEYS, key_of(4), f"other {taken_over.epoch + 1}")
    add(7, "a", remote="192.0.2.1:5000")
    assert listed() == ["7:a", one.key_text] and listed(address="192.0.2.1") == listed()
    assert one.key_text == f"sbd:{one.peer}" and len(one.peer) == 43
    assert listed(protocol="rmb") == ["7:a"] and listed(protocol="sbd") == [one.key_text]
    for part in (one.peer, one.peer[:6]):
        assert listed(peer=part) == [one.key_text]
    assert listed(twin=7) == ["7:a"] and listed(sid="") == [] == listed(protocol="rmb", peer=part)
    (found,) = listing.live(protocol="sbd").items
    assert (found.protocol, found.twin, found.sid) == ("sbd", None, None)
    assert (found.peer, found.epoch, found.address) == (one.peer, one.epoch, "192.0.2.1:5000")
    assert (listing.total(), listing.total("rmb"), listing.total("sbd")) == (4, 1, 3)
    assert listing.history(protocol="sbd").count() == 4
    assert listing.history(peer=one.peer).get() == one
    assert listing.open_of([7]) == {7: 1}
    for ask in (listing.live, listing.history):
        with pytest.raises(Invalid):
            ask(protocol="mux")


@pytest.mark.parametrize("order", ["twin", "-twin", "drops", "-rate_in", "rate_in"])
def test_pages_of_twins_and_sbd_clients_come_to_everything_once(
    add: Add, add_peer: Add, site_redis: RedisServer, order: str
) -> None:
    for number in range(5):
        add(number % 2 + 1, f"s{number}")
        row = add_peer(number)
        if number % 2:
            publish(site_redis, row.key_text, row.epoch, messages_in=number, bytes_in=1)
            publish(site_redis, f"1:s{number}", row.epoch - 1, messages_in=number)
    pages, of_history = [], []
    cursor = ""
    while True:
        page = listing.live(order=order, limit=2, cursor=cursor)
        pages += [each.key for each in page.items]
        cursor = page.next
        if not cursor:
            break
    assert sorted(pages) == sorted(listed()) and len(pages) == 10
    assert pages == listed(order=order)
    if order.endswith("twin"):
        while True:
            found = keyset.page(
                listing.history(), {"twin": "twin"}, order=order, limit=2, cursor=cursor,
                nullable=listing.NULLABLE,
            )  # fmt: skip
            of_history += [each.key_text for each in found.items]
            cursor = found.next
            if not cursor:
                break
        assert of_history == pages
        twins = [key.partition(":")[0] for key in pages if not key.startswith("sbd:")]
        assert twins == sorted(twins, reverse=order == "-twin")
    elif order == "-rate_in":
        assert {key.startswith("sbd:") for key in pages[:4]} == {True, False}


def test_rates_are_shown_in_any_order(add: Add, site_redis: RedisServer) -> None:
    row = add(1, "a", remote="192.0.2.1:5000")
    add(2, "a")
    publish(site_redis, "1:a", row.epoch, messages_in=1.1, messages_out=2, bytes_in=3, bytes_out=4)
    for order in ("twin", "-opened", "-rate_out"):
        first, second = sorted(listing.live(order=order).items, key=lambda each: each.twin)
        found = (first.rate_in, first.rate_out, first.byte_rate_in, first.byte_rate_out)
        assert found == (1.1, 2, 3, 4) and second.rate_in == 0
    assert listed(order="-rate_in", address="192.0.2.1") == ["1:a"]
    assert listed(order="-rate_in", twin=2) == ["2:a"] and listed(order="rate_in", sid="b") == []


def test_bad_questions(add: Add) -> None:
    for number in range(3):
        add(1, f"s{number}")
    cursor = listing.live(limit=1).next
    for options in (
        {"order": "name"}, {"limit": 0}, {"cursor": "x"}, {"cursor": cursor, "order": "opened"},
        {"cursor": cursor[:-2]}, {"order": "rate"},
        {"order": "rate_in", "cursor": paging.encode("rate_in", 0.0, "x")},
        {"order": "rate_in", "cursor": paging.encode("rate_in", 0.0, "9" * 30)},
        {"order": "rate_in", "cursor": paging.encode("rate_in", 1, 1)},
    ):  # fmt: skip
        with pytest.raises(Invalid):
            listed(**options)


@pytest.mark.usefixtures("no_redis")
def test_without_redis() -> None:
    Session.objects.create(twin=1, epoch=1, worker="boot", opened_at=BEGAN)
    for ask in (listing.live, listing.total):
        with pytest.raises(Away):
            ask()


def test_twenty_thousand_sessions_among_a_long_history(site_redis: RedisServer) -> None:
    now = datetime.now(UTC)
    rows = [
        Session(
            twin=number % 20_000 + 1, epoch=number, worker="boot",
            opened_at=now - timedelta(seconds=number),
            closed_at=None if number < 20_000 else now, messages_in=number * 7919 % 10_007,
        )
        for number in range(25_000)
    ]  # fmt: skip
    Session.objects.bulk_create(rows, batch_size=5000)
    with site_redis.client().pipeline(transaction=False) as pipe:
        for row in rows[:20_000]:
            pipe.hset(keys.SESSIONS, row.key_text, f"{row.epoch} boot 1.0 127.0.0.1")
        for row in rows[:10_000]:
            rate = Rates(row.messages_in / 7)
            pipe.hset(keys.rates("boot"), row.key_text, pack(row.epoch, rate))
        pipe.sadd(keys.WORKERS, "boot")
        pipe.execute()
    took_s = []
    with CaptureQueriesContext(
        connection,
    ) as queries:
        for order in ("-opened", "opened", "twin", "-messages_in", "backlog", "-rate_in"):
            cursor = ""
            for _ in range(3):
                began = time.perf_counter()
                page = listing.live(order=order, limit=100, cursor=cursor)
                took_s.append(time.perf_counter() - began)
                assert len(page.items) == 100 and page.next
                cursor = page.next
    assert len(queries) == 18  # one for each page
    assert statistics.median(took_s) < 0.2
