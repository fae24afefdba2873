"""The gateways of many twins in one process: `rmb-peer --many twins.toml`.

    twins.toml -> gateway of each twin -- its own lists in Redis
                      |    a stream each
                      +--------------------- Carrier -- one connection -- relay

The gateways share the connections to relays, and the source and cache of twins. The failure of one
twin's gateway is retried, and does not affect the others. SIGHUP reads the file again: gateways of
new twins start, and those of removed or changed twins end.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import random
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

from peer.arguments import UsageError
from peer.errors import PeerError
from peer.gateway import logs, many_file, metrics
from peer.gateway.app import COUNTERS, GAUGES, Gateway
from peer.gateway.many_file import ManyFile, TwinEntry
from peer.gateway.options import Options
from peer.gateway.parts import open_twins
from peer.gateway.service import collect_rarely, make_gateway, own_twin, serve, stopped, unless
from peer.hub import Carrier, StreamLink
from peer.link import Link
from peer.twins import TwinCache
from proto.limits.backoff import Backoff

logger = logging.getLogger("rmb-peer")

STARTING: Final = 64
"""Number of gateways that start at a time: each opens three connections to Redis and looks up its
twin."""

BEGIN_S: Final = 2.0
"""Seconds for which a starting gateway delays others at most while its Redis is unavailable."""

REPORT_S: Final = 2.0
"""Seconds between progress reports."""

NAMED: Final = 3
"""Maximum number of failure reasons in a progress line, and of twins named for each reason."""

RETRY: Final = Backoff(first_s=10.0, longest_s=300.0, jitter=0.5)
"""Back-off between attempts to start a gateway."""

MAX_TWINS: Final = 100_000
"""Maximum number of twins in memory, including all that the gateways talk to."""

FILES_PER_TWIN: Final = 3
SPARE_FILES: Final = 100

MANY_GAUGES: Final = {
    "twins": "Twins of the file",
    "twins_ready": "Twins that are signed in at a relay and whose Redis accepts writes",
}


async def run(options: Options) -> int:
    """Serve all twins until the process is told to stop; return the exit code.

    Raises:
        UsageError: the file, or something that it names for all twins, cannot be used.
    """
    stop, again = stopped(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
    assert options.many is not None, "the options of many have a file"
    file = await asyncio.to_thread(many_file.read, options.many)
    async with contextlib.AsyncExitStack() as opened:
        gateways = await opened.enter_async_context(_opened(options, file))
        if options.metrics_listen is not None:
            url = opened.enter_context(
                metrics.serving(
                    options.metrics_listen, gateways.figures, {**COUNTERS, **GAUGES, **MANY_GAUGES}
                )
            )
            logger.info("metrics: %s", url)
        collect_rarely()
        gateways.apply(file)
        while await _either(stop, again):
            again.clear()
            await gateways.reload()
    logger.info("stopped")
    return 0


@contextlib.asynccontextmanager
async def _opened(options: Options, file: ManyFile) -> AsyncIterator[Gateways]:
    common = dataclasses.replace(
        options, twins=file.twins, substrate=file.substrate, update=file.update
    )
    twins = TwinCache(open_twins(common), capacity=MAX_TWINS)
    gateways = Gateways(common, file, twins)
    reporting = asyncio.create_task(gateways.report())
    try:
        yield gateways
    finally:
        reporting.cancel()
        await gateways.aclose()
        await twins.aclose()


class _Running:
    """The gateway of one twin.

    Attributes:
        entry: the twin's entry in the file.
        gateway: the gateway, while it exists.
        problem: why the gateway does not exist.
        stop: event that ends the gateway.
        task: task that keeps the gateway running.
    """

    def __init__(self, entry: TwinEntry) -> None:
        self.entry = entry
        self.gateway: Gateway | None = None
        self.problem = "is starting"
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None]

    @property
    def why_not(self) -> str:
        """Why the gateway is not ready; empty if it is."""
        gateway = self.gateway
        if gateway is None:
            return self.problem
        if not gateway.gauges()["redis_connected"]:
            return "Redis accepts no writes"
        if gateway.links.connected:
            return ""
        return "; ".join(f"{link.url}: {link.last_error or 'not connected yet'}"
                         for link in gateway.links.links)  # fmt: skip


class Gateways:
    """The gateways of a process.

    Args:
        options: options that all gateways share.
        file: the file that was read; `apply` starts its gateways.
        twins: cache of all twins.
    """

    def __init__(self, options: Options, file: ManyFile, twins: TwinCache) -> None:
        self._options = options
        self._file = file
        self._twins = twins
        self._running: dict[TwinEntry, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._carriers: dict[str, Carrier] = {}
        self._starting = asyncio.Semaphore(STARTING)
        self._former: Counter[str] = Counter()  # counters of gateways that have ended

    def apply(self, file: ManyFile) -> None:
        """Start and end gateways to match a file."""
        self._file = file
        _raise_limit(len(file.entries))
        wanted = dict.fromkeys(file.entries)
        gone = [running for entry, running in self._running.items() if entry not in wanted]
        for running in gone:
            del self._running[running.entry]
            running.stop.set()
            self._ending.add(running.task)
            running.task.add_done_callback(self._ending.discard)
        others = list(self._ending)
        for entry in file.entries:
            stays = self._running.get(entry)
            if stays is not None:
                stays.entry = entry  # its name may have changed
                continue
            running = self._running[entry] = _Running(entry)
            running.task = asyncio.create_task(self._keep(running, others))

    async def reload(self) -> None:
        """Read the file again; an unusable file changes nothing."""
        try:
            file = await asyncio.to_thread(many_file.read, self._file.path)
        except UsageError as error:
            logger.error("nothing is changed: %s", error)
            return
        if file._replace(entries=()) != self._file._replace(entries=()):
            logger.error(
                "nothing is changed: %s: twins, substrate and update take effect after a restart",
                file.path,
            )
            return
        before = set(self._running)
        self.apply(file)
        after = set(self._running)
        logger.info("%s: %d twins begin, %d end, %d stay", file.path, len(after - before),
                    len(before - after), len(after & before))  # fmt: skip

    async def aclose(self) -> None:
        """End all gateways."""
        self.apply(self._file._replace(entries=()))
        await asyncio.gather(*self._ending, return_exceptions=True)
        await asyncio.gather(*(carrier.aclose() for carrier in self._carriers.values()))

    async def report(self) -> None:
        """Log how many twins are ready whenever that has changed."""
        told: tuple[int, frozenset[str]] | None = None
        while True:
            whole = list(self._running.values())
            missing = {each.entry.name: why for each in whole if (why := each.why_not)}
            now = (len(whole), frozenset(missing))
            if now != told:
                told = now
                self._tell(len(whole), missing)
            await asyncio.sleep(REPORT_S)

    def _tell(self, count: int, missing: dict[str, str]) -> None:
        text = f"ready: {count - len(missing)} of {count} twins"
        by_reason: dict[str, list[str]] = {}
        for name, why in missing.items():
            by_reason.setdefault(why, []).append(name)
        for why, names in sorted(by_reason.items(), key=lambda each: -len(each[1]))[:NAMED]:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            text += f"; {', '.join(names[:NAMED])}{more}: {why}"
        logger.info("%s", text)

    def figures(self) -> metrics.Figures:
        """Return the figures of all gateways; called in the thread of the endpoint."""
        counters = Counter(self._former)
        gauges: Counter[str] = Counter(dict.fromkeys(GAUGES, 0))
        running = list(self._running.values())
        for each in running:
            gateway = each.gateway
            if gateway is not None:
                counters.update(gateway.counters)
                gauges.update(gateway.gauges())
        redis = bool(running) and gauges["redis_connected"] == len(running)
        ready = sum(not each.why_not for each in running)
        carriers = list(self._carriers.values())
        return metrics.Figures(
            counters,
            {**gauges, "redis_connected": redis, "twins": len(running), "twins_ready": ready},
            tuple(
                metrics.RelayFigures(each.url, each.session is not None, each.connections)
                for each in carriers
            ),
        )

    # --- one gateway ------------------------------------------------------------------------------

    async def _keep(self, running: _Running, others: list[asyncio.Task[None]]) -> None:
        """Run a gateway, and restart it when it fails, until it is told to stop.

        Args:
            running: the gateway to run.
            others: tasks of gateways that are ending: one may have the same lists or session.
        """
        logs.GATEWAY.set(running.entry.name)
        await asyncio.gather(*others, return_exceptions=True)
        failures, loop = 0, asyncio.get_running_loop()
        while not running.stop.is_set():
            began = loop.time()
            try:
                await self._serve(running)
            except (PeerError, UsageError) as error:
                running.problem = str(error)
            except Exception as error:
                running.problem = f"failed: {type(error).__name__}: {error}"
                logger.exception("the gateway failed")
            finally:
                if running.gateway is not None:
                    self._former.update(running.gateway.counters)
                    running.gateway = None
            failures = 1 if loop.time() - began > RETRY.longest_s else failures + 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY.delay_s(failures, random.random)):
                    await running.stop.wait()

    async def _serve(self, running: _Running) -> None:
        entry, stop = running.entry, running.stop
        if entry.identity is None:
            raise UsageError(entry.problem)
        options = options_of(self._options, entry)
        async with self._starting:
            source, level = self._twins.source, logging.DEBUG
            twin = await unless(stop, own_twin(options, entry.identity, source, level))
            if twin is None:
                return
            self._twins.put(twin)
            make_link = functools.partial(self._link, entry.name)
            gateway = make_gateway(
                options, entry.identity, twin, self._twins, sid=entry.sid, make_link=make_link
            )
            running.gateway = gateway
            serving = asyncio.create_task(serve(gateway, stop))
            connected = asyncio.create_task(gateway.redis_connected())
            await asyncio.wait(
                (serving, connected), timeout=BEGIN_S, return_when=asyncio.FIRST_COMPLETED
            )
            connected.cancel()
        await serving

    def _link(self, name: str, url: str, *args: Any) -> Link:
        carrier = self._carriers.get(url)
        if carrier is None:
            carrier = self._carriers[url] = Carrier(url)
        return StreamLink(carrier, name, *args)


def options_of(common: Options, entry: TwinEntry) -> Options:
    """Return the options of the gateway of one twin."""
    return dataclasses.replace(
        common,
        relays=entry.relays,
        redis_url=entry.redis_url,
        uploads=entry.uploads,
        modules=entry.modules,
    )


async def _either(stop: asyncio.Event, again: asyncio.Event) -> bool:
    """Wait for one of two events; return whether `stop` is still unset."""
    waits = [asyncio.create_task(each.wait()) for each in (stop, again)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return not stop.is_set()


def _raise_limit(twins: int) -> None:
    """Raise the limit of open files to the maximum if it is too low for the number of twins."""
    needed = FILES_PER_TWIN * twins + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if hard != resource.RLIM_INFINITY and hard < needed:
            logger.warning(
                "the limit of open files is %d, and %d twins need %d; raise it (LimitNOFILE)",
                hard, twins, needed,
            )  # fmt: skip
