"""How a message is delivered to another relay.

**Into the outbox.** A relay worker that finds a message's destination twin on other relays writes
the message to `federation:out:<shard>` inside its group commit, so it is as safe as any queued
message. The shard follows from the destination twin. If no drainer holds that shard, the worker
starts the Celery task `federation.deliver` from a thread; a start that fails is repeated by the
beat within seconds.

**Draining.** The task takes the shard's *lease* (`lease.py`). It is held by one drainer at a time,
which checks its clock before each request and ends after a minute; its successor takes over. All
shards that a process drains run on one event loop in one thread (`drainer.py`) and share the
objects of this module: a connection to Redis, the HTTP connections, the twins, and the state of
partner relays. New entries are read as they arrive by a blocking read, for each `Shard`
(`draining.py`, `shard.py`), so a fresh message is on its way within a millisecond.

**Lanes.** Messages to one twin form a `Lane` (`lane.py`). It has one request in flight at a time,
which keeps its order. The twin is looked up as the workers do, and the relay is chosen by the rules
of `proto.federation.delivery`: the one that accepted the last message, else the best by rank
(`ranks.py`) that is not in a back-off after failures (`partners.py`). A lane that cannot proceed
waits; its payloads stay in Redis only, and of most messages no more than a note is in memory
(`notes.py`). If a twin has moved to this relay meanwhile, its messages go into its queue here.

**Sending.** Lanes queue at the `Destination` (`destination.py`). Relays of this implementation
offer the batch form in every answer, and then get the first messages of all ready lanes in one
request. For others each message is a POST to `/`, as with the reference relay. Requests are sent by
`http_client.py`, to addresses that `resolver.py` has checked.

**Settling.** Accepted messages are removed from the outbox in batches (`settling.py`). Refused ones
become dead letters, and the sender of a request is notified. Everything else is retried, at the
twin's other relays first, until it expires, which is also notified, at that very moment. If the
message is then in a request, its expiry waits for the end of that request, and does not happen if
it is delivered.

**Nothing twice.** An attempt without an answer may have been accepted. The message is then
*doubtful*, and is sent marked as a repeat: receivers of this implementation remember for ten
minutes what they accepted. The marks survive the drainer; if a drainer dies, everything in its
shard is doubtful.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hiredis

from proto.federation import batch
from proto.federation.domains import fold, spelled
from redispipe import resp
from redispipe.address import RedisAddress
from redispipe.errors import LinkLost
from redispipe.pipe import ANSWER_S, RedisPipe
from relay.federation import counters, draining, scripts
from relay.federation.counters import Tally
from relay.federation.destination import Destination
from relay.federation.http_client import HttpClient
from relay.federation.partners import Partner, Partners
from relay.federation.ranks import Ranks
from relay.federation.reader import Reader
from relay.federation.resolver import PublicResolver
from relay.federation.settling import Settler
from relay.federation.shard import Shard
from relay.queues import keys
from relay.trace.following import DrainerTrace
from relay.twins.cache import TwinCache
from relay.twins.source import TwinSource

if TYPE_CHECKING:
    from relay.analytics.drainer_events import DrainerEvents

log = logging.getLogger(__name__)

REFRESH_S: Final = 1.0
START_S: Final = 10.0
"""Seconds within which Redis must be available when a drainer starts."""


class SenderOptions(NamedTuple):
    """The configuration of a sender.

    Attributes:
        domains: names of this relay; it identifies itself by the first.
    """

    redis_url: str
    domains: tuple[str, ...]
    scheme: str = "https"
    allow_private: bool = False
    ca_file: str = ""
    timeout_s: float = 3.0
    connect_timeout_s: float = 2.0
    ranker_period_s: float = 3600.0
    retention_s: int = 3600
    batch: bool = True
    twins_s: float = 60.0
    unknown_s: float = 5.0


class Link:
    """A connection to Redis that can be awaited."""

    def __init__(self, address: RedisAddress, name: str, on_usable: Callable[[], None]) -> None:
        self._there = asyncio.Event()
        self._on_usable = on_usable
        self.pipe = RedisPipe(
            address.connect,
            address.opening(name),
            on_up=_nothing,
            on_usable=self._came,
            on_down=self._there.clear,
            answer_s=ANSWER_S,
        )

    async def usable(self, timeout_s: float) -> bool:
        """Wait for the connection, and return whether it is usable."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._there.wait()
        except TimeoutError:
            return False
        return True

    def _came(self) -> None:
        self._there.set()
        self._on_usable()


class Sender:
    """The objects that the drainers of one process share, on one event loop.

    Attributes:
        clock: returns unix seconds.
        random: returns a number from 0 up to 1.
        stopping: returns whether the process has to end.
        headers: headers of every request.
        relay_id: id under which other relays remember deliveries of this one.
        own_domains: canonical names of this relay.
        tally: counts the outcomes of messages.
        trace: records what happens to traced messages.
        events: records what happens to all messages; None if that is off.
    """

    def __init__(
        self,
        options: SenderOptions,
        source: TwinSource,
        stopping: Callable[[], bool] = lambda: False,
        resolver: PublicResolver | None = None,
        events: DrainerEvents | None = None,
    ) -> None:
        """
        Args:
            options: the settings.
            source: source of twins.
            stopping: returns whether drainers have to end.
            resolver: resolver of domains; the system's unless given.
            events: recorder of events, started and closed with the sender.
        """
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.clock = time.time
        self.random = random.random
        self.stopping = stopping
        self.relay_id = ""
        self.own_domains = frozenset(map(fold, options.domains))
        self.headers = {
            "Content-Type": "application/octet-stream",
            batch.RELAY_HEADER: spelled(options.domains[0]),
        }
        self._address = RedisAddress.parse(options.redis_url)
        self._link = Link(self._address, "federation", lambda: self.settler.again())
        self.pipe = self._link.pipe
        self.twins = TwinCache(
            source, self.pipe.ask, life_s=options.twins_s, unknown_s=options.unknown_s
        )
        self.tally = Tally()
        self.events = events
        self.trace = DrainerTrace(self.pipe, self.clock, options.domains[0])
        self.partners = Partners(
            self.pipe,
            self.clock,
            self.random,
            options.batch,
            self.tally,
            self._forget_destination,
        )
        self.ranks = Ranks(self.pipe.submit, options.ranker_period_s, random.shuffle)
        self.http = HttpClient(
            resolver or PublicResolver(options.allow_private),
            scheme=options.scheme,
            connect_timeout_s=options.connect_timeout_s,
            ca_file=options.ca_file,
        )
        self.settler = Settler(self.pipe, options.retention_s)
        self.reader = Reader(self, Link(self._address, "federation-reader", lambda: None))
        self._destinations: dict[str, Destination] = {}
        self._due: list[Destination] = []
        self._shards: set[Shard] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._twins_version: Any = None

    async def start(self) -> None:
        """Connect, and start the background tasks.

        Raises:
            LinkLost: Redis does not answer.
        """
        if self.events is not None:
            self.events.start()
        self.pipe.start()
        if not await self._link.usable(START_S):
            raise LinkLost("redis does not answer")
        names = [keys.FEDERATION_ID, keys.UNUSED]
        script = scripts.source("identify")
        relay_id = await self.pipe.call("EVAL", script, len(names), *names, uuid.uuid4().hex)
        self.relay_id = relay_id.decode()
        await self.trace.refresh()
        self.reader.start()
        self.spawn(self._refreshing())

    async def close(self) -> None:
        """Close everything; all shards must have ended before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reader.close()
        await self.http.close()
        if self.events is not None:
            await self.events.close()  # its last writes are counted below
        if self.pipe.usable:
            self._flush()
            self.trace.flush()
            with contextlib.suppress(LinkLost):
                await self.pipe.call("PING")
        await self.twins.close()
        await self.pipe.close()

    async def drain(self, number: int) -> bool:
        """Drain one shard for a while; return whether messages are left for a successor."""
        shard = Shard(self, number)
        self._shards.add(shard)
        try:
            return await draining.drain(self, shard)
        finally:
            self._shards.discard(shard)

    def destination(self, domain: str) -> Destination:
        """Return the destination that makes requests to this relay."""
        found = self._destinations.get(domain)
        if found is None:
            found = self._destinations[domain] = Destination(self, self.partners.get(domain))
        return found

    def pump_soon(self, destination: Destination) -> None:
        """Schedule a destination to make its requests at the end of this turn of the loop."""
        if not self._due:
            self.loop.call_soon(self.pump)
        self._due.append(destination)

    def pump(self) -> None:
        """Let the destinations that are due make their requests."""
        due, self._due = self._due, []
        for destination in due:
            destination.pump()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _forget_destination(self, partner: Partner) -> bool:
        found = self._destinations.get(partner.domain)
        if found is None:
            return True
        if found.idle:
            del self._destinations[partner.domain]
        return found.idle

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("federation: %r", error, exc_info=error)

    async def _refreshing(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self._refresh()
            except (LinkLost, hiredis.ReplyError) as error:
                log.debug("federation state not refreshed: %s", error)
            except Exception:
                # Operators' decisions reach drainers by this loop alone: it continues whatever was
                # read.
                log.exception("refreshing the federation state")

    async def _refresh(self) -> None:
        self.http.tidy()
        self._flush()
        await self.trace.refresh()
        version = await self.pipe.call("GET", keys.TWINS_VERSION)
        if version != self._twins_version:
            self._twins_version = version
            self.twins.invalidate(None)
        if await self.partners.refresh():
            for shard in self._shards:
                shard.look_again()

    def _flush(self) -> None:
        """Write the figures; without a connection they are kept until there is one."""
        if not self.pipe.usable:
            return
        self.partners.flush()
        counts = self.tally.take()
        if self.events is not None:
            for series, count in self.events.take().items():
                counts[counters.field(counters.EVENTS, series)] = count
        for field, count in counts.items():
            self.pipe.submit(
                resp.command("HINCRBY", keys.FEDERATION_COUNTERS, field, count), _ignore
            )


async def _nothing() -> None:
    """Do nothing: a fresh connection needs no preparation."""


def _ignore(reply: Any) -> None:
    """Ignore the reply: a lost figure does not matter."""
