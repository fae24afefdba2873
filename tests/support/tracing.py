"""Trace orders published as the services do, and the events recorded for them in Redis."""

from __future__ import annotations

import itertools
import time

from relay.trace.events import Event, decode
from relay.trace.orders import Kind, Order
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually

_numbers = itertools.count(1)


def publish(
    server: RedisServer,
    kind: Kind,
    subject: str,
    *,
    lifetime_s: float = 60.0,
    sample: float = 1.0,
    events_per_s: int = 500,
) -> Order:
    """Publish an order, without the notification that would make workers follow it sooner."""
    until = time.time() + lifetime_s
    order = Order(f"{next(_numbers):08x}", kind, subject, until, sample, events_per_s)
    server.run("HSET", "relay:control", f"trace:{order.id}", order.encode())
    server.run("HINCRBY", "relay:control", "version", 1)
    return order


async def traced(relay: RelayProcess, on: bool = True) -> None:
    """Wait until every worker traces something, or nothing any more."""
    await eventually(
        lambda: all(
            f'"relay_trace_on": {float(on)}' in fields.get("metrics", "")
            for fields in relay.worker_hashes().values()
        ),
        what=f"the workers to have tracing {'on' if on else 'off'}",
    )


def raw(server: RedisServer, order: Order) -> list[bytes]:
    """Return all stored events as bytes."""
    entries = server.run("XRANGE", f"relay:trace:{order.id}", "-", "+")
    return [fields[b"e"] for _, fields in entries]


def noted(server: RedisServer, order: Order, uid: str | None = None) -> list[Event]:
    """Return the events recorded, of one message or of all."""
    events = [decode(each) for each in raw(server, order)]
    return [event for event in events if uid is None or event.uid == uid]


def stages(events: list[Event]) -> list[str]:
    """Return only the stages of the events."""
    return [event.stage.value for event in events]


def figures(server: RedisServer, order: Order) -> dict[str, int]:
    """Return the counters of the order."""
    found = server.run("HGETALL", f"relay:trace:{order.id}:figures")
    return {name.decode(): int(count) for name, count in found.items()}


async def until(server: RedisServer, order: Order, stage: str, count: int = 1) -> list[Event]:
    """Wait until a stage was recorded `count` times; return all events recorded by then."""
    return await eventually(
        lambda: (found := noted(server, order)) and stages(found).count(stage) >= count and found,
        what=f"{stage} to be noted",
    )
