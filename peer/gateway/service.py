"""A running gateway: everything is opened here in order, and closed in reverse order.

    twins -> own twin (`startup`) -> modules -> Gateway (queues, links) -> metrics

SIGTERM and SIGINT end it, also during the start. Entries that were taken from a queue and not sent
yet are in Redis, and the next start resumes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from peer.gateway import metrics, startup
from peer.gateway.app import COUNTERS, GAUGES, Gateway
from peer.gateway.options import Options
from peer.gateway.parts import load_modules, open_twins, token_maker
from peer.identity import Identity
from peer.link import Link
from peer.links import Links, MakeLink
from peer.twins import Twin, TwinCache, TwinSource
from proto.identity import ss58

logger = logging.getLogger("rmb-peer")

_T = TypeVar("_T")

GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Objects allocated between two collections, and collections of younger generations before an older
one. The objects of a message have no cycles; Python's default of 700 is a few dozen messages."""

STOP_S: Final = 15.0
"""Seconds that the gateway may take to end. Entries in hand are in Redis anyway."""

STOP_AWAY_S: Final = 1.0
"""The same while Redis is unavailable: waiting would not help."""


async def run(options: Options) -> int:
    """Start, and serve until the process is told to stop; return the exit code.

    Raises:
        UsageError: something that the options name cannot be used.
        StartError: the gateway cannot start.
    """
    stop = stopped()
    identity = options.identity
    assert identity is not None, "the options of a run have one"
    async with contextlib.AsyncExitStack() as opened:
        source = open_twins(options)
        twins = TwinCache(source)
        opened.push_async_callback(twins.aclose)
        twin = await unless(stop, own_twin(options, identity, source))
        if twin is None:
            return 0
        twins.put(twin)
        gateway = make_gateway(options, identity, twin, twins)
        if options.metrics_listen is not None:
            url = opened.enter_context(_metrics(options.metrics_listen, gateway))
            logger.info("metrics: %s", url)
        collect_rarely()
        await serve(gateway, stop)
    logger.info("stopped")
    return 0


def stopped() -> asyncio.Event:
    """Return an event that is set when the process is told to stop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def collect_rarely() -> None:
    """Collect garbage rarely, and exclude what was imported: it is permanent."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def own_twin(
    options: Options, identity: Identity, source: TwinSource, level: int = logging.INFO
) -> Twin:
    """Return the own twin, updated on the chain if the options say so.

    Args:
        options: options of the gateway.
        identity: keys of the gateway.
        source: source in which the twin is looked up.
        level: level of the log line that names the twin.

    Raises:
        StartError: the twin does not exist, or could not be changed.
    """
    twin = await startup.own_twin(identity, source)
    wrong = startup.differences(twin, identity, options.domains)
    if wrong and options.update:
        twin = await startup.update(twin, identity, options.domains, source, options.substrate)
    elif wrong:
        for difference in wrong:
            logger.warning("twin %d lists %s", twin.id, difference)
    account = ss58.encode(twin.account)
    fields = {"twin": twin.id, "account": account, "relays": sorted(twin.relays)}
    logger.log(level, "twin: %d, account %s", twin.id, account, extra=fields)
    return twin


def make_gateway(
    options: Options,
    identity: Identity,
    twin: Twin,
    twins: TwinCache,
    *,
    sid: str | None = None,
    make_link: MakeLink | None = None,
) -> Gateway:
    """Return a gateway of a twin.

    Args:
        options: options of the gateway.
        identity: keys of the gateway.
        twin: the own twin.
        twins: cache of all twins.
        sid: id of the session; None: the session addressed by the twin's id alone.
        make_link: factory of links to relays; by default each has a websocket of its own.

    Raises:
        UsageError: a module cannot be loaded.
    """
    token = token_maker(identity, twin, sid)

    def make_links(on_message: Callable[[bytes], None], on_change: Callable[[Link], None]) -> Links:
        return Links(options.relays, token, on_message, on_change, make_link=make_link)

    modules = load_modules(options)
    return Gateway(identity, twin, twins, make_links, options.redis_url, modules, sid)


def _metrics(address: tuple[str, int], gateway: Gateway) -> contextlib.AbstractContextManager[str]:
    def read() -> metrics.Figures:
        relays = tuple(
            metrics.RelayFigures(link.url, link.connected, link.sessions)
            for link in gateway.links.links
        )
        return metrics.Figures(dict(gateway.counters), gateway.gauges(), relays)

    return metrics.serving(address, read, {**COUNTERS, **GAUGES})


async def serve(gateway: Gateway, stop: asyncio.Event) -> None:
    """Run a gateway; abandon it if it does not end in time after the signal."""
    running, stopping = asyncio.create_task(gateway.run(stop)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        limit_s = STOP_S if gateway.gauges()["redis_connected"] else STOP_AWAY_S
        _, late = await asyncio.wait({running}, timeout=limit_s)
        if late:
            logger.warning("some tasks did not end within %.0f s", limit_s)
        else:
            running.result()
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """Return the result of some work; None if the process was told to stop before."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        stopping.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)
