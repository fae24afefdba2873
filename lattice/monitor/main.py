"""The process of the monitor: reads the invocations of a lattice, and tells Redis what is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.connection import LatticeConnection
from lattice.directory import Directory
from lattice.monitor.judge import Judge
from lattice.monitor.watch import Watch
from lattice.options import LatticeOptions
from lattice.process import together
from lattice.report import Report
from proto.lattice import state
from proto.lattice.errors import LatticeError
from proto.lattice.state import FindingRow, ProcessKind

logger = logging.getLogger(__name__)

TELL_S: Final = 1.0


class MonitorError(LatticeError):
    """The monitor cannot begin; the text is for the operator."""


async def run(settings: dict[str, Any], stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Watch a lattice until the event is set.

    Args:
        settings: `options` (see `LatticeOptions`), `redis_url`, `subject` under which an account
            exports the invocations, and `direct`: whether to subscribe to those of the lattice.
        stop: ends it.
        ready: called once it watches.

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
    watch = Watch(judge, prefix)
    connection = LatticeConnection(options)
    redis = Redis.from_url(settings["redis_url"])
    directory = Directory(connection)

    def told() -> dict[str, Any]:
        return {
            "nats": connection.state,
            "seen": watch.seen,
            "judged": watch.judged,
            "unjudged": watch.unjudged,
            "unknown_payloads": watch.unknown_payloads,
            "by_reason": dict(watch.by_reason),
            "direct": bool(settings["direct"]),
        }

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
            judge.view = directory.view()

    try:
        report = Report(redis, ProcessKind.MONITOR, told)
        await together(stop, watching(), viewing(), report.keep(), _telling(redis, watch))
    finally:
        await connection.close()
        await redis.aclose()


async def _telling(redis: Redis, watch: Watch) -> None:
    """Write findings to the stream, until cancelled."""
    while True:
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
            logger.warning("%d findings cannot be told: %s", len(found), error)
