"""A process's handling of orders: which twins it follows, how much, and what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hiredis
import pytest

from proto.rmb.types_pb2 import Envelope
from relay.queues import keys
from relay.trace.bounds import MAX_BUFFERED, MAX_ORDERS
from relay.trace.events import Event, Stage, decode
from relay.trace.orders import Kind, Order
from relay.trace.tracer import Tracer
from tests.support.envelopes import request

NOW = 1_000_000.0


class Store:
    """A stand-in for the connection: it keeps commands and answers with a set reply."""

    def __init__(self) -> None:
        self.usable = True
        self.now = NOW
        self.reply: Any = []
        self.commands: list[list[bytes]] = []

    def submit(self, payload: bytes, answered: Callable[[Any], None], skip: int = 0) -> None:
        reader = hiredis.Reader()
        reader.feed(payload)
        while (command := reader.gets()) is not False:
            self.commands.append(command)
        answered(self.reply)

    def events(self, order: str = "o") -> list[Event]:
        name = keys.trace(order).encode()
        return [decode(c[-1]) for c in self.commands if c[0] == b"XADD" and c[1] == name]

    def counted(self, field: str) -> int:
        name = field.encode()
        return sum(int(c[3]) for c in self.commands if c[0] == b"HINCRBY" and c[2] == name)


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.fixture
async def tracer(store: Store) -> Tracer:
    return Tracer(store.submit, lambda: store.usable, lambda: store.now, "worker 0/b", "a.example")


def order(kind: Kind, subject: str, order_id: str = "o", **more: Any) -> dict[str, str]:
    made = Order(order_id, kind, subject, **{"until": NOW + 60, **more})
    return {order_id: made.encode()}


def sees(tracer: Tracer, envelope: Envelope) -> bool:
    """Check whether a message is followed, by its own addresses."""
    ends = []
    for address in (envelope.source, envelope.destination):
        connection = address.connection if address.HasField("connection") else None
        ends.append((address.twin, connection))
    source, destination = ends
    found = tracer.concerns(source[0], destination[0], envelope) and tracer.message(
        source, destination, envelope, 9
    )
    if not found:
        return False
    tracer.note(found, Stage.ACCEPTED)
    return True


async def test_whom_orders_are_about(tracer: Tracer) -> None:
    from_one, to_one = request((1, "a"), (2, None)), request((2, None), (1, ""))
    other = request((3, None), (4, None), uid="known")
    assert not tracer.on
    tracer.put(order(Kind.TWIN, "1"))
    assert tracer.on
    assert [sees(tracer, each) for each in (from_one, to_one, other)] == [True, True, False]
    for session, expected in (
        ("1:a", [True, False, False]),
        ("1:", [False, True, False]),
        ("1", [False, False, False]),
        ("2", [True, True, False]),
    ):
        tracer.put(order(Kind.SESSION, session))
        assert [sees(tracer, each) for each in (from_one, to_one, other)] == expected
    tracer.put(order(Kind.UID, "known"))
    assert [sees(tracer, each) for each in (from_one, to_one, other)] == [False, False, True]
    tracer.put({})
    assert not tracer.on and not sees(tracer, other)


async def test_one_message_and_several_orders(tracer: Tracer, store: Store) -> None:
    """Each order gets a message once, even if both of its ends match."""
    tracer.put(
        {
            **order(Kind.TWIN, "1", "a"),
            **order(Kind.TWIN, "2", "b"),
            **order(Kind.SESSION, "1", "c"),
            **order(Kind.UID, "u", "d"),
            **order(Kind.TWIN, "3", "e"),
        }
    )
    assert sees(tracer, request((1, None), (2, None), uid="u"))
    assert sees(tracer, request((1, None), (1, None), uid="to itself"))
    tracer.flush()
    assert {each: len(store.events(each)) for each in "abcde"} == {
        **{"a": 2, "b": 1, "c": 2, "d": 1, "e": 0},
    }


async def test_an_event_says_all_there_is(tracer: Tracer, store: Store) -> None:
    tracer.put(order(Kind.TWIN, "1"))
    uid = 'quote " back \\ slash \x00 \u2028 ü'
    envelope = request((1, "a"), (2, None), b"secret", uid=uid)
    message = tracer.message((1, "a"), (2, None), envelope, 77)
    assert message is not None
    tracer.note(
        message,
        Stage.TRIED,
        at=NOW - 1,
        reason='a "reason"',
        epoch=5,
        entry="1-0",
        batch=6,
        relay="b.example",
        answer="answered 503\n",
        ms=1.5,
    )
    tracer.flush()
    assert store.events() == [
        Event(
            NOW - 1, "worker 0/b", "a.example", Stage.TRIED, uid, "1:a", "2", 77, "request",
            'a "reason"', 5, "1-0", 6, "b.example", "answered 503\n", 1.5,
        )
    ]  # fmt: skip
    assert not any(b"secret" in part for command in store.commands for part in command)


async def test_the_rate_is_kept_over_time(tracer: Tracer, store: Store) -> None:
    """The rate holds over time with messages of three events; a started one is recorded whole."""
    tracer.put(order(Kind.TWIN, "1", events_per_s=30))
    followed = 0
    for _ in range(1000):
        store.now += 0.01
        message = tracer.message((1, None), (2, None), request((1, None), (2, None)), 9)
        if message is not None:
            followed += 1
            for stage in (Stage.ACCEPTED, Stage.COMMITTED, Stage.DELIVERED):
                tracer.note(message, stage)
    tracer.flush()
    assert 300 <= 3 * followed <= 300 + 40
    assert len(store.events()) == store.counted("events") == 3 * followed
    assert store.counted("skipped") == 1000 - followed


async def test_a_clock_that_is_set_back_closes_nothing(tracer: Tracer, store: Store) -> None:
    tracer.put(order(Kind.TWIN, "1", events_per_s=2))
    envelope = request((1, None), (2, None))
    while sees(tracer, envelope):
        pass
    store.now -= 3600
    assert not sees(tracer, envelope)
    store.now = NOW + 2
    assert sees(tracer, envelope)


async def test_while_redis_is_away(tracer: Tracer, store: Store) -> None:
    """Waiting events are bounded, and lost ones are counted once Redis is back."""
    tracer.put(order(Kind.TWIN, "1"))
    store.usable = False
    message = tracer.message((1, None), (2, None), request((1, None), (2, None)), 9)
    assert message is not None
    for _ in range(MAX_BUFFERED + 10):
        tracer.note(message, Stage.ACCEPTED)
    tracer.flush()
    assert store.commands == []
    store.usable = True
    tracer.flush()
    assert len(store.events()) == MAX_BUFFERED
    assert store.counted("lost") == 10


async def test_redis_is_full(tracer: Tracer, store: Store) -> None:
    """A full Redis ends the order at once and withdraws it; a temporary error loses only events."""
    tracer.put({**order(Kind.TWIN, "1"), **order(Kind.TWIN, "9", "other")})
    store.reply = hiredis.ReplyError("LOADING Redis is loading")
    assert sees(tracer, request((1, None), (2, None)))
    tracer.flush()
    assert tracer.twins == {1, 9}
    store.reply = hiredis.ReplyError("OOM command not allowed")
    assert sees(tracer, request((1, None), (2, None)))
    tracer.flush()
    assert store.commands[-1] == [b"HDEL", b"relay:control", b"trace:o"]
    assert tracer.twins == {9}
    tracer.put({**order(Kind.TWIN, "1"), **order(Kind.TWIN, "9", "other")})
    assert tracer.twins == {9}, "as long as the control state still has it"


async def test_an_order_ends_by_itself(store: Store) -> None:
    changes: list[bool] = []
    loop = asyncio.get_running_loop()
    tracer = Tracer(
        store.submit,
        lambda: True,
        lambda: NOW + loop.time() - begin,
        "by",
        "here",
        lambda: (changes.append(tracer.on), over.set() if not tracer.on else None),
    )
    begin, over = loop.time(), asyncio.Event()
    tracer.put({**order(Kind.TWIN, "1", until=NOW + 0.05), **order(Kind.TWIN, "2", "b", until=NOW)})
    assert tracer.twins == {1}
    assert sees(tracer, request((1, None), (2, None)))
    async with asyncio.timeout(5):
        await over.wait()
    assert changes == [True, False] and not tracer.on
    assert len(store.events()) == 1, "what was noted is written"


async def test_nonsense_and_too_many(tracer: Tracer) -> None:
    texts = {"x": "what is this", **order(Kind.TWIN, "1", "y")}
    tracer.put(texts)
    assert tracer.twins == {1}
    many = {}
    for number in range(MAX_ORDERS + 3):
        many.update(order(Kind.TWIN, str(number + 1), f"{number:02}"))
    tracer.put(many)
    assert len(tracer.twins) == MAX_ORDERS
