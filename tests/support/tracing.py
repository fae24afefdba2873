"""Trace orders as the services publish them, and what was noted for them, read from Redis."""

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
    """Put an order in force, without the nudge that makes it quicker."""
    until = time.time() + lifetime_s
    order = Order(f"{next(_numbers):08x}", kind, subject, until, sample, events_per_s)
    server.run("HSET", "relay:control", f"trace:{order.id}", order.encode())
    server.run("HINCRBY", "relay:control", "version", 1)
    return order


async def traced(relay: RelayProcess, on: bool = True) -> None:
    """Wait until every worker follows something, or nothing any more."""
    await eventually(
        lambda: all(
            f'"relay_trace_on": {float(on)}' in fields.get("metrics", "")
            for fields in relay.worker_hashes().values()
        ),
        what=f"the workers to have tracing {'on' if on else 'off'}",
    )


def raw(server: RedisServer, order: Order) -> list[bytes]:
    """All that was stored, byte for byte."""
    entries = server.run("XRANGE", f"relay:trace:{order.id}", "-", "+")
    return [fields[b"e"] for _, fields in entries]


def noted(server: RedisServer, order: Order, uid: str | None = None) -> list[Event]:
    """What was noted, of one message or of all."""
    events = [decode(each) for each in raw(server, order)]
    return [event for event in events if uid is None or event.uid == uid]


def stages(events: list[Event]) -> list[str]:
    """Only what happened."""
    return [event.stage.value for event in events]


def figures(server: RedisServer, order: Order) -> dict[str, int]:
    """What was counted."""
    found = server.run("HGETALL", f"relay:trace:{order.id}:figures")
    return {name.decode(): int(count) for name, count in found.items()}


async def until(server: RedisServer, order: Order, stage: str, count: int = 1) -> list[Event]:
    """Wait until this stage was noted so often; everything that was noted then."""
    return await eventually(
        lambda: (found := noted(server, order)) and stages(found).count(stage) >= count and found,
        what=f"{stage} to be noted",
    )
