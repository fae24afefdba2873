"""How a message leaves for another relay.

**Into the outbox.** A relay worker that finds a message's destination twin on other relays writes
it into `federation:out:<shard>` inside its group commit, so it is as safe as any queued message.
The shard follows from the destination twin. If nobody drains that shard the worker has the Celery
task `federation.deliver` started, from a thread; what it misses the beat finds within seconds.

**Draining.** The task takes the shard's *lease* (`lease.py`): one drainer at a time, which looks at
its clock before each request and ends after a minute; its successor takes over. All shards that a
process drains run on one event loop in one thread (`drainer.py`) and share what is here: a
connection to Redis, the HTTP connections, the twins, and what is known about other relays. New
entries are read as they come, blocked in Redis, for each `Shard` (`draining.py`, `shard.py`), so a
fresh message is on its way within a millisecond.

**Lanes.** Messages to one twin form a `Lane` (`lane.py`). One request at a time is under way for
it, so its order is kept. The twin is looked up as the workers do, and the relay is chosen by the
rules of `proto.federation.delivery`: the one that took the last message, else the best by rank
(`ranks.py`) that is not left alone after failures (`partners.py`). A lane that cannot go on waits,
keeps its payloads in Redis only, and of most messages no more than a note (`notes.py`). A twin that
has moved to this relay meanwhile gets its mail into its queue here.

**Sending.** At the `Destination` (`destination.py`) lanes queue up. Relays of our kind offer the
batch form in every answer and then get the first messages of all lanes that are ready in one
request; to others each message is a POST to `/`, as with the reference relay. Requests go out
through `http_client.py`, to addresses that `resolver.py` has judged.

**Settling.** Accepted messages leave the outbox in batches (`settling.py`). Refused ones become
dead letters, and the sender of a request is told. All else is tried again, at the twin's other
relays first, until it expires, which is told as well, at that very moment; if it is in a batch
just then, when that is over and did not deliver it.

**Nothing twice.** A try without an answer may have been accepted. The message is *doubtful* then,
and goes out marked as a repeat: receivers of our kind remember what they took for ten minutes. The
marks survive the drainer; where one dies, everything that was in its shard is doubtful.
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
"""Redis has to be there in this time when a drainer begins."""


class SenderOptions(NamedTuple):
    """What is configured.

    Attributes:
        domains: of this relay, the first one is how it calls itself.
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
    """A connection to Redis that can be waited for."""

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
        """Waits for the connection; whether it is there."""
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
    """What the drainers of one process share, on one event loop.

    Attributes:
        clock: unix seconds.
        random: a number from 0 up to 1.
        stopping: tells that the process wants to end.
        headers: of every request.
        relay_id: under which other relays remember deliveries.
        own_domains: canonical names of this relay.
        tally: counts what became of messages.
        trace: notes what becomes of those that are followed.
        events: records what becomes of all; None where nobody wants that.
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
            source: of twins.
            stopping: whether drainers have to end.
            resolver: of domains; the system's unless given.
            events: started and closed with this.
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
        """Connects.

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
        """Ends everything; all shards have ended before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reader.close()
        await self.http.close()
        if self.events is not None:
            await self.events.close()  # what it wrote last is counted below
        if self.pipe.usable:
            self._flush()
            self.trace.flush()
            with contextlib.suppress(LinkLost):
                await self.pipe.call("PING")
        await self.twins.close()
        await self.pipe.close()

    async def drain(self, number: int) -> bool:
        """Drains one shard for a while; whether there is more for a successor."""
        shard = Shard(self, number)
        self._shards.add(shard)
        try:
            return await draining.drain(self, shard)
        finally:
            self._shards.discard(shard)

    def destination(self, domain: str) -> Destination:
        """Where requests to this relay are made."""
        found = self._destinations.get(domain)
        if found is None:
            found = self._destinations[domain] = Destination(self, self.partners.get(domain))
        return found

    def pump_soon(self, destination: Destination) -> None:
        """A destination has something to do when everybody else is done for now."""
        if not self._due:
            self.loop.call_soon(self.pump)
        self._due.append(destination)

    def pump(self) -> None:
        """Lets destinations make their requests."""
        due, self._due = self._due, []
        for destination in due:
            destination.pump()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something beside."""
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
                # Operators reach drainers through this loop alone: it goes on, whatever was read.
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
        """Writes the figures; without a connection they are kept until there is one."""
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
    """A fresh connection needs no preparation."""


def _ignore(reply: Any) -> None:
    """A figure more or less."""
