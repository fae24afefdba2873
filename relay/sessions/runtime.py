"""The worker of this process, and its surroundings outside of tests and simulation."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import hiredis
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from proto.federation.domains import fold
from proto.limits.window import Limit
from proto.rmb.bounds import Bounds
from redispipe import resp
from redispipe.address import RedisAddress
from redispipe.errors import LinkLost
from relay.federation.inbound import Inbound
from relay.federation.outbox import OutboxBounds
from relay.federation.wake import Starter
from relay.mux.server import MuxServer
from relay.ops.control import GROUP
from relay.ops.log_feed import LogFeed
from relay.ops.redis_client import open_async
from relay.queues import keys
from relay.queues.batch import QueuePolicy
from relay.queues.charging import TwinBounds
from relay.sbd.server import SbdServer
from relay.server.collecting import SessionFreezer
from relay.sessions.admission import Admission
from relay.sessions.arrivals import Arrivals
from relay.sessions.history import PROGRESS_INTERVAL_S, SessionHistory
from relay.sessions.options import SessionBounds, WorkerOptions
from relay.sessions.reporting import HistoryReporter
from relay.sessions.worker import Worker
from relay.trace.following import WorkerTrace
from relay.twins.cache import TwinCache
from relay.twins.look_ups import open_look_ups
from relay.twins.source import open_source

if TYPE_CHECKING:
    from relay.analytics.worker_events import WorkerEvents

log = logging.getLogger(__name__)

STOP_S = 10.0
"""Seconds that a stop waits for sessions to give up their keys after the drain."""
SCHEMA_AGAIN_S: Final = 1.0
"""Seconds until the layout of Redis is read again after a failure."""


class Runtime:
    """One relay worker with its twins, its history and its share of the channel layer."""

    def __init__(
        self, config: Any, slot: int | str = 0, refused: Mapping[str, int] | None = None
    ) -> None:
        self.config = config
        boot_id = uuid.uuid4().hex[:12]
        address = RedisAddress.parse(config.redis.url)
        self.redis = open_async(config.redis.url)
        self.source = open_source(config)
        self.twins = TwinCache(
            self.source,
            lambda *words: self.worker.commit.pipe.ask(*words),
            life_s=config.twins.cache_s,
            unknown_s=config.twins.unknown_s,
        )
        self._history = SessionHistory(boot_id, slot)
        self.worker = Worker(
            worker_options(config, boot_id, slot),
            address.connect,
            address.opening(f"relay-{boot_id}"),
            self.twins,
            history=HistoryReporter(self._history),
        )
        # The server stops accepting, then calls `stop`; its supervisor starts a fresh worker.
        self.worker.on_leave = lambda: signal.raise_signal(signal.SIGTERM)
        if refused is not None:
            self.worker.metrics.refused_by_server = refused
        self.worker.gauges = self._gauges
        self._starter = Starter()
        self.worker.router.start_drainer = self._starter.wake
        self.admission = Admission(
            self.worker,
            open_look_ups(config, self.twins),
            handshakes_per_ip_per_s=config.relay.handshakes_per_ip_per_s,
            max_sid_bytes=config.relay.max_sid_bytes,
            max_token_lifetime_s=config.relay.max_token_lifetime_s,
            sessions_per_twin=config.relay.sessions_per_twin,
        )
        self.arrivals = Arrivals(self.worker, self.admission)
        self.inbound = Inbound(self.worker, config)
        self.events = _events(config, self.worker, slot) if config.analytics.record else None
        self.trace = WorkerTrace(self.worker, config.relay.domains[0])
        self.sbd: SbdServer | None = None
        if config.sbd.enabled:
            self.sbd = SbdServer(config, boot_id, self._history, self.worker)
            self.worker.upkeep.control.listeners.append(self.sbd.decide)
            if self.events is not None:
                self.sbd.switch.recorder = self.events.sbd
        self.mux: MuxServer | None = None
        if config.mux.enabled:
            self.mux = MuxServer(config, self.worker, self.admission)
            self.worker.upkeep.control.listeners.append(self.mux.decide)
        self._freezer: SessionFreezer | None = None
        self._log = LogFeed()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the worker. If Redis is unavailable, the worker runs but is not ready."""
        self._freezer = SessionFreezer(lambda: self.worker.metrics.sessions_opened)
        self._history.start()
        if self.events is not None:
            self.events.start()
        self.worker.start()
        self.inbound.start()
        if self.sbd is not None:
            self.sbd.start()
        if self.mux is not None:
            self.mux.start()
        loop = asyncio.get_running_loop()
        logging.getLogger().addHandler(self._log)
        self._tasks = [
            loop.create_task(self._log.publish(self.worker.boot_id, self.worker.commit)),
            loop.create_task(self._nudges()),
            loop.create_task(self._progress()),
            loop.create_task(self._check_schema()),
        ]

    async def stop(self) -> None:
        """Drain the sessions, flush what they leave, and stop everything."""
        try:
            async with asyncio.timeout(self.config.relay.drain_s + STOP_S):
                await self.worker.drained()
        except TimeoutError:
            log.error("%d sessions could not give up their keys", len(self.worker.sessions))
        logging.getLogger().removeHandler(self._log)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.inbound.stop()
        if self.sbd is not None:
            await self.sbd.stop()
        if self.mux is not None:
            await self.mux.stop()
        self.trace.tracer.flush()
        await self.worker.stop()
        await asyncio.to_thread(self._starter.stop)
        await asyncio.to_thread(self._history.stop)
        if self.events is not None:
            await self.events.close()
        await self.twins.close()
        await self.source.close()
        await self.redis.aclose()
        if self._freezer is not None:
            self._freezer.stop()

    def _gauges(self) -> dict[str, float]:
        return {
            "relay_twins_cached": len(self.twins),
            "relay_history_dropped_total": self._history.dropped,
            **self.admission.clocks.figures(),
            **self.source.figures(),
            "federation_start_failures_total": self._starter.failures,
            **self.inbound.figures(),
            **self.trace.figures(),
            **(self.events.figures() if self.events is not None else {}),
            **(self.sbd.figures() if self.sbd is not None else {}),
            **(self.mux.figures() if self.mux is not None else {}),
        }

    async def _progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            assert self.worker.history is not None
            self.worker.history.progress(self.worker.sessions)
            if self.sbd is not None:
                self.sbd.sessions.progress()

    async def _nudges(self) -> None:
        """Handle operators' changes on the channel layer: faster than comparing versions."""
        layer = get_channel_layer()
        if layer is None:
            return
        told = False
        while True:
            try:
                name = await layer.new_channel()
                await layer.group_add(GROUP, name)
                told = False
                while True:
                    await layer.receive(name)
                    self.worker.upkeep.refresh()
            except (OSError, TimeoutError, RedisError):
                await asyncio.sleep(1.0)  # the worker's own connection reports it
            except Exception as error:
                if not told:  # once for each outage
                    log.info("channel layer: %s", error)
                    told = True
                await asyncio.sleep(1.0)

    async def _check_schema(self) -> None:
        number = keys.SCHEMA_VERSION
        while True:
            await self.worker.until_usable()
            try:
                await self.worker.request(resp.command("SET", keys.SCHEMA, number, "NX"))
                stored = int(await self.worker.request(resp.command("GET", keys.SCHEMA)))
                break
            except (LinkLost, hiredis.ReplyError, ValueError, TypeError) as error:
                log.warning("the layout of redis is not known: %s", error)
                await asyncio.sleep(SCHEMA_AGAIN_S)
        if stored > number:
            log.critical("redis holds layout %d, this release knows up to %d", stored, number)
            self.worker.drain()


def _events(config: Any, worker: Worker, slot: int | str) -> WorkerEvents:
    """Return the recorder of a worker's events; imported only if it is used."""
    from relay.analytics.worker_events import WorkerEvents

    return WorkerEvents(config, worker, f"worker-{slot}")


def worker_options(config: Any, boot_id: str, slot: int | str) -> WorkerOptions:
    """Return a worker's options from the settings."""
    relay, queue = config.relay, config.queue
    return WorkerOptions(
        boot_id=boot_id,
        domains=frozenset(map(fold, relay.domains)),
        slot=str(slot),
        host=socket.gethostname(),
        pid=os.getpid(),
        capacity=relay.workers * relay.user_per_worker // relay.processes or 1,
        drain_s=relay.drain_s,
        queue=QueuePolicy(
            queue.max_messages,
            queue.max_bytes,
            queue.retention_s,
            queue.overflow == "drop_oldest",
            TwinBounds(
                queue.twin_messages, queue.twin_bytes, queue.twin_queues, queue.unknown_queues
            ),
        ),
        outbox=OutboxBounds(config.federation.max_messages, config.federation.max_bytes),
        bounds=SessionBounds(
            relay.session_messages,
            relay.session_bytes,
            relay.back_pressure_s,
            relay.idle_timeout_s,
        ),
        envelope_bounds=Bounds(
            uid_bytes=relay.max_uid_bytes,
            tags_bytes=relay.max_tags_bytes,
            connection_bytes=relay.max_sid_bytes,
        ),
        limit=Limit(config.limits.count, config.limits.size),
    )


_runtime: Runtime | None = None
_starting: asyncio.Lock | None = None


def install(runtime: Runtime | None) -> None:
    """Make a started runtime the one of this process."""
    global _runtime
    _runtime = runtime


async def running() -> Runtime:
    """Return the runtime of this process.

    A server without the lifespan protocol (``runserver``) starts it with its first connection.
    """
    global _starting
    if _runtime is not None:
        return _runtime
    if _starting is None:
        _starting = asyncio.Lock()
    async with _starting:
        if _runtime is None:
            from django.conf import settings

            runtime = Runtime(settings.RMB)
            await runtime.start()
            install(runtime)
    assert _runtime is not None
    return _runtime
