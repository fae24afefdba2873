"""The process of the monitor: reads the invocations of a lattice, and reports findings to Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.connection import LatticeConnection
from lattice.directory import Directory
from lattice.monitor.judge import Judge, View
from lattice.monitor.watch import Watch
from lattice.options import LatticeOptions
from lattice.process import goes_on, together
from lattice.recording import Events
from lattice.report import Report
from lattice.report import told as report_of
from proto.lattice import state
from proto.lattice.errors import LatticeError
from proto.lattice.state import FindingRow, ProcessKind, Total, total_field

logger = logging.getLogger(__name__)

TELL_S: Final = 1.0
BRIDGES_S: Final = 1.0
"""Seconds between two look-ups of the bridges."""


class MonitorError(LatticeError):
    """The monitor cannot start; the text is for the operator."""


async def run(settings: dict[str, Any], stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Watch a lattice until the event is set.

    Args:
        settings: `options` (see `LatticeOptions`), `redis_url`, `subject`: prefix under which an
            account exports the invocations, `direct`: whether to subscribe to those of the lattice
            itself, `hosts`: ids of programs that take part without a host, and `record`: whether
            to record each invocation as an event in the lake.
        stop: event that ends the monitor.
        ready: function called once it watches.

    Raises:
        MonitorError: neither `subject` nor `direct` is set.
    """
    options = LatticeOptions(**settings["options"])
    if not settings["subject"] and not settings["direct"]:
        raise MonitorError(
            "the monitor has nothing to read: set lattice.monitor_subject, or "
            "lattice.monitor_direct = true (see docs/operate/lattice.md)"
        )
    prefix = "" if settings["direct"] else settings["subject"]
    judge = Judge(options.lattice, options.issuers, window_s=options.iat_window_s)
    redis = Redis.from_url(settings["redis_url"])
    events = Events(redis) if settings.get("record") else None
    watch = Watch(judge, prefix, events)
    connection = LatticeConnection(options)
    directory = Directory(connection)
    bridges = Bridges(redis, settings["hosts"])

    def told() -> dict[str, Any]:
        return {
            "nats": connection.state,
            "error": connection.last_error,
            "seen": watch.seen,
            "judged": watch.judged,
            "unjudged": watch.unjudged,
            "unknown_payloads": watch.unknown_payloads,
            "by_reason": dict(watch.by_reason),
            "direct": bool(settings["direct"]),
        }

    def totals() -> dict[str, int]:
        found = {total_field(Total.FOUND, each): count for each, count in watch.by_reason.items()}
        return {Total.JUDGED: watch.judged, Total.UNJUDGED: watch.unjudged, **found}

    async def watching() -> None:
        await connection.open(wait=True)
        subject = f"wasmbus.rpc.{options.lattice}.>"
        await connection.subscribe(
            f"{prefix}.{subject}" if prefix else subject,
            lambda message: watch.take(message.subject, message.data),
        )
        logger.info("watching %s", subject)
        ready()
        await watch.keep()

    async def viewing() -> None:
        async for _ in directory.changes():
            judge.view = bridges.joined(directory.view())

    async def viewing_bridges() -> None:
        while True:
            await bridges.look()
            judge.view = bridges.joined(directory.view())
            await asyncio.sleep(BRIDGES_S)

    report = Report(redis, ProcessKind.MONITOR, told, totals=totals, events=events)
    try:
        works = (watching(), viewing(), viewing_bridges(), report.keep(), _telling(redis, watch))
        await together(stop, *works)
    finally:
        await connection.close()
        await report.finish()
        await redis.aclose()


class Bridges:
    """Callers that answer no control message: the relay's bridges, and hosts of the settings."""

    def __init__(self, redis: Redis, hosts: Collection[str]) -> None:
        self._redis = redis
        self._hosts = frozenset(hosts)
        self._keys: set[str] = set()
        self._host_ids: set[str] = set()

    async def look(self) -> None:
        """Read the keys and host ids of bridges; while Redis is unavailable, keep the last."""
        try:
            found = await report_of(self._redis, ProcessKind.BRIDGE)
        except RedisError as error:
            logger.info("cannot read what bridges report: %s", error)
            return
        self._keys = {each.get(name, "") for each in found for name in ("provider", "actor")}
        self._keys.discard("")
        self._host_ids = {host_id for each in found for host_id in each.get("host_ids", ())}

    def joined(self, view: View) -> View:
        """Add the bridges to a view, and return it."""
        if view.registered is not None:
            view.registered = {*view.registered, *self._keys}
        view.trusted_hosts = self._hosts | self._host_ids
        return view


async def _telling(redis: Redis, watch: Watch) -> None:
    """Write findings to the stream, until cancelled."""
    while goes_on():
        await asyncio.sleep(TELL_S)
        found = watch.take_findings()
        if not found:
            continue
        try:
            async with redis.pipeline(transaction=False) as pipe:
                for each in found:
                    row = FindingRow(**{name: getattr(each, name) for name in each.__slots__})
                    pipe.xadd(
                        state.FINDINGS,
                        {state.FINDING_FIELD: state.encode(row)},
                        maxlen=state.MAX_FINDINGS,
                        approximate=True,
                    )
                await pipe.execute()
        except RedisError as error:
            logger.warning("cannot report %d findings: %s", len(found), error)
